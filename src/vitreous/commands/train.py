"""`vitreous train`: its options, and what it does with them. Torch is imported only when they are known to be sound."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from vitreous import model_names
from vitreous.commands.terminal import ImageOption, console
from vitreous.config import assignment
from vitreous.data import naming
from vitreous.errors import VitreousError
from vitreous.training import recipes
from vitreous.validation import check_ranges

if TYPE_CHECKING:
    from vitreous.training.loop import Trained


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything but the model.

    Parameters
    ----------
    data
        folder:PATH, npz:PATH, tv:NAME, hf:NAME or world:TASK; world:shapes if not given.
    recipe
        One of `vitreous list recipes`; quick if not given.
    set
        Change the recipe: --set epochs=20 --set augment.mixup=0.8 --set model.drop_path=0.1
    image
        Size of the images: a side (224) or 224x160.
    size
        At most so many training images.
    test_size
        At most so many test images.
    skip_corrupt
        Leave out files that cannot be decoded.
    fraction
        Train on this share of every class, 0.02 for 2 %.
    iso
        With a fraction: as many epochs as ever, or as many images (more epochs).
    pretrained
        Begin with the published weights of the model.
    teacher
        The model that a distilling recipe learns from.
    out
        The run's folder; under runs/ if not given.
    seed
        Random seed (default: 0).
    seeds
        Train this many seeds, from --seed on, in one step if the model allows it; each has a run folder of its own.
    device
        auto, cpu, cuda, cuda:1 or mps.
    no_compile
        Do not compile the model; on GPUs it is compiled.
    quiet
        Show nothing while training.
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
    teacher: str | None = None
    out: Path | None = None
    seed: int = 0
    seeds: int = 1
    device: str = "auto"
    no_compile: bool = False
    quiet: bool = False

    def check(self, model: str) -> None:
        """Everything that can be known to be wrong before torch is imported."""
        check_ranges(**vars(self))
        recipes.named(self.recipe).but(**self.changes())
        if self.seeds > 1 and (self.pretrained or self.teacher is not None or self.fraction != 1):
            raise VitreousError(
                "Several seeds start from random weights on all images: seeds goes with neither pretrained, teacher "
                "nor fraction; train one seed at a time."
            )
        model_names.check_models([model, *([self.teacher] if self.teacher is not None else [])])
        naming.check(self.data)
        if self.out is not None and self.out.expanduser().is_file():
            raise VitreousError(
                f"{str(self.out)!r} is a file; a run is kept in a folder: choose another out."
            )

    def changes(self) -> dict[str, Any]:
        """`set` as names and values."""
        return dict(map(assignment, self.set))


def train(model: str, /, *, options: Annotated[Options | None, Parameter(name="*")] = None) -> None:
    """Train a model and keep its record in a folder that `vitreous` opens again.

    Example: vitreous train vit_nano --data world:shapes --recipe quick --set epochs=4

    Interrupted? Run the same command again: it resumes (bit-exact on CPU). On several GPUs:
    torchrun --nproc-per-node 4 -m vitreous train resnet_18 --data tv:CIFAR10 --recipe fast

    Parameters
    ----------
    model
        A name: ours (vit_ti/4), timm's, tv:NAME, MODULE:FUNCTION of your own; or run:FOLDER, nano:NAME to go on from
        trained weights.
    """
    chosen = options or Options()
    chosen.check(model)
    for trained in run(model, chosen):
        last = trained.records[-1]
        accuracy = (
            f": {1 - last['test_error']:.2%} of the test images right"
            if "test_error" in last
            else ""
        )
        console().print(f"{trained.run.folder}{accuracy}", highlight=False, soft_wrap=True)


def run(model: str, options: Options) -> list[Trained]:
    """Recipe, images and teacher by their names, a fraction of the images if asked for, then training."""
    from vitreous.data import load
    from vitreous.data.subsets import fraction, iso_samples
    from vitreous.models.loading import load as load_model
    from vitreous.training.loop import train as train_one
    from vitreous.training.seeds import train_seeds

    recipe = recipes.named(options.recipe).but(**options.changes())
    how: dict[str, Any] = {"image": options.image, "skip_corrupt": options.skip_corrupt}
    data = load(options.data, size=options.size, **how)
    test = load(options.data, split="test", size=options.test_size, **how)
    if options.fraction != 1:
        data = fraction(data, options.fraction, seed=options.seed)
        if options.iso == "samples":
            recipe = recipe.but(epochs=iso_samples(recipe.epochs, options.fraction))
    shared: dict[str, Any] = {
        "test": test, "out": options.out, "device": options.device, "show": not options.quiet,
        "compile": False if options.no_compile else None,
    }  # fmt: skip
    if options.seeds > 1:
        return train_seeds(
            model, data, recipe, seeds=range(options.seed, options.seed + options.seeds), **shared
        )
    name = options.teacher
    teacher = load_model(name, pretrained=not name.startswith(("run:", "nano:"))) if name else None
    one: dict[str, Any] = {
        "seed": options.seed,
        "pretrained": options.pretrained,
        "teacher": teacher,
    }
    return [train_one(model, data, recipe, **one, **shared)]
