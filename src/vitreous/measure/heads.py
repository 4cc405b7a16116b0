"""Base class of probes of attention: one row per head, compared with uniform attention.

Attention probabilities have the shape (images, groups, heads, queries, keys); a window is a group.
They are the largest tensors of a model, so they are read as few times as possible: by matrix
products, or else in portions that fit into the cache.
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
from vitreous.results.names import short_names
from vitreous.results.words import plural
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.attention_geometry import AttentionGeometry, portions
from vitreous.specimen.observe import AttentionMap, Sites

LABEL = 28
"""Maximum number of characters for the names beside a line of reference."""
MASKED = 1e-20
"""A query cannot attend to a key if no head gives it more: masks add -100 or -inf to logits."""

HIDDEN = {
    "channel": "It attends over channels, which have no place in the image.",
    "linear": "Its attention is linear: there are no probabilities to observe.",
    "unknown": "Where its queries and keys lie could not be determined.",
}


def why_hidden(unit: Unit) -> str | None:
    """None if a unit has attention probabilities; otherwise why not, as a sentence.

    The sentence is empty for units that are not attention.
    """
    if unit.kind != "attention":
        return ""
    if unit.weights == "signed" or (unit.reach == "unknown" and unit.reason):
        return unit.reason
    return HIDDEN.get(unit.reach or "unknown")


def without_attention(subject: Subject) -> str:
    """Why a model does not suit probes of attention; empty if it has attention."""
    attends = any(unit.kind == "attention" for unit in subject.specimen.units)
    return "" if attends else "It has no attention."


def cross_entropy(values: Tensor, queries: Tensor) -> Tensor:
    """Cross entropy −Σ A_g log₂ A_h of any two heads g and h, (b, heads, heads), in bits.

    Mean over queries, without padding. The diagonal holds the entropies. All pairs are one matrix
    product. Zero counts as the smallest normal number of float32.
    """
    tiny, is_token = torch.finfo(torch.float32).tiny, queries >= 0
    padding = None if bool(is_token.all()) else is_token[:, None, :, None].to(values.device)
    entropies = []
    for part in portions(values):
        flat = (part if padding is None else part * padding).flatten(3)
        entropies.append((flat @ flat.clamp_min(tiny).log2_().mT).sum(1).double())
    return torch.cat(entropies) / -int(is_token.sum())


class _LastComputed:
    """A cache with one entry, because consecutive probes need the same numbers of a unit.

    It refers to the attention probabilities weakly, so that they are freed after the unit.
    """

    def __init__(self) -> None:
        self.values: Callable[[], Tensor | None] = lambda: None
        self.key: Hashable = None
        self.computed = torch.empty(0)

    def __call__(self, values: Tensor, key: Hashable, compute: Callable[[], Tensor]) -> Tensor:
        if self.values() is not values or self.key != key:
            self.computed, self.values, self.key = compute(), ref(values), key
        return self.computed


_last_sums, _last_entropies = _LastComputed(), _LastComputed()


def mean_distance(
    geometry: AttentionGeometry, values: Tensor, renormalise: bool = True
) -> tuple[Tensor, Tensor]:
    """`AttentionGeometry.mean_distance` of `values`, with sums that all probes share."""
    sums = _last_sums(values, geometry.extent, lambda: geometry.sums(values))
    return geometry.mean_distance(sums, renormalise)


def shared_cross_entropy(attention: AttentionMap) -> Tensor:
    """`cross_entropy` of attention, which all probes share."""
    values = attention.values
    return _last_entropies(values, None, lambda: cross_entropy(values, attention.queries))


def uniform_attention(attention: AttentionMap, unit: Unit, image: int) -> AttentionMap:
    """Equal attention to all keys that a query may attend to.

    Which keys these are is read from the attention of one image, number `image` of the batch:
    shifted windows contain positions from opposite borders, which are masked from each other.
    """
    values = attention.values[image]
    allowed = torch.ones_like(values[:, 0])
    if unit.reach != "global":
        allowed = (values.amax(1) > MASKED).to(values.dtype)
    uniform = allowed / allowed.sum(-1, keepdim=True).clamp_min(1)
    return AttentionMap(uniform[None, :, None], attention.places)


class PerHead(PerImage):
    """A probe with one number per head, compared with its value for uniform attention."""

    sites = ("attention",)
    axes = (Column("head", "order", "Number of the head."),)
    extra: ClassVar[tuple[Column, ...]] = ()
    """Columns of further numbers from `measures`, averaged over images like the value."""

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        self.geometries: dict[str, AttentionGeometry] = {}

    def unsuited(self, subject: Subject) -> str:
        return without_attention(subject)

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        return why_hidden(unit)

    @abstractmethod
    def measures(self, subject: Subject, unit: Unit, attention: AttentionMap) -> dict[str, Tensor]:
        """Return `value` and the columns in `extra` of every head, (b, heads) each."""

    def values(self, subject: Subject, unit: Unit, sites: Sites) -> Tensor:
        assert sites.attention is not None
        return self.measures(subject, unit, sites.attention.probabilities)["value"]

    def geometry(
        self, subject: Subject, unit: Unit, attention: AttentionMap, extent: tuple[float, float]
    ) -> AttentionGeometry:
        """Distances between queries and keys of a unit; computed only once."""
        name = sum_key(subject, unit)
        if name not in self.geometries:
            self.geometries[name] = AttentionGeometry.of(attention.places, extent, attention.values)
        return self.geometries[name]

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Updates:
        if sites.attention is None:  # an edit has removed it
            return {}
        attention = sites.attention.probabilities
        updates: dict[str, Tensor | PerImageValues] = {}
        first = (batch.rows == 0).nonzero()
        if first.numel():
            uniform = uniform_attention(attention, unit, int(first[0, 0]))
            value = self.measures(subject, unit, uniform)["value"]
            updates[sum_key(subject, unit, "uniform")] = value[0, 0]
        for name, values in self.measures(subject, unit, attention).items():
            what = "" if name == "value" else name
            updates[sum_key(subject, unit, what)] = PerImageValues(values)
        return updates

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        label, measure = self.value[0].label, self.value[0].measure
        columns = (
            *UNIT_COLUMNS,
            *self.axes,
            Column("rank", "order", "Rank of the head in its unit by value, 1 for the smallest."),
            Column(
                "uniform", "quantity", "Value under uniform attention.", measure,
                f"{label}, uniform",
            ),
            Column(
                "relative", "quantity", "Value divided by that of uniform attention.", "",
                f"{label} / uniform",
            ),
            Column(
                "mean", "quantity", "Mean over the heads of the unit.", measure,
                f"mean {label}",
            ),
            Column("mean_low", "quantity", "Lower end of its 95 % interval.", measure),
            Column("mean_high", "quantity", "Upper end of its 95 % interval.", measure),
            *self.extra,
            *self.value,
        )  # fmt: skip
        table, replicates = tabulate(self.rows(sums, subjects), columns)
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
            for column in self.extra
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


def _names_or_count(models: Sequence[str]) -> str:
    """One or two names, or else the number of models, as a label in a small chart."""
    names = ", ".join(short_names(models).values())
    return names if len(models) < 3 and len(names) <= LABEL else plural(len(models), "model")


def _with_uniform(views: Sequence[View], table: pd.DataFrame) -> tuple[View, ...]:
    """Add reference lines at the value of uniform attention to the views.

    A model gets a line if the value is the same for all of its units, to one per cent.
    """
    exact: dict[float, float] = {}
    models_at: dict[float, list[str]] = {}
    for model, rows in table.groupby("model", sort=False):
        values = rows["uniform"].dropna()
        if len(values) and values.max() < 1.01 * values.min():
            value = float(values.iloc[0])
            same = exact.setdefault(round(value, 3), value)  # rounded, heads may lie beyond it
            models_at.setdefault(same, []).append(str(model))
    with_line = sum(map(len, models_at.values()))
    one_line = len(models_at) == 1 and with_line == table["model"].nunique()
    lines = tuple(
        Reference(value, "uniform attention" if one_line else f"uniform, {_names_or_count(models)}")
        for value, models in models_at.items()
    )
    changed = []
    for view in views:
        if view.y in ("value", "mean") and (one_line or not view.facet):
            view = replace(view, references=(*view.references, *lines))
        changed.append(view)
    return tuple(changed)
