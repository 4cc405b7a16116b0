"""A training as a study plans it: everything that its weights depend on, and nothing else.

Its key is the hash of all that, so one training that two studies need is one folder, and what is finished is never done
again. A training may begin from the weights of another, or be taught by another; then those come first.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from vitreous.config import Recipe
from vitreous.storage.fingerprints import checksum


@dataclass(frozen=True)
class Images:
    """Which images, by a name that `vitreous.data.load` knows."""

    name: str
    size: int | None = None
    """Training images; all if not given."""
    test_size: int | None = None
    image: int | None = None
    """Side in pixels."""
    fraction: float = 1.0
    """Share of each class that is trained on."""
    rest: bool = False
    """The other images: those that are not in that share."""
    held_out: float = 0.0
    """Share of each class that is never trained on, to choose between models by; `fraction` is of what is left."""


@dataclass(frozen=True)
class Training:
    """One run of `vitreous.train`."""

    model: str
    recipe: Recipe
    images: Images
    seed: int = 0
    start: Training | None = None
    """The weights it begins with are the last of this one."""
    teacher: Training | None = None

    @property
    def follows(self) -> tuple[Training, ...]:
        """What has to be finished before."""
        return tuple(each for each in (self.start, self.teacher) if each is not None)

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))

    @property
    def key(self) -> str:
        """Twelve letters that no other training has."""
        return checksum(self.to_json())[:12]
