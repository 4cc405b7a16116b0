"""CKA of local and global heads with the early units of a convolutional model.

The heads of the first attention unit are sorted by attention distance, and a window slides over
them, from the most local to the most global. What a head contributes is its attention output,
probabilities times values, before the heads are mixed: the channels of the site 'hidden', which are
the heads side by side, prefix tokens included. A window's features are those of its heads,
concatenated, so its Gram matrix is the sum of theirs, and

    HSIC(window, L) = Σ_h HSIC(K_h, L),   HSIC(window, window) = Σ_h Σ_g HSIC(K_h, K_g)

so that heads can be sorted when all images have been seen. They are compared with the first units
of the convolutional models: three of the first stage with convolutions, two of the next. Raghu et
al. find that CKA falls as heads get more global. HSIC is the unbiased one, a shard is a minibatch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.alignment import Grams, columns, doubled, minibatches, vectors, weighted_hsic
from vitreous.measure.cka_views import has_many_pairs
from vitreous.measure.heads import mean_distance, why_hidden
from vitreous.measure.per_image import mean_over_images
from vitreous.measure.probe import (
    Batch,
    PerImageValues,
    Probe,
    Setting,
    Sums,
    Updates,
    estimated,
    sum_key,
    where,
)
from vitreous.measure.probes.cka import about_copies, too_few
from vitreous.measure.probes.localisation import MINIBATCH
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import UNIT_COLUMNS, Column, Result, View, estimate, tabulate
from vitreous.results.comparing import bold, disjoint
from vitreous.results.intervals import Interval
from vitreous.results.words import format_estimate, plural
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.attention_geometry import AttentionGeometry
from vitreous.specimen.observe import Feature, Sites

__all__ = ["LocalHeads"]

EARLY = (3, 2)
"""Units of the first stages of a convolutional model: block 1, units 1 to 3, and block 2, units 1
and 2."""
COLUMNS = (
    *UNIT_COLUMNS,
    Column("window", "order", "Number of the window, 0 for the most local heads."),
    Column("heads", "category", "Numbers of its heads, from the most local to the most global."),
    Column("distance", "quantity", "Mean attention distance of its heads.", "pixels"),
    Column("other_model", "category", "The convolutional model."),
    Column("other_unit", "order", "The unit of the convolutional model, by its module path."),
    Column("other_stage", "order", "Stage of that unit."),
    Column("other_depth", "quantity", "Depth of that unit."),
    Column("pair", "category", "Names of both models."),
    *estimate("Centred kernel alignment of the output of the heads with the unit.", label="CKA"),
)
MATRIX = View(
    "heatmap",
    x="other_model",
    y="model",
    colour="value",
    matrix=True,
    opens="pair",
    title="Heads and early convolutions of every two models (mean CKA)",
    how_to_read="Each cell is the mean CKA of the heads of one model's first attention unit with "
    "the early units of a convolutional model. The next chart has every pair.",
)
VIEW = View(
    "line",
    x="distance",
    y="value",
    colour="other_unit",
    facet="pair",
    low="low",
    high="high",
    title="Local heads and early convolutions",
    how_to_read="Each point is a few heads of the first attention layer: how far they look, and "
    "how similar what they compute is to an early convolutional unit. Where lines fall, local "
    "heads do what convolutions do and global heads do not.",
)


def per_head(feature: Feature, heads: int) -> Tensor:
    """(heads, b, d) the channels that belong to each head."""
    tokens = feature.tokens
    return tokens.unflatten(-1, (heads, -1)).permute(2, 0, 1, 3).flatten(2)


def slid(
    cross: np.ndarray, among: np.ndarray, other: np.ndarray, windows: Sequence[np.ndarray]
) -> np.ndarray:
    """(R, windows, E) CKA from HSICs of heads with units (R, H, E), heads with heads (R, H, H) and
    of units (R, E)."""
    found = []
    for chosen in windows:
        own = among[:, chosen][:, :, chosen].sum((1, 2))[:, None] * other
        found.append(cross[:, chosen].sum(1) / np.sqrt(np.where(own > 0, own, np.nan)))
    return np.stack(found, 1)


@dataclass
class LocalHeads(Probe):
    """CKA of heads with early convolutional units."""

    window: int | None = None
    """Heads per window (default: a third of all, rounded up)."""

    name = "local_heads"
    ids = ("A4.25", "SLC-13")
    section = Section(
        "attention",
        "Are local heads similar to convolutions?",
        "The heads of the first attention unit, from nearest to farthest, compared with the early "
        "units of a convolutional network.",
        "The nearer a head attends, the more similar it is to early ResNet units: CKA between "
        "0.25 and 0.60, falling with distance (Raghu et al. 2021, Fig. 5).",
        order=7,
    )
    sites = ("hidden", "attention", "out")

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise VitreousError(
                f"Windows of {self.window} heads were asked for; they have at least one."
            )
        self.grams = Grams("unbiased", MINIBATCH)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        changes = []
        for _, rows in result.table.dropna(subset="value").groupby("pair", sort=False):
            means = rows.groupby("window", observed=True)[["value", "low", "high"]].mean()
            local, distant = (
                Interval(*map(float, means.loc[w])) for w in (means.index[0], means.index[-1])
            )
            changes.append((rows.iloc[0], local, distant))
        if len(changes) == 1:
            [(row, local, distant)] = changes
            tied = "" if disjoint(local, distant) else "; the intervals overlap"
            yield (
                f"The mean CKA with early units of {bold(row['other_model'])} is "
                f"{format_estimate(*local)} for the heads of {bold(row['model'])} that attend "
                f"nearest and {format_estimate(*distant)} for those that attend farthest{tied}."
            )
        elif changes:
            falls = sum(distant.high < local.low for _, local, distant in changes)
            rises = sum(local.high < distant.low for _, local, distant in changes)
            yield (
                "From the heads that attend nearest to those that attend farthest, the mean CKA "
                f"with early convolutions falls in {falls} of {len(changes)} pairs of models and "
                f"rises in {rises}."
            )

    @property
    def shard_multiple(self) -> int:
        return MINIBATCH

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        self.geometries: dict[str, AttentionGeometry] = {}

    def unsuited(self, subject: Subject) -> str:
        if why := too_few(len(self.setting.data), "unbiased"):
            return why
        if not early_units(subject) and (why := _why_not(subject, self.window)):
            return why
        if all(_why_not(each, self.window) for each in self.setting.subjects):
            return "It takes a model with several heads of attention too, and none is inspected."
        if not any(early_units(each) for each in self.setting.subjects):
            return "It takes a convolutional model without attention too, and none is inspected."
        return ""

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        return None if unit in early_units(subject) or unit == first_attention(subject) else ""

    def start_shard(self) -> None:
        self.grams = Grams("unbiased", MINIBATCH)

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Updates:
        name = sum_key(subject, unit)
        if unit.kind != "attention":
            assert sites.out is not None
            self.grams.add(
                name, vectors(sites.out)[None], batch.full_shard, self.setting.distinct[batch.rows]
            )
            return {}
        if sites.hidden is None or sites.attention is None:  # an edit has taken it out
            return {}
        assert unit.heads is not None
        self.grams.add(
            name,
            per_head(sites.hidden, unit.heads),
            batch.full_shard,
            self.setting.distinct[batch.rows],
        )
        values = sites.attention.probabilities.values
        if name not in self.geometries:
            _, *extent = subject.specimen.anatomy.image
            self.geometries[name] = AttentionGeometry.of(
                sites.attention.places, (extent[0], extent[1]), values
            )
        distance, _ = mean_distance(self.geometries[name], values)
        return {sum_key(subject, unit, "distance"): PerImageValues(distance)}

    def end_shard(self, shard: Batch) -> Sums:
        chosen = minibatches(self.setting.distinct[shard.rows], MINIBATCH, "unbiased")
        sums: Sums = {"images": torch.tensor(float(sum(map(len, chosen))))}
        units = [
            (s, u, self.grams.take(sum_key(s, u)))
            for s in self.setting.subjects
            for u in _looked_at(s)
        ]
        others = [grams for _, u, grams in units if u.kind != "attention" and grams]
        if not others:
            return sums
        for subject, unit, grams in units:
            name = sum_key(subject, unit, "hsic")
            for number, heads in enumerate(grams if unit.kind == "attention" else ()):
                every = torch.cat([heads, *(theirs[number] for theirs in others)])
                weights = columns(shard.on(every.device, "weights"), chosen[number])
                hsic = weighted_hsic(every, every, weights)
                sums[name] = sums[name] + hsic if name in sums else hsic
        return sums

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        rows = [
            row
            for subject in subjects
            if (unit := first_attention(subject)) is not None
            and sum_key(subject, unit, "hsic") in sums
            for row in self._rows(subject, unit, sums)
        ]
        table, replicates = tabulate(rows, COLUMNS)
        for column in COLUMNS:
            if column.kind == "quantity":
                table[column.name] = table[column.name].astype(
                    float if column.name != "n" else np.int64
                )
        return Result(
            self.name,
            table,
            COLUMNS,
            (MATRIX, VIEW) if has_many_pairs(table) else (VIEW,),
            about=about_copies(self.setting),
            replicates=replicates,
        )

    def _rows(
        self, subject: Subject, unit: Unit, sums: Mapping[str, Tensor]
    ) -> Iterator[dict[str, Any]]:
        assert unit.heads is not None
        heads, count = unit.heads, int(sums["images"])
        distance = np.asarray(mean_over_images(sums, sum_key(subject, unit, "distance"))[0].value)
        order = np.argsort(distance, kind="stable")
        size = self.window or -(-heads // 3)
        windows = [order[start : start + size] for start in range(heads - size + 1)]
        hsic = sums[sum_key(subject, unit, "hsic")].numpy()
        own = np.einsum("rii->ri", hsic)[:, heads:]
        found = estimated(
            doubled(slid(hsic[:, :heads, heads:], hsic[:, :heads, :heads], own, windows)), count
        )
        others = [(s, u) for s in self.setting.subjects for u in early_units(s)]
        for place in np.ndindex(found.value.shape):
            chosen, (other, early) = windows[place[0]], others[place[1]]
            yield {
                **where(subject, unit),
                "window": place[0],
                "heads": ", ".join(map(str, chosen)),
                "distance": float(distance[chosen].mean()),
                "other_model": other.name,
                "other_unit": early.name,
                "other_stage": early.stage,
                "other_depth": early.depth,
                "pair": f"{subject.name} × {other.name}",
                "value": found[place],
                "n": count,
            }


def first_attention(subject: Subject) -> Unit | None:
    return next((unit for unit in subject.specimen.units if unit.kind == "attention"), None)


def early_units(subject: Subject) -> tuple[Unit, ...]:
    """The first convolutional units of a model that has convolutions and no attention."""
    convolutions = [unit for unit in subject.specimen.units if unit.kind == "conv"]
    if first_attention(subject) is not None:
        return ()
    stages = list(dict.fromkeys(unit.stage for unit in convolutions))
    found = [
        [unit for unit in convolutions if unit.stage == stage][:count]
        for stage, count in zip(stages, EARLY, strict=False)
    ]
    return tuple(unit for part in found for unit in part)


def _looked_at(subject: Subject) -> tuple[Unit, ...]:
    unit = first_attention(subject)
    return early_units(subject) if unit is None else (unit,)


def _why_not(subject: Subject, window: int | None) -> str:
    """Why the heads of a model cannot be slid over; empty if they can."""
    unit = first_attention(subject)
    if unit is None:
        return "It has neither attention nor convolutions to compare."
    if why := why_hidden(unit):
        return why
    if unit.reach == "class":
        return (
            "Only tokens without a place attend in its first attention unit: there is no distance."
        )
    least = (window or 1) + 1
    if (unit.heads or 0) < least:
        heads = plural(unit.heads, "head") if unit.heads else "no known number of heads"
        return f"Its first attention unit has {heads}; it takes {least} to compare."
    return ""
