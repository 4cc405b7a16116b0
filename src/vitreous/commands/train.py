"""`vitreous train`: its options, checked before torch is imported, and the training itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from vitreous import model_names
from vitreous.commands.terminal import ImageOption, console
from vitreous.config import Recipe, assignment
from vitreous.data.dataset_names import check_dataset
from vitreous.errors import VitreousError
from vitreous.training import recipes
from vitreous.validation import check_ranges
from vitreous.weight_pairs import check_weights, pair_weights

if TYPE_CHECKING:
    from vitreous.training.loop import Trained


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of `train`.

    Parameters
    ----------
    data
        Images: a folder, an archive, shards, a .parquet, npz:PATH, tv:NAME, hf:NAME or world:TASK
        (default: world:shapes).
    recipe
        A recipe of `vitreous list recipes`, or your own as FILE.py:NAME or MODULE:NAME (default:
        quick).
    set
        Change a field of the recipe, FIELD=VALUE, as augment.mixup=0.8 or model.drop_path=0.1; may
        be repeated.
    image
        Size of the images: a side (224) or 224x160 (default: their own if they share one, else
        224).
    size
        Maximum number of training images, class-balanced (default: all).
    test_size
        Maximum number of test images, class-balanced (default: all).
    skip_corrupt
        Leave out files that cannot be decoded.
    fraction
        Train on this share of every class, 0.02 for 2 % (default: 1.0).
    iso
        What to keep equal with --fraction: the number of epochs, or of samples seen, which takes
        more epochs (default: epochs).
    pretrained
        Start from the published weights (default: random weights).
    weights
        Start from this checkpoint: .safetensors, .pth, .pt, .bin, .ckpt, a Hugging Face folder.
    teacher
        Name of the teacher model, for recipes with distillation.
    out
        Run folder (default: a new one under runs/).
    seed
        Random seed (default: 0).
    seeds
        Number of seeds to train, starting at --seed, all at once if the model allows it; each has a
        run folder of its own (default: 1).
    device
        auto, cpu, cuda, cuda:1 or mps (default: auto).
    no_compile
        Do not compile the model (default: compiled on GPUs).
    quiet
        Show no progress.
    """

    data: str = "world:shapes"
    recipe: str = "quick"
    set: tuple[str, ...] = ()
    image: ImageOption | None = None
    size: int | None = None
    test_size: int | None = None
    skip_corrupt: bool = False
    fraction: float = 1.0
    iso: Literal["epochs", "samples"] = "epochs"
    pretrained: bool = False
    weights: str | None = None
    teacher: str | None = None
    out: Path | None = None
    seed: int = 0
    seeds: int = 1
    device: str = "auto"
    no_compile: bool = False
    quiet: bool = False

    def check(self, model: str) -> None:
        """Raise for options that are wrong, as far as that is known before torch is imported."""
        check_ranges(**vars(self))
        self.changed_recipe()
        fine_tunes = self.pretrained or self.weights is not None
        if self.seeds > 1 and (fine_tunes or self.teacher is not None or self.fraction != 1):
            raise VitreousError(
                "Several seeds start from random weights on all images: seeds goes with neither "
                "pretrained, weights, teacher nor fraction; train one seed at a time."
            )
        model_names.check_models([model] if self.teacher is None else [model, self.teacher])
        check_weights(pair_weights([model], self.weights or ()))
        check_dataset(self.data)
        if self.out is not None and self.out.expanduser().is_file():
            raise VitreousError(
                f"out={str(self.out)!r} has to be a folder, and it is a file; choose another."
            )

    def changed_recipe(self) -> Recipe:
        """Return the recipe with the changes that `--set` asks for."""
        return recipes.named(self.recipe).but(**dict(map(assignment, self.set)))


def train_model(
    model: str, /, *, options: Annotated[TrainOptions | None, Parameter(name="*")] = None
) -> None:
    """Train a model into a run folder, which other commands open as run:FOLDER.

    Example: vitreous train vit_nano --data world:shapes --recipe quick --set epochs=4

    Interrupted? Run the same command again: it resumes (bit-exact on CPU). On several GPUs:
    torchrun --nproc-per-node 4 -m vitreous train resnet_18 --data tv:CIFAR10 --recipe fast

    Parameters
    ----------
    model
        A name: of Vitreous (vit_ti/4), of timm, tv:NAME, or your own as FILE.py:FUNCTION or
        MODULE:FUNCTION; run:FOLDER or nano:NAME starts from trained weights.
    """
    options = options or TrainOptions()
    options.check(model)
    for trained in _train(model, options):
        last = trained.records[-1]
        accuracy = f": test accuracy {1 - last['test_error']:.2%}" if "test_error" in last else ""
        console().print(f"{trained.run.folder}{accuracy}", highlight=False, soft_wrap=True)


def _train(model: str, options: TrainOptions) -> list[Trained]:
    """Load the data and the teacher by their names, and train one seed or several."""
    # torch comes with these
    from vitreous.data import load
    from vitreous.data.subsets import fraction, iso_samples
    from vitreous.models.loading import load_model
    from vitreous.training.loop import train
    from vitreous.training.seeds import train_seeds

    recipe = options.changed_recipe()
    reading: dict[str, Any] = {"image": options.image, "skip_corrupt": options.skip_corrupt}
    data = load(options.data, split="train", size=options.size, **reading)
    test = load(options.data, split="test", size=options.test_size, **reading)
    if options.fraction != 1:
        data = fraction(data, options.fraction, seed=options.seed)
        if options.iso == "samples":
            recipe = recipe.but(epochs=iso_samples(recipe.epochs, options.fraction))
    shared: dict[str, Any] = {
        "test": test, "out": options.out, "device": options.device, "show": not options.quiet,
        "compile": False if options.no_compile else None,
    }  # fmt: skip
    if options.seeds > 1:
        seeds = range(options.seed, options.seed + options.seeds)
        return train_seeds(model, data, recipe, seeds=seeds, **shared)
    teacher = None
    if options.teacher is not None:
        has_own_weights = options.teacher.startswith(("run:", "nano:", "zoo:"))
        teacher = load_model(options.teacher, pretrained=not has_own_weights)
    trained = train(
        model, data, recipe, seed=options.seed, pretrained=options.pretrained,
        weights=options.weights, teacher=teacher, **shared,
    )  # fmt: skip
    return [trained]
