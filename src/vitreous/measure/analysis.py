"""The base class of analyses, which take many passes or gradients and are divided into pieces.

A piece takes some seconds and does not depend on others: a minibatch of a Hessian spectrum, a point
of a landscape, a lesioned unit, a corruption at one severity. It gives a dict of tensors, and the
result is computed from those alone. So resuming is skipping the pieces that are done, and progress
is counting them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from vitreous.data.dataset import Dataset
from vitreous.measure.bench import Bench, Found, Work
from vitreous.measure.engine import analyse
from vitreous.measure.report_section import Measurement
from vitreous.measure.subject import Model, Subject
from vitreous.results import Result

__all__ = ["Analysis", "Bench", "Found", "Work"]  # all that an analysis is written with


class Analysis(Measurement, ABC):
    """A measurement in many passes. Its fields are its options.

    Calling it with models and images runs it: `Lesion()("nano:vit", "world:shapes")`. For each
    model that is not `unsuited`, `work` is entered once and its function called with one of
    `pieces` after the other; `answer` computes the result from the numbers of all pieces.
    """

    category: ClassVar[str] = "analysis"
    split: ClassVar[str] = "test"
    """Default split."""
    fitted: ClassVar[str] = ""
    """Split that something is fitted on first, in `Bench.splits`; empty if nothing is fitted."""
    limit: ClassVar[int] = 512
    """Default maximum number of images."""
    marked: ClassVar[bool] = True
    """Whether predictions are compared with labels, which then have to be the model's classes."""

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        """Why the analysis does not suit a model, as a sentence; empty if it does."""
        return bench.setting.unmarkable(subject) if self.marked else ""

    @abstractmethod
    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        """Names of the pieces, in order; the same for the same options, model and images."""

    @abstractmethod
    def work(self, subject: Subject, bench: Bench) -> AbstractContextManager[Work]:
        """Set up what all pieces share, yield the function that computes one, and clean up.

        A piece must not depend on another having been computed in the same process. Weights, mode
        and gradients of the model stay as they are: what changes weights works on copies
        (`torch.func.functional_call`).
        """

    @abstractmethod
    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        """The result, from the numbers of all pieces, for the models that the analysis suits."""

    def __call__(
        self,
        models: Model | Sequence[Model] | Mapping[str, Model],
        data: Dataset | Path | str | Mapping[str, Dataset] = "world:shapes",
        *,
        keep: Path | str | None = None,
        **how: Any,
    ) -> Result:
        """Run this analysis; `how` as in `vitreous.analyse`."""
        return analyse(models, data, [self], keep=keep, **how)[self.name]
