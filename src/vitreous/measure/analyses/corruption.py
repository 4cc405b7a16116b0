"""How much accuracy corrupted images cost, by kind and severity.

    accuracy(kind, severity)   share of corrupted images classified correctly
    mean accuracy              mean over the kinds, and over the severities 1 to 5
    CE(kind)                   Σ_severity error(kind, severity) / Σ_severity error of the reference
    mCE                        mean of CE over the kinds

The kinds are the fifteen of CIFAR-10-C and ImageNet-C and the four extra ones; means leave the
extra ones out, as their authors do (Hendrycks & Dietterich, ICLR 2019, where the reference is
AlexNet). The reference is the first model: errors of a network trained on something else would mean
nothing. Park & Kim 2022 report the mean accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from vitreous.data.corruptions import CORRUPTIONS, EXTRA, GROUPS, KINDS, corrupt
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Bench, PieceNumbers
from vitreous.measure.probe import Batch
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import Array
from vitreous.measure.robustness.shifts import (
    CLEAN,
    MEASURES,
    ShiftAnalysis,
    ShiftScores,
    bootstrap_estimates,
    chance_level,
    interval_columns,
    rank_by_mean_accuracy,
)
from vitreous.measure.subject import Subject
from vitreous.results import Column, Reference, Result, View, tabulate

__all__ = ["CorruptionAnalysis"]

MEAN, EVERY = "mean", "all"
GROUP_OF = {kind.name: group for group, kinds in GROUPS.items() for kind in kinds}
GROUP_OF |= dict.fromkeys(EXTRA, "extra")


@dataclass
class CorruptionAnalysis(ShiftAnalysis):
    """Accuracy on corrupted images."""

    kinds: Sequence[str] = (*CORRUPTIONS, *EXTRA)
    """Kinds of corruption. The four extra ones do not enter means."""
    severities: Sequence[int] = (1, 2, 3, 4, 5)
    """Severities, each from 1 to 5."""
    reference: str = ""
    """Name of the model that CE is relative to (default: the first model)."""
    strengths: Literal["cifar", "imagenet", ""] = ""
    """Published strengths to use, `cifar` or `imagenet` (default: `cifar` below 96 pixels)."""

    name = "corruption"
    ids = ("A4.16",)
    section = Section(
        "robustness",
        "What do noise, blur, weather and bad cameras cost?",
        "Accuracy on images corrupted in nineteen ways, each at five severities, and how far "
        "confidence falls along with it. mCE compares the errors with those of the first model.",
        "Mean accuracy over fifteen corruptions and five severities is how Park & Kim (2022) and "
        "the authors of CIFAR-10-C (Hendrycks & Dietterich 2019) measure robustness.",
        order=1,
        headline=9,
        key=7,
    )

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise UnknownName("corruption", kind, KINDS, f"There are {', '.join(KINDS)}.")
        for name, values in (("kinds", self.kinds), ("severities", self.severities)):
            if not values or len(set(values)) < len(values):
                raise VitreousError(
                    f"The {name} of corruption are {list(values)}; name at least one, none twice."
                )
        if wrong := [each for each in self.severities if each not in (1, 2, 3, 4, 5)]:
            raise VitreousError(f"A severity is a whole number from 1 to 5, not {wrong[0]!r}.")
        if self.strengths not in ("cifar", "imagenet", ""):
            raise UnknownName("set of strengths", self.strengths, ("cifar", "imagenet"))

    def shifts(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [_piece(kind, severity) for kind in self.kinds for severity in self.severities]

    def shift_images(self, subject: Subject, batch: Batch, shift: str) -> Tensor:
        kind, severity = shift.split()
        corrupted = corrupt(
            batch.images.to(subject.device),
            kind,
            int(severity),
            seed=batch.seed,
            first=int(batch.rows[0]),
            size=self.strengths or None,
        )
        return subject.prepare(corrupted)

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        names = [each.name for each in subjects]
        if self.reference and self.reference not in names:
            raise UnknownName("reference", self.reference, names, f"Models are {', '.join(names)}.")
        reference = self.reference or names[0]
        scores = {name: ShiftScores(computed[name], bench) for name in names}
        errors = {name: self._errors(scores[name]) for name in names}
        rows: list[dict[str, Any]] = []
        for name in names:
            rows += self._rows(name, scores[name], errors[name], errors[reference], reference)
        small = max(bench.data.image) < 96  # as in `corrupt`
        about: dict[str, Any] = {
            "reference": reference,
            "strengths": self.strengths or ("cifar" if small else "imagenet"),
        }
        flawless = [kind for kind, error in errors[reference].items() if error[0] == 0]
        if flawless:
            about["left_out"] = {
                "mCE": f"The reference {reference} makes no error on {', '.join(flawless)}, so CE "
                "has no value there."
            }
        table, replicates = tabulate(rows, COLUMNS)
        views = _views(bench, len(names), reference)
        return Result(self.name, table, COLUMNS, views, about=about, replicates=replicates)

    @property
    def _averaged(self) -> list[str]:
        """The kinds that enter means."""
        return [kind for kind in self.kinds if kind not in EXTRA] or list(self.kinds)

    def _errors(self, scores: ShiftScores) -> dict[str, Array]:
        """Return the errors of each kind, summed over severities, (1 + REPEATS,)."""
        return {
            kind: np.sum(
                [1 - scores.accuracy(_piece(kind, severity)) for severity in self.severities],
                axis=0,
            )
            for kind in self.kinds
        }

    def _rows(
        self,
        model: str,
        scores: ShiftScores,
        errors: Mapping[str, Array],
        reference_errors: Mapping[str, Array],
        reference: str,
    ) -> Iterator[dict[str, Any]]:
        flags = {
            "by_kind": False, "by_severity": False, "compared": False, "overall": False,
        }  # fmt: skip
        blank = {"model": model, **flags}
        compared = model != reference
        count = len(scores.bench.data)
        with np.errstate(divide="ignore", invalid="ignore"):
            ce = {kind: errors[kind] / reference_errors[kind] for kind in self.kinds}
        mce = np.mean([ce[kind] for kind in self._averaged], axis=0)

        clean = {**blank, "kind": CLEAN, "group": CLEAN, "severity": 0.0, "by_kind": True}
        yield {**clean, **scores.row(CLEAN)}

        pieces = [_piece(kind, severity) for kind in self._averaged for severity in self.severities]
        overall = {**blank, "kind": MEAN, "group": EVERY, "severity": np.nan, "by_kind": True}
        overall |= {"compared": compared, "overall": True}
        yield {**overall, **scores.mean_row(pieces), **bootstrap_estimates({"ce": mce}, count)}

        for kind in self.kinds:
            row = {**blank, "kind": kind, "group": GROUP_OF[kind]}
            pieces = [_piece(kind, severity) for severity in self.severities]
            values = scores.mean_row(pieces) | bootstrap_estimates({"ce": ce[kind]}, count)
            yield {**row, "severity": np.nan, "by_kind": True, "compared": compared, **values}
            for severity, piece in zip(self.severities, pieces, strict=True):
                yield {**row, "severity": float(severity), **scores.row(piece)}

        groups = {EVERY: self._averaged}
        for kind in self.kinds:
            groups.setdefault(GROUP_OF[kind], []).append(kind)
        for group, kinds in groups.items():
            row = {**blank, "kind": MEAN, "group": group, "by_severity": True}
            yield {**row, "severity": 0.0, **scores.row(CLEAN)}
            for severity in self.severities:
                values = scores.mean_row([_piece(kind, severity) for kind in kinds])
                yield {**row, "severity": float(severity), **values}

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        yield rank_by_mean_accuracy(result, "corruptions")


def _piece(kind: str, severity: int) -> str:
    return f"{kind} {severity}"


COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "kind", "order", f"The corruption; `{CLEAN}` for none, `{MEAN}` for the mean of a group."
    ),
    Column(
        "group", "order", f"Group of the corruption; `{EVERY}` has every kind but the extra ones."
    ),
    Column("severity", "quantity", "1 to 5, 0 for clean images; empty for means over severities."),
    Column("by_kind", "category", "Whether the row is a mean over severities."),
    Column("by_severity", "category", "Whether the row is a mean over the kinds of a group."),
    Column("compared", "category", "Whether the row has a CE and is not about the reference."),
    Column(
        "overall",
        "category",
        "Whether the row is the mean over kinds and severities; its CE is the mCE.",
    ),
    *interval_columns("ce", "Errors over those of the reference, summed over severities.", "CE"),
    *MEASURES,
)


def _views(bench: Bench, models: int, reference: str) -> tuple[View, ...]:
    lines: dict[str, Any] = {
        "x": "severity", "colour": "model", "facet": "group", "where": "by_severity",
    }  # fmt: skip
    views = (
        View(
            "line", y="value", low="low", high="high", limits=(0, 1),
            references=chance_level(bench),
            title="Accuracy on corrupted images",
            how_to_read="Images get worse from left to right; 0 is the clean image. A line that "
            "falls early belongs to a model that needs what the corruption destroys.",
            **lines,
        ),
        View(
            "heatmap", x="kind", y="model", colour="value", limits=(0, 1), where="by_kind",
            title="Accuracy by corruption",
            how_to_read="Each cell is the mean accuracy over the severities of one corruption. "
            "Where a column varies, one model withstands the corruption and another does not.",
        ),
        View(
            "line", y="ece", low="ece_low", high="ece_high",
            title="Calibration on corrupted images",
            how_to_read="Mean gap between confidence and accuracy. A rising line belongs to a "
            "model that stays confident while it makes more and more errors.",
            **lines,
        ),
        View(
            "bar", x="kind", y="ce", colour="model", low="ce_low", high="ce_high",
            references=(Reference(1.0, reference),), where="compared",
            title="Errors relative to another model (the mean is mCE)",
            how_to_read="Below the dashed line a model makes fewer errors on a corruption than the "
            "model named there, above it more. The mean over the kinds is the mCE.",
        ),
    )  # fmt: skip
    return views if models > 1 else views[:-1]
