"""What questions to attention share: where queries and keys lie, uniform attention to compare with, a row a head.

The specimen hands over probabilities as (images, groups, heads, queries, keys), a window being a group. They are the
largest tensors of a model, so they are read as few times as can be: by products of matrices where that is possible, and
otherwise in portions that fit into a processor's cache.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar
from weakref import ref

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitreous.measure.per_image import PerImage, mean
from vitreous.measure.probe import Batch, Each, Seen, Setting, interval, key
from vitreous.measure.subject import Subject
from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, View, tabulate
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.attention import Places
from vitreous.specimen.observe import AttentionMap, Sites

PORTION = {"cpu": 1 << 19, "cuda": 1 << 27}
"""Probabilities that are reduced at a time."""
MASKED = 1e-20
"""A pair that no head of an image gives more is masked: libraries add -100 to logits, or -inf."""

HIDDEN = {
    "channel": "It attends over channels, which have no place in the image.",
    "linear": "Its attention is linear: there are no probabilities to look at.",
    "unknown": "Where its queries and keys lie could not be told.",
}


def hidden(unit: Unit) -> str | None:
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


def portions(values: Tensor) -> Iterator[Tensor]:
    """Some images at a time, in float32 or better."""
    wide = torch.promote_types(values.dtype, torch.float32)
    size = PORTION.get(values.device.type, 1 << 19) // max(1, values.shape[1:].numel())
    return (part.to(wide) for part in values.split(max(1, size)))


def centres(
    tokens: Tensor, prefix: int, grid: Grid, extent: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Row and column of each token's middle if the grid covers `extent`; tokens without a place are put somewhere."""
    cell = (tokens - prefix).clamp_min(0).double()
    return (
        (cell.div(grid[1], rounding_mode="floor") + 0.5) * (extent[0] / grid[0]),
        (cell % grid[1] + 0.5) * (extent[1] / grid[1]),
    )


def distances(places: Places, extent: tuple[float, float]) -> Tensor:
    """(groups, queries, keys) from the middle of each query to that of each key, whichever grids they lie on; zero to
    keys that have no place. In pixels if `extent` is the image's, in patches if it is the grid of the queries."""
    rows, columns = centres(places.queries, places.prefix, places.query_grid, extent)
    down, right = centres(places.keys, places.prefix, places.key_grid, extent)
    apart = torch.hypot(
        rows[:, :, None] - down[:, None, :], columns[:, :, None] - right[:, None, :]
    )
    return apart * (places.keys >= places.prefix)[:, None, :]


def averaged(per_query: Tensor, queries: Tensor) -> Tensor:
    """(b, heads) mean over some `queries`, an index into all of them, of (b, groups, heads, queries)."""
    chosen = per_query.transpose(1, 2).flatten(2).index_select(2, queries)
    return chosen.double().nanmean(-1)


@dataclass(frozen=True)
class Geometry:
    """Distances of one unit's attention, on the device of its probabilities."""

    weights: Tensor
    """(groups, queries, 2, keys): distances, and 1 for keys that have a place."""
    asking: Tensor
    """Queries that have a place, as an index into all of them."""
    extent: tuple[float, float]
    """What the grid covers, as `weights` measures it."""
    scale: float
    """What distances are still to be multiplied by: where patches are square, `weights` is in patches, so that those
    who ask in pixels and those who ask in patches ask for the same sums."""

    @classmethod
    def of(cls, places: Places, extent: tuple[float, float], like: Tensor) -> Geometry:
        down, right = (
            length / cells for length, cells in zip(extent, places.query_grid, strict=True)
        )
        scale = down if down == right else 1.0
        extent = (extent[0] / scale, extent[1] / scale)
        apart = distances(places, extent)
        placed = (places.keys >= places.prefix)[:, None, :].expand_as(apart).double()
        return cls(
            torch.stack([apart, placed], 2).to(
                like.device, torch.promote_types(like.dtype, torch.float32)
            ),
            (places.queries >= places.prefix).flatten().nonzero()[:, 0].to(like.device),
            extent,
            scale,
        )

    def sums(self, values: Tensor) -> Tensor:
        """(b, groups, heads, queries, 2) of attention times distance, and of attention to keys that have a place."""
        batch, groups, heads, queries, keys = values.shape
        if groups == 1:  # one small product for each query, five times as fast as what follows
            columns = (
                values.to(self.weights.dtype).reshape(batch * heads, queries, keys).permute(1, 2, 0)
            )
            return (
                torch.bmm(self.weights[0], columns)
                .permute(2, 0, 1)
                .reshape(batch, 1, heads, queries, 2)
            )
        weights = self.weights[:, None].unbind(3)
        return torch.cat(
            [torch.stack([(part * w).sum(-1) for w in weights], -1) for part in portions(values)]
        )

    def mean_distance(self, values: Tensor, renormalise: bool = True) -> tuple[Tensor, Tensor]:
        """(b, heads) Σ A·d, mean over queries, with rows that sum to one over keys that have a place or as they are;
        and the share of attention that goes to keys that have none."""
        moment, mass = latest_sums(values, self.extent, lambda: self.sums(values)).unbind(-1)
        found = averaged(moment / mass if renormalise else moment, self.asking)
        return self.scale * found, 1 - averaged(mass, self.asking)


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


def latest_cross_entropy(seen: AttentionMap) -> Tensor:
    """`cross_entropy`, found once for all who ask."""
    return latest_entropies(seen.values, None, lambda: cross_entropy(seen.values, seen.queries))


def uniform(seen: AttentionMap, unit: Unit, image: int) -> AttentionMap:
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
        self.geometries: dict[str, Geometry] = {}

    def unsuited(self, subject: Subject) -> str:
        return without_attention(subject)

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        return hidden(unit)

    @abstractmethod
    def measures(self, subject: Subject, unit: Unit, seen: AttentionMap) -> dict[str, Tensor]:
        """(b, heads) of `value`, and of the columns beside it."""

    def values(self, subject: Subject, unit: Unit, sites: Sites) -> Tensor:
        assert sites.attention is not None
        return self.measures(subject, unit, sites.attention.probabilities)["value"]

    def geometry(
        self, subject: Subject, unit: Unit, seen: AttentionMap, extent: tuple[float, float]
    ) -> Geometry:
        """Made once for every unit."""
        name = key(subject, unit)
        if name not in self.geometries:
            self.geometries[name] = Geometry.of(seen.places, extent, seen.values)
        return self.geometries[name]

    def see(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Seen:
        if sites.attention is None:  # an edit has taken it out
            return {}
        seen = sites.attention.probabilities
        found: dict[str, Tensor | Each] = {}
        if (first := (batch.rows == 0).nonzero()).numel():
            even = uniform(seen, unit, int(first[0, 0]))
            found[key(subject, unit, "uniform")] = self.measures(subject, unit, even)["value"][0, 0]
        for name, values in self.measures(subject, unit, seen).items():
            found[key(subject, unit, "" if name == "value" else name)] = Each(values)
        return found

    def answer(self, sums: Mapping[str, Tensor], asked: Sequence[Subject]) -> Result:
        table, replicates = tabulate(
            self.rows(sums, asked), (*UNIT_COLUMNS, *self.axes, *self.value)
        )
        units = [
            self._beside(key(s, u), sums)
            for s in asked
            for u in s.specimen.units
            if key(s, u, "sum") in sums
        ]
        for name in units[0] if units else ():
            table[name] = np.concatenate(
                [unit[name] for unit in units]
            )  # rows are in the order of the units
        table["relative"] = table["value"] / table["uniform"].where(table["uniform"] > 0)
        ranks = table.groupby(["model", "unit"], sort=False)["value"].rank(
            method="first", na_option="bottom"
        )
        table["rank"] = ranks.astype(int)
        label, measure = self.value[0].label, self.value[0].measure
        columns = (
            *UNIT_COLUMNS,
            *self.axes,
            Column(
                "rank",
                "order",
                "Place of the head among those of its unit by value, 1 for the smallest.",
            ),
            Column(
                "uniform",
                "quantity",
                "The value under uniform attention.",
                measure,
                f"{label}, uniform",
            ),
            Column(
                "relative",
                "quantity",
                "Value relative to that of uniform attention.",
                "",
                f"{label} / uniform",
            ),
            Column(
                "mean",
                "quantity",
                "Mean over the heads of the unit.",
                measure,
                f"{label}, mean over heads",
            ),
            Column("mean_low", "quantity", "Lower end of its 95 % interval.", measure),
            Column("mean_high", "quantity", "Upper end of its 95 % interval.", measure),
            *self.beside,
            *self.value,
        )
        return Result(
            self.name, table, columns, _referred(self.views, table), replicates=replicates
        )

    def _beside(self, name: str, sums: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        """(heads,) of what stands beside the values of a unit, also where it is the same for all heads."""
        total, count = (sums[f"{name}/{part}"].numpy() for part in ("sum", "count"))
        with np.errstate(invalid="ignore", divide="ignore"):
            over = interval((total / count).mean(-1), int(count[0].max(initial=0)))
        found = {"mean": over.mean, "mean_low": over.low, "mean_high": over.high}
        found["uniform"] = (
            sums[f"{name}/uniform"].numpy() if f"{name}/uniform" in sums else np.array(np.nan)
        )
        found |= {
            column.name: mean(sums, f"{name}/{column.name}")[0].value for column in self.beside
        }
        return {column: np.broadcast_to(value, count.shape[1:]) for column, value in found.items()}


def _referred(views: Sequence[View], table: pd.DataFrame) -> tuple[View, ...]:
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
