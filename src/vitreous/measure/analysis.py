"""What an analysis is: a question that takes many passes or gradients, divided into pieces that are each done once.

A piece is whatever costs some seconds and stands for itself: a minibatch of a Hessian spectrum, a point of a landscape,
a unit that is lesioned, a corruption at one severity. What comes out of it is a dict of tensors, which is all that an
answer is made of. So going on after an interruption is leaving out the pieces that are there, and progress is counting
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from vitreous.data.dataset import Dataset
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch, Setting
from vitreous.measure.section import Measurement
from vitreous.measure.subject import Model, Subject
from vitreous.results import Result

Found = Mapping[str, Mapping[str, Numbers]]
"""Model, piece: numbers."""
Work = Callable[[str], Numbers]
"""Does one piece."""


@dataclass
class Bench:
    """What an analysis works on: models, images, the seed, and how many images fit into memory at a time."""

    setting: Setting
    batch: int
    """Images at a time; halved whenever memory does not suffice, so ask for it anew in every piece."""
    splits: Mapping[str, Dataset] = field(default_factory=dict)
    """Other images of the same set, by split, for what is fitted on some and measured on others."""

    @property
    def data(self) -> Dataset:
        return self.setting.data

    @property
    def seed(self) -> int:
        return self.setting.seed

    def batches(self, data: Dataset | None = None) -> Iterator[Batch]:
        """The images in order, as many at a time as fit."""
        data = self.data if data is None else data
        for rows in torch.arange(len(data)).split(self.batch):
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            yield Batch(rows, data.images[part], data.labels[part], self.seed)


class Analysis(Measurement, ABC):
    """One question. An instance is the question with its options, which are its fields.

    Calling it with models and images answers it: `Lesion()("nano:vit", "world:shapes")`. For each model that is not
    `unsuited`, `work` is entered once and its function called with one of `pieces` after the other; `answer` makes a
    result of all that was found.
    """

    split: ClassVar[str] = "test"
    """The images that are asked on, if nothing else is said."""
    fitted: ClassVar[str] = ""
    """The split that something is fitted on first, found in `Bench.splits`; empty if nothing is."""
    limit: ClassVar[int] = 512
    """At most so many images, if nothing else is said."""
    marked: ClassVar[bool] = True
    """Whether answers are marked right or wrong, so that labels are needed and have to be the model's own classes."""

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        """Why a model cannot be asked, as a sentence; empty if it can."""
        return bench.setting.unmarkable(subject) if self.marked else ""

    @abstractmethod
    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        """Names of the pieces, in order; the same whenever the question, the model and the images are the same."""

    @abstractmethod
    def work(self, subject: Subject, bench: Bench) -> AbstractContextManager[Work]:
        """Set up what all pieces share, hand over what does one, and clear up, whatever happens in between.

        A piece must not depend on another having been done in the same process. The model's weights, mode and
        gradients are not touched: what changes weights works on copies (`torch.func.functional_call`)."""

    @abstractmethod
    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        """The result, for the models that could be asked, at least one, all their pieces there."""

    def __call__(
        self,
        models: Model | Sequence[Model] | Mapping[str, Model],
        data: Dataset | str | Mapping[str, Dataset] = "world:shapes",
        *,
        keep: Path | str | None = None,
        **how: Any,
    ) -> Result:
        """Ask this one question; `how` as in `vitreous.analyse`."""
        from vitreous.measure.engine import analyse

        return analyse(models, data, [self], keep=keep, **how)[self.name]
