"""Centred kernel alignment (CKA) of any two units, within a model and between models.

    CKA = mean HSIC(K, L) / √(mean HSIC(K, K) · mean HSIC(L, L)),   see `vitreous.measure.alignment`

A minibatch is `minibatch` consecutive images, independent of the size of shards, and is weighted by
its number of images. Duplicates of an image are left out. All layers of all models are compared
with each other in one product of their centred Gram matrices. Until all models have run on a shard,
Gram matrices are kept instead of features: they have n × n numbers, which is nearly always less.
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
from vitreous.results.comparing import mean_by_model, pair_models, rank_models
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
    """One row and column of a heat map: a site of a unit of a model."""

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
        """The entries of a row of the table about it."""
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
        sites: Any = self.sites
        self.sites = tuple(cast("list[Site]", [sites]) if isinstance(sites, str) else sites)
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
        distinct = self.setting.distinct[batch.rows]
        for site in self.sites:
            feature = getattr(sites, site)
            if feature is None:
                continue
            features = vectors(feature)
            if len(features) == len(batch):
                key = sum_key(subject, unit, site)
                self.grams.add(key, features, batch.full_shard, distinct)
        return {}

    def end_shard(self, shard: Batch) -> Sums:
        chosen = minibatches(self.setting.distinct[shard.rows], self.minibatch, self.estimator)
        grams_of = [self.grams.take(layer.key) for layer in self.layers]
        present = torch.tensor([bool(grams) for grams in grams_of])
        sums: dict[str, Tensor] = {"left_out": torch.tensor(len(shard) - sum(map(len, chosen)))}
        device = next((grams[0].device for grams in grams_of if grams), self.pairs.device)
        pairs = to_device(self.pairs, device)()
        for number, rows in enumerate(chosen):
            zeros = next(torch.zeros_like(grams[number]) for grams in grams_of if grams)
            stacked = torch.stack([grams[number] if grams else zeros for grams in grams_of])
            weights = columns(shard.on(stacked.device, "weights"), rows)
            hsic = weighted_hsic(stacked, stacked, weights, self.estimator, pairs)
            terms = {"hsic": hsic, "seen": present * len(rows), "shards": torch.ones(())}
            for name, value in terms.items():
                sums[name] = sums[name] + value if name in sums else value
        return sums

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        if "hsic" not in sums:  # interrupted after one shard, which was too small
            empty = {
                c.name: pd.Series(dtype=float if c.kind == "quantity" else object) for c in COLUMNS
            }
            return Result(self.name, pd.DataFrame(empty), COLUMNS)
        images_of_layer = sums["seen"].numpy()
        count = int(images_of_layer.max())
        first, second = self.pairs.numpy()
        own = sums["hsic"].numpy()[:, first == second]
        norms = np.sqrt(np.where(own > 0, own, np.nan))
        values = doubled(sums["hsic"].numpy() / (norms[:, first] * norms[:, second]))
        reasons: dict[str, dict[str, str]] = {}
        for layer, own_hsic, images in zip(self.layers, own[0], images_of_layer, strict=True):
            if images and not own_hsic > 0:
                constant = own_hsic == 0
                reasons.setdefault(layer.subject.name, {})[layer.name] = (
                    "It is the same for all images."
                    if constant
                    else "It has values that are not finite."
                )
        about = {
            "minibatches": int(sums["shards"]),
            "images_compared": count,
            "images_left_out": int(sums.get("left_out", torch.zeros(()))),
            **about_copies(self.setting),
            "without_value": reasons,
        }
        cka = estimated(values, count)
        table, pair = _table(self.layers, images_of_layer > 0, self.pairs.numpy(), cka, count)
        value = table["value"].to_numpy(dtype=np.float64)
        replicates = {"value": Replicates.of(value, cka.replicates[:, pair].T)}
        structure = block_structure(self.layers, self.pairs.numpy(), values, count)
        replicates |= _add_block_structure(table, structure)
        views = cka_views(table)
        return Result(self.name, table, COLUMNS, views, about=about, replicates=replicates)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        models = result.table[result.table["within"]].drop_duplicates("model")
        kinds = set(models["groups"]) - {""}
        group = "third of the depth" if kinds == {"thirds"} else "stage"
        less = f"CKA falls by {{}} from units of one {group} to units of two"
        sentence = rank_models(
            mean_by_model(models, STRUCTURE),
            "{model} [has|have] the clearest " + f"{group.split()[0]}s: mean {less}",
            "{model} [is|are] the most uniform, {}",
            f"{{models}} are tied on how much mean {less.replace('{}', '{} to {}')}",
            alone=f"In {{model}}, mean {less}",
            paired=pair_models(result, models, STRUCTURE[0]),
        )
        mixed = " A model of one stage is split into thirds." if len(kinds) > 1 else ""
        yield sentence + mixed if sentence else ""
        between = result.table[result.table["across"]]
        pairs = mean_by_model(between.assign(model=between["pair"]))
        if len(pairs) > 1:
            yield rank_models(
                pairs,
                "Of all pairs of models, {model} are the most similar, with a mean CKA of {} over "
                "all pairs of units",
                "{model} the least, {}",
                "{models} pairs of models are tied on similarity, with a mean CKA of {} to {}",
            )


def _table(
    layers: Sequence[Layer], present: np.ndarray, pairs: np.ndarray, cka: Estimate, count: int
) -> tuple[pd.DataFrame, np.ndarray]:
    """The table with a row for every pair of layers that are `present`, and the pair's index.

    Of two models, the layers of the first are the rows of the heat map.
    """
    models = [layer.subject.name for layer in layers]
    rank = np.array([list(dict.fromkeys(models)).index(model) for model in models], dtype=np.int64)
    first, second = np.nonzero((rank[:, None] <= rank) & present[:, None] & present)
    cells = pd.DataFrame([layer.cells for layer in layers])
    left = cells.iloc[first].reset_index(drop=True)
    right = cells.iloc[second].reset_index(drop=True).add_prefix("other_")
    table = pd.concat([left, right], axis=1)
    same = table["model"] == table["other_model"]
    table["pair"] = table["model"].where(same, table["model"] + " × " + table["other_model"])
    table["within"], table["across"] = same, ~same
    pair_index = np.empty((len(layers), len(layers)), dtype=np.int64)
    pair_index[pairs[0], pairs[1]] = pair_index[pairs[1], pairs[0]] = np.arange(pairs.shape[1])
    pair = pair_index[first, second]
    for name, values in (("value", cka.value), ("low", cka.low), ("high", cka.high)):
        table[name] = np.clip(values, -1, 1)[pair]
    return table.assign(n=count), pair


class BlockStructure(NamedTuple):
    """How far a model splits into stages."""

    groups: str
    """How units are grouped: by "stages", or by "thirds" of a model with a single stage."""
    difference: Estimate
    """Mean CKA of two units of one group, minus that of units of different groups."""


def block_structure(
    layers: Sequence[Layer], pairs: np.ndarray, values: np.ndarray, count: int
) -> dict[str, BlockStructure]:
    """The block structure of each model, from the CKA (1 + REPEATS, pairs) of pairs (2, pairs).

    Stem and head belong to no group. Models without two groups, or pairs in one, are left out.
    """
    structures: dict[str, BlockStructure] = {}
    first, second = pairs
    for model in dict.fromkeys(layer.subject.name for layer in layers):
        inner = np.array([_is_inner_layer(layer, model, layers[-1].site) for layer in layers])
        stages = np.array([layer.unit.stage for layer in layers], dtype=np.int64)
        staged = len(set(stages[inner].tolist())) > 1
        groups = stages if staged else (np.cumsum(inner) - 1) * 3 // max(int(inner.sum()), 1)
        valid = inner[first] & inner[second] & (first != second) & ~np.isnan(values[0])
        same = groups[first] == groups[second]
        if not (valid & same).any() or not (valid & ~same).any():
            continue
        difference = values[:, valid & same].mean(1) - values[:, valid & ~same].mean(1)
        structures[model] = BlockStructure(
            "stages" if staged else "thirds", estimated(difference, count)
        )
    return structures


def _add_block_structure(
    table: pd.DataFrame, structures: Mapping[str, BlockStructure]
) -> dict[str, Replicates]:
    """Add columns to the rows about two layers of one model; return their replicates."""
    model = table["model"].where(table["within"])
    table["groups"] = ""
    replicates = np.full((len(table), REPEATS), np.nan)
    for column in STRUCTURE:
        table[column] = np.nan
    for name, (groups, difference) in structures.items():
        rows = (model == name).to_numpy()
        table.loc[rows, "groups"] = groups
        table.loc[rows, list(STRUCTURE)] = difference.value, difference.low, difference.high
        replicates[rows] = difference.replicates
    return {STRUCTURE[0]: Replicates.of(table[STRUCTURE[0]].to_numpy(), replicates)}


def _is_inner_layer(layer: Layer, model: str, site: Site) -> bool:
    return (
        layer.subject.name == model
        and layer.site == site
        and layer.unit.kind not in ("stem", "head")
    )


def too_few(images: int, estimator: Estimator) -> str:
    """Why there are too few images for CKA; empty if there are enough."""
    least = MIN_IMAGES[estimator]
    return (
        f"CKA ({estimator}) needs at least {least} images, and there are {images}."
        if images < least
        else ""
    )


def about_copies(setting: Setting) -> dict[str, Any]:
    """Entries of `about` on duplicate images; empty if there are none."""
    if not (copies := setting.copies):
        return {}
    left_out = f"{copies} of {len(setting.data)} images are copies of others and were left out"
    return {
        "copies_left_out": copies,
        "note": f"{left_out}: an image that is compared with itself would raise CKA.",
    }


def warn_of_copies(setting: Setting) -> None:
    """Log a warning about duplicate images at the start of a pass."""
    if note := about_copies(setting).get("note"):
        log.warning("%s", note)
