"""A planned training: everything that its weights depend on, and nothing else.

Its key is a hash of that, so a training that two studies need has one folder and is done once. A
training may start from the weights of another one, or have it as its teacher; that one comes first.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from vitreous.config import Recipe
from vitreous.storage.fingerprints import checksum


@dataclass(frozen=True)
class Images:
    """The images of a training; `name` is one that `vitreous.data.load` takes."""

    name: str
    size: int | None = None
    """Number of training images (default: all)."""
    test_size: int | None = None
    image: int | None = None
    """Side in pixels."""
    fraction: float = 1.0
    """Share of each class that is trained on."""
    rest: bool = False
    """Whether to train on the complement of that share instead."""
    held_out: float = 0.0
    """Share of each class held out to choose between networks; `fraction` is of the rest."""


@dataclass(frozen=True)
class Training:
    """One run of `vitreous.train`."""

    model: str
    recipe: Recipe
    images: Images
    seed: int = 0
    start: Training | None = None
    """The training whose final weights it starts from."""
    teacher: Training | None = None

    @property
    def follows(self) -> tuple[Training, ...]:
        """The trainings that have to be finished before."""
        return tuple(each for each in (self.start, self.teacher) if each is not None)

    def to_json(self) -> dict[str, Any]:
        others = {"start": self.start, "teacher": self.teacher}
        before = {name: each.to_json() if each else None for name, each in others.items()}
        written = {**asdict(self), "recipe": self.recipe.to_json(), **before}
        return json.loads(json.dumps(written))

    @property
    def key(self) -> str:
        """Twelve hexadecimal digits that identify the training."""
        return checksum(self.to_json())[:12]
