"""How the models and images of an explorer were opened, for reports and Python code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from vitreous.measure.class_names import ClassNames
from vitreous.measure.preprocessing import PreprocessingChoice


@dataclass(frozen=True)
class Origin:
    """The arguments of `open_explorer`."""

    models: tuple[str, ...] = ()
    """How Python spells each: the quoted name, or a variable that holds the module."""
    options: tuple[Mapping[str, Any], ...] = ()
    """What `subjects` was given for each of these alone."""
    data: str = ""
    """The name of the dataset; empty if it was given as it is."""
    split: str | None = None
    limit: int | None = None
    seed: int = 0
    skip_corrupt: bool = False
    preprocessing: PreprocessingChoice = field(default_factory=PreprocessingChoice)
    classes: ClassNames | None = None

    def shared_options(self) -> dict[str, Any]:
        """The arguments of `subjects` for all models, without those that have their default."""
        chosen = asdict(self.preprocessing).items()
        preprocessing = {name: value for name, value in chosen if value not in (None, False)}
        given = {"preprocessing": preprocessing, "classes": self.classes, "seed": self.seed}
        return {name: value for name, value in given.items() if value}
