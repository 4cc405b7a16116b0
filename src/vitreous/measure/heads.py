"""What questions to attention share: where queries and keys lie, uniform attention to compare with, a row a head.

The specimen hands over probabilities as (images, groups, heads, queries, keys), a window being a group. They are the
largest tensors of a model, so they are read as few times as can be: by products of matrices where that is possible, and
otherwise in portions that fit into a processor's cache.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from weakref import ref

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitreous.measure.per_image import PerImage, mean_over_images
from vitreous.measure.probe import Batch, PerImageValues, Setting, Updates, estimated, sum_key
from vitreous.measure.subject import Subject
from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, View, tabulate
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.attention_geometry import AttentionGeometry, portions
from vitreous.specimen.observe import AttentionMap, Sites

MASKED = 1e-20
"""A pair that no head of an image gives more is masked: libraries add -100 to logits, or -inf."""

HIDDEN = {
    "channel": "It attends over channels, which have no place in the image.",
    "linear": "Its attention is linear: there are no probabilities to look at.",
    "unknown": "Where its queries and keys lie could not be told.",
}


def why_hidden(unit: Unit) -> str | None:
    """Why a unit has no probabilities to look at; empty if it is no attention, None if it has."""
    if unit.kind != "attention":
        return ""
    if unit.weights == "signed" or (unit.reach == "unknown" and unit.reason):
        return unit.reason
    return HIDDEN.get(unit.reach or "unknown")


def without_attention(subject: Subject) -> str:
    """The reason if a model has no attention at all."""
    return (
        ""
        if any(unit.kind == "attention" for unit in subject.specimen.units)
        else "It has no attention."
    )


def cross_entropy(values: Tensor, queries: Tensor) -> Tensor:
    """(b, heads, heads) −Σ A_g log₂ A_h of any two heads g and h, mean over queries that are tokens, not padding.

    One product for all pairs; that of a head with itself is its entropy. What is zero in float32 counts as the smallest
    number that float32 has.
    """
    tiny, asks = torch.finfo(torch.float32).tiny, queries >= 0
    padding = None if bool(asks.all()) else asks[:, None, :, None].to(values.device)
    found = []
    for part in portions(values):
        flat = (part if padding is None else part * padding).flatten(3)
        found.append((flat @ flat.clamp_min(tiny).log2_().mT).sum(1).double())
    return torch.cat(found) / -int(asks.sum())


class Latest:
    """The answer about the probabilities that were asked about last: two questions ask for the same."""

    def __init__(self) -> None:
        self.values: Callable[[], Tensor | None] = lambda: None
        self.what: Hashable = None
        self.answer = torch.empty(0)

    def __call__(self, values: Tensor, what: Hashable, find: Callable[[], Tensor]) -> Tensor:
        if self.values() is not values or self.what != what:
            self.answer, self.values, self.what = find(), ref(values), what
        return self.answer


latest_sums, latest_entropies = Latest(), Latest()


def mean_distance(
    geometry: AttentionGeometry, values: Tensor, renormalise: bool = True
) -> tuple[Tensor, Tensor]:
    """`AttentionGeometry.mean_distance` of `values`, whose sums are computed once for all probes."""
    sums = latest_sums(values, geometry.extent, lambda: geometry.sums(values))
    return geometry.mean_distance(sums, renormalise)


def latest_cross_entropy(seen: AttentionMap) -> Tensor:
    """`cross_entropy`, found once for all who ask."""
    return latest_entropies(seen.values, None, lambda: cross_entropy(seen.values, seen.queries))


def uniform_attention(seen: AttentionMap, unit: Unit, image: int) -> AttentionMap:
    """Equal attention to all keys that a query may attend to. Which those are shows in one image where a mask may be:
    windows that were rolled over the border of the image hold pairs that never see each other."""
    values = seen.values[image]
    may = (
        torch.ones_like(values[:, 0])
        if unit.reach == "global"
        else (values.amax(1) > MASKED).to(values.dtype)
    )
    return AttentionMap((may / may.sum(-1, keepdim=True).clamp_min(1))[None, :, None], seen.places)


class PerHead(PerImage):
    """A number for every head of every attention unit, beside what it would be under uniform attention."""

    sites = ("attention",)
    axes = (Column("head", "order", "The head."),)
    beside: ClassVar[tuple[Column, ...]] = ()
    """Columns of what is averaged along with the value."""

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        self.geometries: dict[str, AttentionGeometry] = {}

    def unsuited(self, subject: Subject) -> str:
        return without_attention(subject)

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        return why_hidden(unit)

    @abstractmethod
    def measures(self, subject: Subject, unit: Unit, seen: AttentionMap) -> dict[str, Tensor]:
        """(b, heads) of `value`, and of the columns beside it."""

    def values(self, subject: Subject, unit: Unit, sites: Sites) -> Tensor:
        assert sites.attention is not None
        return self.measures(subject, unit, sites.attention.probabilities)["value"]

    def geometry(
        self, subject: Subject, unit: Unit, seen: AttentionMap, extent: tuple[float, float]
    ) -> AttentionGeometry:
        """Made once for every unit."""
        name = sum_key(subject, unit)
        if name not in self.geometries:
            self.geometries[name] = AttentionGeometry.of(seen.places, extent, seen.values)
        return self.geometries[name]

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Updates:
        if sites.attention is None:  # an edit has taken it out
            return {}
        seen = sites.attention.probabilities
        found: dict[str, Tensor | PerImageValues] = {}
        if (first := (batch.rows == 0).nonzero()).numel():
            even = uniform_attention(seen, unit, int(first[0, 0]))
            found[sum_key(subject, unit, "uniform")] = self.measures(subject, unit, even)["value"][
                0, 0
            ]
        for name, values in self.measures(subject, unit, seen).items():
            found[sum_key(subject, unit, "" if name == "value" else name)] = PerImageValues(values)
        return found

    def answer(self, sums: Mapping[str, Tensor], asked: Sequence[Subject]) -> Result:
        label, measure = self.value[0].label, self.value[0].measure
        columns = (
            *UNIT_COLUMNS,
            *self.axes,
            Column("rank", "order", "Rank of the head in its unit by value, 1 for the smallest."),
            Column(
                "uniform", "quantity", "Value under uniform attention.", measure, f"{label}, uniform"
            ),
            Column(
                "relative", "quantity", "Value over that of uniform attention.", "",
                f"{label} / uniform",
            ),
            Column(
                "mean", "quantity", "Mean over the heads of the unit.", measure,
                f"{label}, mean over heads",
            ),
            Column("mean_low", "quantity", "Lower end of its 95 % interval.", measure),
            Column("mean_high", "quantity", "Upper end of its 95 % interval.", measure),
            *self.beside,
            *self.value,
        )  # fmt: skip
        table, replicates = tabulate(self.rows(sums, asked), columns)
        views = _with_uniform(self.views, table)
        return Result(self.name, table, columns, views, replicates=replicates)

    def _rows(
        self, subject: Subject, unit: Unit, sums: Mapping[str, Tensor]
    ) -> Iterator[dict[str, Any]]:
        name = sum_key(subject, unit)
        total, count = (sums[f"{name}/{part}"].numpy() for part in ("sum", "count"))
        with np.errstate(invalid="ignore", divide="ignore"):
            over_heads = (total / count).mean(-1)
        over_heads = estimated(over_heads, int(count[0].max(initial=0)))
        uniform = float(sums.get(f"{name}/uniform", torch.tensor(torch.nan)))
        averages = {
            column.name: mean_over_images(sums, f"{name}/{column.name}")[0].value
            for column in self.beside
        }
        rows = list(super()._rows(subject, unit, sums))
        order = np.argsort([row["value"].value for row in rows], kind="stable")  # NaN comes last
        ranks = np.argsort(order) + 1
        for head, row in enumerate(rows):
            yield {
                **row,
                "rank": int(ranks[head]),
                "uniform": uniform,
                "relative": float(row["value"].value) / uniform if uniform > 0 else np.nan,
                "mean": over_heads,
                **{column: values[head] for column, values in averages.items()},
            }


def _with_uniform(views: Sequence[View], table: pd.DataFrame) -> tuple[View, ...]:
    """The views, with uniform attention as a line where it is one number, to a percent, for all units of a model."""
    found: dict[float, list[str]] = {}
    for model, rows in table.groupby("model", sort=False):
        values = rows["uniform"].dropna()
        if len(values) and values.max() < 1.01 * values.min():
            found.setdefault(round(float(values.iloc[0]), 3), []).append(str(model))
    alike = sum(map(len, found.values())) == table["model"].nunique() and len(found) == 1
    lines = tuple(
        Reference(value, "uniform attention" if alike else f"uniform, {', '.join(models)}")
        for value, models in found.items()
    )
    return tuple(
        replace(view, references=(*view.references, *lines))
        if view.y in ("value", "mean") and (alike or not view.facet)
        else view
        for view in views
    )
