"""How much accuracy corrupted images cost, by kind and severity (A4.16).

    accuracy(kind, severity)   share of right answers to the images corrupted so
    mean accuracy              mean over the kinds, and over the severities 1 to 5
    CE(kind)                   Σ_severity error(kind, severity)  /  Σ_severity error of the reference(kind, severity)
    mCE                        mean of CE over the kinds

The kinds are the fifteen of CIFAR-10-C and ImageNet-C and the four extra ones; means leave the extra ones out, as
their authors do (Hendrycks and Dietterich, ICLR 2019, where the reference is AlexNet). The reference is the first model
given: errors of a network trained on something else would say nothing. Park and Kim report the mean accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from vitreous.data.corruptions import CORRUPTIONS, EXTRA, GROUPS, KINDS, corrupt
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Bench, Found
from vitreous.measure.probe import Batch
from vitreous.measure.robustness.shifts import (
    CLEAN,
    MEASURES,
    Marks,
    Shifted,
    guessing,
    marks,
    measured,
    table,
    with_ends,
)
from vitreous.measure.subject import Subject
from vitreous.results import Column, Reference, Result, View

__all__ = ["Corruption"]

MEAN, EVERY = "mean", "all"
GROUP_OF = {each.name: group for group, kinds in GROUPS.items() for each in kinds} | dict.fromkeys(
    EXTRA, "extra"
)


@dataclass
class Corruption(Shifted):
    """How much accuracy corrupted images cost."""

    kinds: Sequence[str] = (*CORRUPTIONS, *EXTRA)
    """The fifteen, and the four that are kept for validation; any of them."""
    severities: Sequence[int] = (1, 2, 3, 4, 5)
    """Any of 1 to 5."""
    reference: str = ""
    """The model whose errors CE is relative to; the first, if none is named."""
    strengths: Literal["cifar", "imagenet", ""] = ""
    """Which of the two published sets; by the size of the images, if not given."""

    name = "corruption"
    ids = ("A4.16",)

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise UnknownName("corruption", kind, KINDS, f"There are {', '.join(KINDS)}.")
        for name, values in (("kinds", self.kinds), ("severities", self.severities)):
            if not values or len(set(values)) < len(values):
                raise VitreousError(
                    f"corruption was asked for the {name} {list(values)}; name at least one, none twice."
                )
        if wrong := [each for each in self.severities if each not in (1, 2, 3, 4, 5)]:
            raise VitreousError(
                f"A severity is a whole number from 1 to 5, and {wrong[0]!r} was asked for."
            )
        if self.strengths not in ("cifar", "imagenet", ""):
            raise UnknownName("set of strengths", self.strengths, ("cifar", "imagenet"))

    def shifts(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [_piece(kind, severity) for kind in self.kinds for severity in self.severities]

    def shifted(self, subject: Subject, batch: Batch, shift: str) -> Tensor:
        kind, severity = shift.split()
        how: dict[str, Any] = {
            "seed": batch.seed,
            "first": int(batch.rows[0]),
            "size": self.strengths or None,
        }
        return subject.prepare(corrupt(batch.images.to(subject.device), kind, int(severity), **how))

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        names = [each.name for each in asked]
        if self.reference and self.reference not in names:
            raise UnknownName("reference", self.reference, names, f"Models are {', '.join(names)}.")
        every = {each.name: marks(found, each, bench) for each in asked}
        errors = {name: self._errors(each) for name, each in every.items()}
        reference = self.reference or names[0]
        rows = [row for name in names for row in self._rows(name, every[name], errors, reference)]
        about: dict[str, Any] = {
            "reference": reference,
            "strengths": self.strengths or _usual(bench),
        }
        flawless = [kind for kind, error in errors[reference].items() if error[0] == 0]
        if flawless:
            why = f"The reference {reference} makes no mistake on {', '.join(flawless)}, so CE has no value there."
            about["left_out"] = {"mCE": why}
        return Result(
            self.name,
            table(rows, COLUMNS),
            COLUMNS,
            _views(bench, len(names), reference),
            about=about,
        )

    @property
    def _counted(self) -> list[str]:
        """The kinds that means are over."""
        return [kind for kind in self.kinds if kind not in EXTRA] or list(self.kinds)

    def _errors(self, of: Marks) -> dict[str, np.ndarray]:
        """For each kind the errors (1 + REPEATS,), summed over severities."""
        return {
            kind: np.sum(
                [1 - of.mean(_piece(kind, severity)) for severity in self.severities], axis=0
            )
            for kind in self.kinds
        }

    def _rows(
        self, model: str, of: Marks, errors: Mapping[str, Mapping[str, np.ndarray]], reference: str
    ) -> Iterator[dict[str, Any]]:
        def row(
            kind: str, group: str, severity: float, values: Mapping[str, float], **which: bool
        ) -> dict[str, Any]:
            flags = dict.fromkeys(("by_kind", "by_severity", "compared", "overall"), False) | which
            return {
                "model": model,
                "kind": kind,
                "group": group,
                "severity": severity,
                **flags,
                **values,
            }

        none, other = float("nan"), model != reference
        with np.errstate(divide="ignore", invalid="ignore"):
            ce = {kind: errors[model][kind] / errors[reference][kind] for kind in self.kinds}
        mce = np.mean([ce[kind] for kind in self._counted], axis=0)
        over = [_piece(kind, severity) for kind in self._counted for severity in self.severities]
        whole = of.mean_row(over) | measured({"ce": mce}, len(of.bench.data))
        yield row(CLEAN, CLEAN, 0.0, of.row(CLEAN), by_kind=True)
        yield row(MEAN, EVERY, none, whole, by_kind=True, compared=other, overall=True)
        for kind in self.kinds:
            pieces = [_piece(kind, severity) for severity in self.severities]
            values = of.mean_row(pieces) | measured({"ce": ce[kind]}, len(of.bench.data))
            yield row(kind, GROUP_OF[kind], none, values, by_kind=True, compared=other)
            for severity, piece in zip(self.severities, pieces, strict=True):
                yield row(kind, GROUP_OF[kind], float(severity), of.row(piece))
        groups = {EVERY: self._counted}
        for kind in self.kinds:
            groups.setdefault(GROUP_OF[kind], []).append(kind)
        for group, kinds in groups.items():
            yield row(MEAN, group, 0.0, of.row(CLEAN), by_severity=True)
            for severity in self.severities:
                values = of.mean_row([_piece(kind, severity) for kind in kinds])
                yield row(MEAN, group, float(severity), values, by_severity=True)


def _piece(kind: str, severity: int) -> str:
    return f"{kind} {severity}"


def _usual(bench: Bench) -> str:
    """The set of strengths that `corrupt` takes for images of this size."""
    return "cifar" if max(bench.data.image) < 96 else "imagenet"


COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "kind",
        "order",
        f"The corruption; {CLEAN!r} for none, {MEAN!r} for the mean over those of the group.",
    ),
    Column(
        "group", "order", f"What kind of corruption it is; {EVERY!r} are all but the extra ones."
    ),
    Column(
        "severity", "quantity", "1 to 5, 0 for clean images; empty for the mean over severities."
    ),
    Column("by_kind", "category", "Whether the row is a mean over severities."),
    Column("by_severity", "category", "Whether the row is a mean over the kinds of a group."),
    Column("compared", "category", "Whether the row has a CE, and is not the reference's own."),
    Column(
        "overall",
        "category",
        "Whether the row is the mean over kinds and severities; its CE is the mCE.",
    ),
    *with_ends("ce", "Errors over those of the reference, both summed over severities.", "CE"),
    *MEASURES,
)
BY_KIND = View(
    "heatmap",
    x="kind",
    y="model",
    colour="value",
    limits=(0, 1),
    where="by_kind",
    title="Accuracy by corruption",
    how_to_read="Each cell is the mean accuracy over the severities of one corruption. A column in which the rows "
    "differ is a corruption that one model stands and another does not.",
)
CALIBRATION = View(
    "line",
    x="severity",
    y="ece",
    colour="model",
    facet="group",
    low="ece_low",
    high="ece_high",
    where="by_severity",
    title="Calibration on corrupted images",
    how_to_read="The mean gap between confidence and accuracy. A line that rises belongs to a model that stays "
    "sure while it is wrong more and more often.",
)


def _views(bench: Bench, models: int, reference: str) -> tuple[View, ...]:
    by_severity = View(
        "line",
        x="severity",
        y="value",
        colour="model",
        facet="group",
        low="low",
        high="high",
        limits=(0, 1),
        references=guessing(bench),
        where="by_severity",
        title="Accuracy on corrupted images",
        how_to_read="From left to right images get worse; 0 is the clean image. A line that falls early belongs to a "
        "model that needs what the corruption takes away.",
    )
    errors = View(
        "bar",
        x="kind",
        y="ce",
        colour="model",
        low="ce_low",
        high="ce_high",
        references=(Reference(1.0, reference),),
        where="compared",
        title="Errors relative to those of another model (the mean is mCE)",
        how_to_read="Below the dashed line a model makes fewer mistakes on a corruption than the model named there, "
        "above it more. The mean over the kinds is the mCE.",
    )
    return (by_severity, BY_KIND, CALIBRATION, *((errors,) if models > 1 else ()))
