"""CKA of local and global heads with the early units of a convolutional model.

The heads of the first attention unit are sorted by attention distance, and a window slides over
them, from the most local to the most global. The features of a head are its output, probabilities
times values, before the heads are mixed: its channels of the site 'hidden', including prefix
tokens. The features of a window are those of its heads, concatenated. So its Gram matrix is the sum
of theirs, and

    HSIC(window, L) = Σ_h HSIC(K_h, L),   HSIC(window, window) = Σ_h Σ_g HSIC(K_h, K_g)

so that heads can be sorted after the pass over all images. They are compared with the first units
of the convolutional models: three of the first stage with convolutions, two of the next. Raghu et
al. find that CKA falls as heads get more global. HSIC is unbiased, over minibatches.
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
"""Numbers of units to compare in the first two stages: Raghu et al. use block 1, units 1 to 3, and
block 2, units 1 and 2."""
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
    """The channels of each head, as vectors (heads, b, d)."""
    tokens = feature.tokens
    return tokens.unflatten(-1, (heads, -1)).permute(2, 0, 1, 3).flatten(2)


def window_cka(
    cross: np.ndarray, among: np.ndarray, units: np.ndarray, windows: Sequence[np.ndarray]
) -> np.ndarray:
    """CKA (R, windows, E) of windows of heads with units.

    Parameters
    ----------
    cross, among, units
        HSIC of heads with units (R, H, E), heads with heads (R, H, H), and units with themselves
        (R, E).
    windows
        Numbers of the heads in each window.
    """
    values = []
    for heads in windows:
        norms = among[:, heads][:, :, heads].sum((1, 2))[:, None] * units
        values.append(cross[:, heads].sum(1) / np.sqrt(np.where(norms > 0, norms, np.nan)))
    return np.stack(values, 1)


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
            way = "From the heads that attend nearest to those that attend farthest,"
            if not falls and not rises:
                yield (
                    f"{way} the mean CKA with early convolutions changes in none of "
                    f"{len(changes)} pairs of models by more than its interval."
                )
                return
            yield (
                f"{way} the mean CKA with early convolutions falls in {falls} of {len(changes)} "
                f"pairs of models and rises in {rises}."
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
        if not early_units(subject) and (why := _cannot_compare(subject, self.window)):
            return why
        if all(_cannot_compare(s, self.window) for s in self.setting.subjects):
            return "It takes a model with several heads of attention too, and none is inspected."
        if not any(early_units(s) for s in self.setting.subjects):
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
        if sites.hidden is None or sites.attention is None:  # an edit has removed it
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
            for u in _compared_units(s)
        ]
        of_convolutions = [grams for _, u, grams in units if u.kind != "attention" and grams]
        if not of_convolutions:
            return sums
        for subject, unit, grams in units:
            name = sum_key(subject, unit, "hsic")
            for number, heads in enumerate(grams if unit.kind == "attention" else ()):
                stacked = torch.cat([heads, *(grams[number] for grams in of_convolutions)])
                weights = columns(shard.on(stacked.device, "weights"), chosen[number])
                hsic = weighted_hsic(stacked, stacked, weights)
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
        of_units = np.einsum("rii->ri", hsic)[:, heads:]
        cka = window_cka(hsic[:, :heads, heads:], hsic[:, :heads, :heads], of_units, windows)
        value = estimated(doubled(cka), count)
        units = [(s, u) for s in self.setting.subjects for u in early_units(s)]
        for index in np.ndindex(value.value.shape):
            chosen, (other, early) = windows[index[0]], units[index[1]]
            yield {
                **where(subject, unit),
                "window": index[0],
                "heads": ", ".join(map(str, chosen)),
                "distance": float(distance[chosen].mean()),
                "other_model": other.name,
                "other_unit": early.name,
                "other_stage": early.stage,
                "other_depth": early.depth,
                "pair": f"{subject.name} × {other.name}",
                "value": value[index],
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
    units: list[Unit] = []
    for stage, count in zip(stages, EARLY, strict=False):
        units += [unit for unit in convolutions if unit.stage == stage][:count]
    return tuple(units)


def _compared_units(subject: Subject) -> tuple[Unit, ...]:
    unit = first_attention(subject)
    return early_units(subject) if unit is None else (unit,)


def _cannot_compare(subject: Subject, window: int | None) -> str:
    """Why the heads of a model cannot be compared, as a sentence; empty if they can."""
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
