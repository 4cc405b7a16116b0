"""What can be chosen about `vitreous train`. Plain values, no torch: the command line is quick to answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vitreous import names, recipes
from vitreous.config import assignment
from vitreous.data import naming
from vitreous.errors import VitreousError
from vitreous.ranges import check_ranges
from vitreous.terminal import ImageOption


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
        names.check_models([model, *([self.teacher] if self.teacher is not None else [])])
        naming.check(self.data)
        if self.out is not None and self.out.expanduser().is_file():
            raise VitreousError(f"{str(self.out)!r} is a file; a run is kept in a folder: choose another out.")

    def changes(self) -> dict[str, Any]:
        """`set` as names and values."""
        return dict(map(assignment, self.set))
