"""The base class of analyses, which take many passes or gradients and are divided into pieces.

A piece takes some seconds and does not depend on other pieces: a minibatch of a Hessian spectrum, a
point of a landscape, a lesioned unit, a corruption at one severity. Its outcome is a dict of
tensors, and the result is computed from those alone. So an interrupted analysis resumes by skipping
finished pieces, and progress is their number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from vitreous.data.dataset import Dataset
from vitreous.measure.bench import Bench, PieceNumbers, Work
from vitreous.measure.engine import analyse
from vitreous.measure.report_section import Measurement
from vitreous.measure.subject import Model, Subject
from vitreous.results import Result

__all__ = ["Analysis", "Bench", "PieceNumbers", "Work"]  # the names needed to write an analysis


class Analysis(Measurement, ABC):
    """A measurement in many passes. Its fields are its options.

    Call it with models and images to run it: `Lesion()("nano:vit", "world:shapes")`. For each
    model that it suits, the context `work` is entered once and its function called for each of
    `pieces`. Then `answer` computes the result from the numbers of all pieces.
    """

    category: ClassVar[str] = "analysis"
    split: ClassVar[str] = "test"
    """Default split."""
    fitted: ClassVar[str] = ""
    """Split of `Bench.splits` that something is fitted on; empty if nothing is fitted."""
    limit: ClassVar[int] = 512
    """Default maximum number of images."""
    marked: ClassVar[bool] = True
    """Whether predictions are compared with labels; then the labels must be the model's classes."""

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        """Return why the analysis does not suit a model, as a sentence; empty if it does."""
        return bench.setting.unmarkable(subject) if self.marked else ""

    def further_models(self, bench: Bench) -> Sequence[Subject]:
        """Return models that the result depends on without being about them.

        One that was given, such as the model that others are compared with, is not analysed.
        """
        return ()

    @abstractmethod
    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        """Return names of the pieces, in order; they depend on options, model and images alone."""

    @abstractmethod
    def work(self, subject: Subject, bench: Bench) -> AbstractContextManager[Work]:
        """Set up what all pieces share, yield the function that computes a piece, and clean up.

        A piece must not depend on earlier pieces in the same process. Weights, mode and gradients
        of the model must not change: use copies of weights with `torch.func.functional_call`.
        """

    @abstractmethod
    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        """Compute the result from the numbers of all pieces, for the models that it suits."""

    def __call__(
        self,
        models: Model | Sequence[Model] | Mapping[str, Model],
        data: Dataset | Path | str | Mapping[str, Dataset] = "world:shapes",
        *,
        keep: Path | str | None = None,
        **how: Any,
    ) -> Result:
        """Run this analysis; `how` are keyword arguments of `vitreous.analyse`."""
        return analyse(models, data, [self], keep=keep, **how)[self.name]
