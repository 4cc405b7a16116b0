"""Centred kernel alignment (CKA) of any two units, within a model and between models.

    CKA = mean HSIC(K, L) / √(mean HSIC(K, K) · mean HSIC(L, L)),   see `vitreous.measure.alignment`

Minibatches are `minibatch` images in a row, wherever the shards of the inspection end, and count by
their images. Copies of an image are left out. All layers of all models are compared with each other
in one product of their centred Gram matrices. Gram matrices, not features, are kept of a layer
until all models have seen the shard: n × n numbers, the same for all, and nearly always fewer than
the features are. Where they are more (logits), n × n have to be formed nevertheless, because the
common product is over pairs of images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging import getLogger
from typing import Any, NamedTuple, cast, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitreous.devices import to_device
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.alignment import (
    MIN_IMAGES,
    Estimator,
    Grams,
    columns,
    doubled,
    minibatches,
    vectors,
    weighted_hsic,
)
from vitreous.measure.cka_views import cka_views
from vitreous.measure.probe import Batch, Probe, Setting, Sums, estimated, sum_key
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import REPEATS
from vitreous.measure.subject import Subject
from vitreous.results import UNIT_COLUMNS, Column, Estimate, Replicates, Result, estimate
from vitreous.results.comparing import bold, mean_by_model, pair_models, rank_models
from vitreous.results.words import format_number
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import SITES, Site, Sites

__all__ = ["CKA"]

log = getLogger("vitreous")

OWN = (
    Column(
        "site",
        "category",
        "What is compared: `out`, `branch` or another of the sites.",
    ),
    Column("layer", "order", "Name of the unit, with the site where it is not `out`."),
)
COLUMNS = (
    *UNIT_COLUMNS,
    *OWN,
    *(
        Column(
            f"other_{c.name}",
            c.kind,
            f"The same for the other layer: {c.says[0].lower()}{c.says[1:]}",
        )
        for c in (*UNIT_COLUMNS, *OWN)
    ),
    Column("pair", "category", "Name of the model, or of both models."),
    Column("within", "category", "Whether both layers belong to one model."),
    Column("across", "category", "Whether the layers belong to two models."),
    Column(
        "groups",
        "category",
        "What `block_structure` compares: `stages`, or `thirds` of a model with one stage.",
    ),
    Column(
        "block_structure",
        "quantity",
        "Mean CKA of units of one group minus that of units of two groups; one value per model.",
    ),
    Column("block_structure_low", "quantity", "Lower end of its 95 % interval."),
    Column("block_structure_high", "quantity", "Upper end of its 95 % interval."),
    *estimate(
        "Centred kernel alignment: 1 alike up to rotation and scale, 0 nothing in common.",
        label="CKA",
    ),
)
"""Groups and block structure are those of a model, the same in all rows that compare its layers."""
STRUCTURE = ("block_structure", "block_structure_low", "block_structure_high")


class Layer(NamedTuple):
    """One row and column of a heat-map."""

    subject: Subject
    unit: Unit
    site: Site

    @property
    def key(self) -> str:
        return sum_key(self.subject, self.unit, self.site)

    @property
    def name(self) -> str:
        return self.unit.name if self.site == "out" else f"{self.unit.name} ({self.site})"

    @property
    def cells(self) -> dict[str, Any]:
        """What a row says of it."""
        unit = self.unit
        place = {"unit": unit.name, "kind": unit.kind, "stage": unit.stage, "depth": unit.depth}
        return {"model": self.subject.name, **place, "site": self.site, "layer": self.name}


@dataclass
class CKA(Probe):
    """CKA of any two units."""

    estimator: Estimator = "unbiased"
    """`unbiased` (HSIC₁) or `biased` (HSIC₀)."""
    sites: tuple[Site, ...] = ("out",)
    """What to compare, any of `out` (output of the unit), `branch` (what it adds), `after` (sum of
    skip and branch), `norm` (output of its normalisation), `hidden` (hidden activations of an MLP,
    heads of attention side by side), `before` (input) and `skip`."""
    minibatch: int | None = 128
    """Images that are compared with each other; `None` compares all (full-batch CKA)."""

    name = "cka"
    ids = ("A4.10", "A4.11", "A4.12", "A4.13", "A4.24", "SLC-03", "SLC-04", "SLC-05", "HDV-39")
    section = Section(
        "representation",
        "Which units are similar?",
        "Centred kernel alignment (CKA) compares two units by how they arrange the same images: 1 "
        "where they agree on which images are alike, 0 where they have nothing in common. "
        "Rotation and scale do not matter.",
        "A ViT is uniform from its first to its last layer; a ResNet splits into stages (Raghu et "
        "al. 2021, Fig. 1; Park & Kim 2022, Fig. 10).",
        order=1,
        headline=6,
        key=1,
    )

    def __post_init__(self) -> None:
        given: Any = self.sites
        self.sites = tuple(
            cast("list[Site]", [given]) if isinstance(given, str) else given
        )  # also one by itself
        if self.estimator not in get_args(Estimator):
            raise UnknownName("estimator", self.estimator, get_args(Estimator))
        known = [site for site in SITES if site != "attention"]
        if wrong := [site for site in self.sites if site not in known]:
            raise UnknownName("site for CKA", wrong[0], known)
        if self.minibatch is not None and self.minibatch < MIN_IMAGES[self.estimator]:
            raise VitreousError(
                f"CKA ({self.estimator}) needs at least {MIN_IMAGES[self.estimator]} images a "
                f"minibatch, and {self.minibatch} were asked for; 128 are enough."
            )
        if not self.sites:
            raise VitreousError(f"CKA was asked of no site; choose among {', '.join(known)}.")
        self.grams = Grams(self.estimator, self.minibatch)

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        order = [site for site in SITES if site in self.sites]
        self.layers = [
            Layer(subject, unit, site)
            for subject in setting.subjects
            for unit in subject.specimen.units
            for site in order
        ]
        self.pairs = torch.triu_indices(len(self.layers), len(self.layers))
        warn_of_copies(setting)

    @property
    def shard_multiple(self) -> int:
        return self.minibatch or len(self.setting.data)

    def unsuited(self, subject: Subject) -> str:
        return too_few(len(self.setting.data), self.estimator)

    def start_shard(self) -> None:
        self.grams = Grams(self.estimator, self.minibatch)

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Sums:
        for site in self.sites:
            if (feature := getattr(sites, site)) is not None and len(
                found := vectors(feature)
            ) == len(batch):
                self.grams.add(
                    sum_key(subject, unit, site),
                    found,
                    batch.full_shard,
                    self.setting.distinct[batch.rows],
                )
        return {}

    def end_shard(self, shard: Batch) -> Sums:
        chosen = minibatches(self.setting.distinct[shard.rows], self.minibatch, self.estimator)
        found = [self.grams.take(layer.key) for layer in self.layers]
        seen = torch.tensor([bool(grams) for grams in found])
        sums: dict[str, Tensor] = {"left_out": torch.tensor(len(shard) - sum(map(len, chosen)))}
        home = next((grams[0].device for grams in found if grams), self.pairs.device)
        pairs = to_device(self.pairs, home)()
        for number, rows in enumerate(chosen):
            blank = next(torch.zeros_like(grams[number]) for grams in found if grams)
            every = torch.stack([grams[number] if grams else blank for grams in found])
            weights = columns(shard.on(every.device, "weights"), rows)
            hsic = weighted_hsic(every, every, weights, self.estimator, pairs)
            more = {"hsic": hsic, "seen": seen * len(rows), "shards": torch.ones(())}
            sums |= {
                name: sums[name] + value if name in sums else value for name, value in more.items()
            }
        return sums

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        if "hsic" not in sums:  # the one shard seen so far was too small
            empty = {
                c.name: pd.Series(dtype=float if c.kind == "quantity" else object) for c in COLUMNS
            }
            return Result(self.name, pd.DataFrame(empty), COLUMNS)
        seen = sums["seen"].numpy()
        count = int(seen.max())
        one, other = self.pairs.numpy()
        own = sums["hsic"].numpy()[:, one == other]
        norms = np.sqrt(np.where(own > 0, own, np.nan))
        values = doubled(sums["hsic"].numpy() / (norms[:, one] * norms[:, other]))
        reasons: dict[str, dict[str, str]] = {}
        for layer, energy, images in zip(self.layers, own[0], seen, strict=True):
            if images and not energy > 0:
                why = (
                    "It is the same for all images."
                    if energy == 0
                    else "It has values that are not finite."
                )
                reasons.setdefault(layer.subject.name, {})[layer.name] = why
        about = {
            "minibatches": int(sums["shards"]),
            "images_compared": count,
            "images_left_out": int(sums.get("left_out", torch.zeros(()))),
            **about_copies(self.setting),
            "without_value": reasons,
        }
        found = estimated(values, count)
        table, pair = _table(self.layers, seen > 0, self.pairs.numpy(), found, count)
        drawn = {
            "value": Replicates.of(
                table["value"].to_numpy(dtype=np.float64), found.replicates[:, pair].T
            )
        }
        structure = block_structure(self.layers, self.pairs.numpy(), values, count)
        drawn |= _add_block_structure(table, structure)
        views = cka_views(table)
        return Result(self.name, table, COLUMNS, views, about=about, replicates=drawn)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        models = result.table[result.table["within"]].drop_duplicates("model")
        yield rank_models(
            mean_by_model(models, STRUCTURE),
            "{model} has the clearest stages: units of one stage are more similar than units "
            "of two, by {} CKA",
            "{model} is the most uniform, {}",
            "{models} are tied on how clearly they split into stages: by {} to {} CKA",
            alone="In {model}, units of one stage are more similar than units of two, by {} CKA",
            paired=pair_models(result, models, STRUCTURE[0]),
        )
        between = result.table[result.table["across"]]
        pairs = between.groupby("pair", sort=False, observed=True)["value"].mean()
        if len(pairs) > 1:
            most, least = str(pairs.idxmax()), str(pairs.idxmin())
            yield (
                f"Of all pairs of models, {bold(most)} are the most similar (mean CKA "
                f"{format_number(pairs.max(), 2)} over all pairs of units) and {bold(least)} "
                f"the least ({format_number(pairs.min(), 2)})."
            )


def _table(
    layers: Sequence[Layer], there: np.ndarray, pairs: np.ndarray, found: Estimate, count: int
) -> tuple[pd.DataFrame, np.ndarray]:
    """Every pair of layers that were seen, and its number; of two models the first one's in the
    heat-map's rows."""
    models = [layer.subject.name for layer in layers]
    rank = np.array([list(dict.fromkeys(models)).index(model) for model in models], dtype=np.int64)
    one, other = np.nonzero((rank[:, None] <= rank) & there[:, None] & there)
    cells = pd.DataFrame([layer.cells for layer in layers])
    left = cells.iloc[one].reset_index(drop=True)
    right = cells.iloc[other].reset_index(drop=True).add_prefix("other_")
    table = pd.concat([left, right], axis=1)
    same = table["model"] == table["other_model"]
    table["pair"] = table["model"].where(same, table["model"] + " × " + table["other_model"])
    table["within"], table["across"] = same, ~same
    place = np.empty((len(layers), len(layers)), dtype=np.int64)
    place[pairs[0], pairs[1]] = place[pairs[1], pairs[0]] = np.arange(pairs.shape[1])
    pair = place[one, other]
    for name, values in (("value", found.value), ("low", found.low), ("high", found.high)):
        table[name] = np.clip(values, -1, 1)[pair]
    return table.assign(n=count), pair


class BlockStructure(NamedTuple):
    """How far a model splits into stages."""

    groups: str
    """What is compared: "stages", or "thirds" of a model of a single stage."""
    difference: Estimate
    """Mean CKA of two units of one group, minus that of units of two groups."""


def block_structure(
    layers: Sequence[Layer], pairs: np.ndarray, values: np.ndarray, count: int
) -> dict[str, BlockStructure]:
    """The block structure of each model, from the CKA (1 + REPEATS, pairs) of pairs (2, pairs).

    Stem and head belong to no stage. A model with nothing to compare is left out.
    """
    structures: dict[str, BlockStructure] = {}
    one, other = pairs
    for model in dict.fromkeys(layer.subject.name for layer in layers):
        inner = np.array([_counts(layer, model, layers[-1].site) for layer in layers])
        stages = np.array([layer.unit.stage for layer in layers], dtype=np.int64)
        staged = len(set(stages[inner].tolist())) > 1
        groups = stages if staged else (np.cumsum(inner) - 1) * 3 // max(int(inner.sum()), 1)
        here = inner[one] & inner[other] & (one != other) & ~np.isnan(values[0])
        same = groups[one] == groups[other]
        if not (here & same).any() or not (here & ~same).any():
            continue
        difference = values[:, here & same].mean(1) - values[:, here & ~same].mean(1)
        structures[model] = BlockStructure(
            "stages" if staged else "thirds", estimated(difference, count)
        )
    return structures


def _add_block_structure(
    table: pd.DataFrame, structures: Mapping[str, BlockStructure]
) -> dict[str, Replicates]:
    """Add columns to the rows that compare two layers of one model; returns their replicates."""
    model = table["model"].where(table["within"])
    table["groups"] = ""
    drawn = np.full((len(table), REPEATS), np.nan)
    for column in STRUCTURE:
        table[column] = np.nan
    for name, (groups, difference) in structures.items():
        rows = (model == name).to_numpy()
        table.loc[rows, "groups"] = groups
        table.loc[rows, list(STRUCTURE)] = difference.value, difference.low, difference.high
        drawn[rows] = difference.replicates
    return {STRUCTURE[0]: Replicates.of(table[STRUCTURE[0]].to_numpy(), drawn)}


def _counts(layer: Layer, model: str, site: Site) -> bool:
    return (
        layer.subject.name == model
        and layer.site == site
        and layer.unit.kind not in ("stem", "head")
    )


def too_few(images: int, estimator: Estimator) -> str:
    """Why a set is too small; empty if it is not."""
    least = MIN_IMAGES[estimator]
    return (
        f"CKA ({estimator}) needs at least {least} images, and there are {images}."
        if images < least
        else ""
    )


def about_copies(setting: Setting) -> dict[str, Any]:
    """What a result says of images that occur more than once; nothing if none does."""
    if not (copies := setting.copies):
        return {}
    many = f"{copies} of {len(setting.data)} images are copies of others and were left out"
    return {
        "copies_left_out": copies,
        "note": f"{many}: an image that is compared with itself would raise CKA.",
    }


def warn_of_copies(setting: Setting) -> None:
    """Say it while the images pass as well."""
    if note := about_copies(setting).get("note"):
        log.warning("%s", note)
