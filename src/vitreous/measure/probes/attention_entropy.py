"""Entropy of the attention of each head, in bits.

    entropy = 1/N Σ_i Σ_j −A_ij log₂ A_ij

for every head, mean over images. A head that attends to one token has 0 bits, one that attends to n
tokens equally has log₂ n. `relative` is the entropy divided by that of uniform attention over the
keys that a query can attend to. All tokens count as queries and keys, including the class token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitreous.measure.heads import PerHead, shared_cross_entropy
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import Reference, Result, View, estimate
from vitreous.results.comparing import bold, code, name_tied, records
from vitreous.results.words import escape, format_estimate, format_number, format_percent
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import AttentionMap

__all__ = ["AttentionEntropy"]

UNIFORM = 0.99
"""Share of the entropy of uniform attention above which a head does not focus."""


@dataclass
class AttentionEntropy(PerHead):
    """Entropy of the attention of heads, in bits."""

    name = "attention_entropy"
    section = Section(
        "attention",
        "Do heads focus or attend everywhere?",
        "The entropy of attention: zero where a head attends to a single position, highest where "
        "it attends to all alike.",
        order=3,
    )
    value = estimate(
        "Entropy of attention, mean over queries and images.", label="entropy", measure="bits"
    )
    views = (
        View(
            "scatter",
            x="depth",
            y="value",
            colour="model",
            low="low",
            high="high",
            bands=True,
            title="Attention entropy of every head",
            how_to_read="Each point is a head. One bit more is attention to twice as many tokens; "
            "at the dashed line all tokens are attended to alike.",
        ),
        View(
            "scatter",
            x="depth",
            y="relative",
            colour="model",
            bands=True,
            references=(Reference(1.0, "uniform attention"),),
            title="Entropy relative to uniform attention",
            how_to_read="1 is attention to all keys alike, 0 attention to a single one. Units "
            "that reach fewer keys, such as windows, are compared with uniform attention to those.",
        ),
    )

    def measures(self, subject: Subject, unit: Unit, attention: AttentionMap) -> dict[str, Tensor]:
        return {"value": shared_cross_entropy(attention).diagonal(dim1=1, dim2=2)}

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        known = records(result.table.dropna(subset=["relative", "value"]))
        if not known:
            return
        row = min(known, key=lambda row: row["relative"])
        head = _head(row)
        if row["relative"] > UNIFORM:
            yield (
                f"No head focuses: even {head} has {format_percent(row['relative'])} of the "
                "entropy of uniform attention."
            )
            return
        alike = [
            each
            for each in known
            if each is not row and each["low"] / each["uniform"] <= row["high"] / row["uniform"]
        ]
        entropy = format_estimate(row["value"], row["low"], row["high"], "bits")
        uniform = f"{format_number(row['uniform'])} under uniform attention"
        if not alike:
            yield f"The most focused head is {head}: {entropy} of {uniform}."
            return
        alike.sort(key=lambda each: each["relative"])
        heads = name_tied([head, *map(_head, alike)])
        yield (
            f"{heads[0].upper()}{heads[1:]} focus most: the first has {entropy} of {uniform}, and "
            "the intervals overlap."
        )


def _head(row: Mapping[str, Any]) -> str:
    """A head, its unit and model, as HTML."""
    return f"head {escape(row['head'])} of {code(row['unit'])} in {bold(row['model'])}"
