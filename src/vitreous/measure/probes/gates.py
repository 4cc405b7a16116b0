"""Gates of gated positional self-attention (ConViT).

    gate = σ(λ_h)

for every head of every layer with gated positional self-attention, ours and timm's: at 1 attention
depends on position alone, at 0 on content alone, and training starts at σ(1) = 0.731. Only weights
are read, no images. Measure several checkpoints of a training to see gates move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import Tensor

from vitreous.measure.probe import Probe, where
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, View
from vitreous.results.comparing import bold, code, records
from vitreous.results.words import format_number

__all__ = ["Gates"]

PARAMETER = ".gating_param"
"""Name of λ in the released code, in timm and here."""


@dataclass
class Gates(Probe):
    """Gates of gated positional attention."""

    name = "gates"
    ids = ("A4.20", "CVT-13", "CVT-14", "CVT-15")
    section = Section(
        "weights",
        "Do heads attend by position or by content?",
        "The gate of each head of gated positional attention: 1 attends by position, 0 by content.",
        "Gates begin at 0.73 and fall in every layer; late layers end near 0 (d'Ascoli et al. "
        "2021, Fig. 6).",
        order=3,
    )
    columns = (
        Column("head", "order", "Number of the head."),
        Column("mean", "quantity", "Mean over the heads of the unit.", label="mean gate"),
        Column("value", "quantity", "Share of positional attention, σ(λ).", label="gate"),
    )
    views = (
        View(
            "scatter",
            x="depth",
            y="value",
            colour="model",
            bands=True,
            limits=(0.0, 1.0),
            references=(Reference(0.7311, "before training"),),
            title="Gates of positional attention",
            how_to_read="Each point is a head with a gate. Near 1 it attends by position, "
            "whatever is there; near 0 by content, wherever that is.",
        ),
        View(
            "line",
            x="depth",
            y="mean",
            colour="model",
            bands=True,
            limits=(0.0, 1.0),
            references=(Reference(0.7311, "before training"),),
            title="Mean gate of each layer",
            how_to_read="Each point is the mean over the heads of a gated layer. Where the line "
            "falls, layers have given up looking by position.",
        ),
    )

    def unsuited(self, subject: Subject) -> str:
        return "" if gate_values(subject) else "It has no gated positional attention."

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        columns = (*UNIT_COLUMNS, *self.columns)
        table = pd.DataFrame(
            [row for subject in subjects for row in _rows(subject)],
            columns=[column.name for column in columns],
        )
        return Result(self.name, table, columns, self.views)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        for model, rows in result.table.groupby("model", sort=False, observed=True):
            units = records(rows.sort_values("depth", kind="stable"))
            first, last = (
                f"{format_number(row['mean'])} in {code(row['unit'])}"
                for row in (units[0], units[-1])
            )
            yield f"The mean gate of {bold(model)} is {first} and {last}."


def gate_values(subject: Subject) -> dict[str, Tensor]:
    """The gates σ(λ) of each layer, (heads,), by its path."""
    weights = subject.specimen.module.state_dict()
    return {
        name.removesuffix(PARAMETER): value.double().sigmoid().cpu()
        for name, value in weights.items()
        if name.endswith(PARAMETER)
    }


def _rows(subject: Subject) -> Iterator[dict[str, Any]]:
    gates = gate_values(subject)
    for unit in subject.specimen.units:
        for path, values in gates.items():
            if unit.kind == "attention" and (path == unit.name or path.startswith(f"{unit.name}.")):
                for head, value in enumerate(values.tolist()):
                    yield {
                        **where(subject, unit),
                        "head": head,
                        "mean": float(values.mean()),
                        "value": value,
                    }
