"""CKA of final tokens with the image at every position: do tokens keep their position?

    map[t, p] = CKA, across images, of token t after the last unit with positions (n × channels) and
                of the pixels of the image at place p (n × pixels of a patch)
    hit rate  = share of interior tokens t whose most similar patch is p = t
    contrast  = mean over tokens of  map[t, t] − mean over p ≠ t of map[t, p]

Raghu et al. find that the tokens of a ViT with a class token keep their position and those of a
ResNet do not, and that tokens at the edge resemble patches at the edge. HSIC is unbiased, over
minibatches. All pairs of tokens and patches are one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import stdtrit
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.alignment import (
    Grams,
    centred_gram,
    columns,
    doubled,
    minibatches,
    ratio,
    self_hsic,
    weighted_hsic,
)
from vitreous.measure.probe import Batch, Probe, Sums, sum_key, where
from vitreous.measure.probes.cka import about_copies, too_few
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import REPEATS
from vitreous.measure.subject import Subject
from vitreous.results import (
    UNIT_COLUMNS,
    Column,
    Estimate,
    Reference,
    Result,
    View,
    estimate,
    tabulate,
)
from vitreous.results.comparing import mean_by_model, pair_models, rank_models
from vitreous.results.words import format_percent
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.observe import Sites

__all__ = ["Localisation"]

MINIBATCH = 128
"""Images that are compared with each other, as for CKA."""
DRAWN = 40
"""Number of bootstrap replicates: fewer than elsewhere, because each is a map of tokens by
patches."""
COLUMNS = (
    *UNIT_COLUMNS,
    Column(
        "down", "order", "Rows from the token down to the patch; negative if the patch lies above."
    ),
    Column(
        "right",
        "order",
        "Columns from the token to the patch on its right; negative if it lies to the left.",
    ),
    Column(
        "distance",
        "quantity",
        "Distance between token and patch, as a share of the side of the image.",
    ),
    Column("chance", "quantity", "Hit rate by chance, 1 / number of patches."),
    Column(
        "hit_rate",
        "quantity",
        "Share of inner tokens whose most similar patch is their own; one value per model.",
    ),
    Column("hit_rate_low", "quantity", "Lower end of the 95 % interval of the hit rate."),
    Column("hit_rate_high", "quantity", "Upper end of the 95 % interval of the hit rate."),
    Column(
        "contrast",
        "quantity",
        "CKA with the token's own patch minus mean CKA with the others; one value per model.",
    ),
    Column("contrast_low", "quantity", "Lower end of the 95 % interval of the contrast."),
    Column("contrast_high", "quantity", "Upper end of the 95 % interval of the contrast."),
    *estimate("Centred kernel alignment of token and patch, mean over tokens.", label="CKA"),
)
"""Chance, hit rate and contrast belong to a model and are repeated in each of its rows."""
MAP = View(
    "heatmap",
    x="right",
    y="down",
    colour="value",
    facet="model",
    title="Which part of the image a final token resembles",
    how_to_read="The middle is the token's own place, and each cell the part of the image so far "
    "from it, mean over all tokens. A dark middle means that tokens still stand for their places; "
    "an even panel, that they do not.",
)
PROFILE = View(
    "scatter",
    x="distance",
    y="value",
    colour="model",
    low="low",
    high="high",
    references=(Reference(0.0, "nothing in common"),),
    title="Similarity of final tokens and parts of the image by distance",
    how_to_read="Each point is a displacement from a token to a part of the image. Points that "
    "are high at distance 0 and low elsewhere belong to tokens that keep to their places.",
)


def image_patches(images: Tensor, grid: Grid) -> Tensor:
    """Cut images (b, c, height, width) into the cells of a grid, (h·w, b, pixels).

    Images are resized if their size is not a multiple of the grid.
    """
    size = [-(-side // cells) * cells for side, cells in zip(images.shape[2:], grid, strict=True)]
    if list(images.shape[2:]) != size:
        images = F.interpolate(images, size=size, mode="bilinear", align_corners=False)
    cells = images.unflatten(3, (grid[1], -1)).unflatten(2, (grid[0], -1))  # (b, c, h, y, w, x)
    return cells.permute(2, 4, 0, 1, 3, 5).flatten(3).flatten(0, 1)


def hit_rate(maps: np.ndarray, grid: Grid) -> np.ndarray:
    """Hit rate (R,) of interior tokens, from maps (R, tokens, patches).

    NaN if the grid has no interior.
    """
    interior = np.zeros(grid, dtype=bool)
    interior[1:-1, 1:-1] = True
    if not interior.any():
        return np.full(len(maps), np.nan)
    hits = np.where(np.isnan(maps), -np.inf, maps).argmax(-1) == np.arange(maps.shape[-1])
    rates: np.ndarray = hits[:, interior.ravel()].mean(-1)
    return rates


def token_contrast(maps: np.ndarray) -> np.ndarray:
    """Mean similarity of tokens to their own patch minus that to other patches, (R,)."""
    same, valid = np.eye(maps.shape[-1], dtype=bool), ~np.isnan(maps[0])
    if not (same & valid).any() or not (~same & valid).any():
        return np.full(len(maps), np.nan)
    contrast: np.ndarray = maps[:, same & valid].mean(1) - maps[:, ~same & valid].mean(1)
    return contrast


def mean_by_displacement(maps: np.ndarray, grid: Grid) -> np.ndarray:
    """Mean similarity by displacement from token to patch, (R, 2h - 1, 2w - 1)."""
    (height, width), shape = grid, (2 * grid[0] - 1, 2 * grid[1] - 1)
    y, x = np.divmod(np.arange(height * width), width)
    displacement = (
        (y[None, :] - y[:, None] + height - 1) * shape[1] + x[None, :] - x[:, None] + width - 1
    )
    valid = ~np.isnan(maps[0])
    count = np.bincount(displacement[valid], minlength=shape[0] * shape[1])
    sums = np.stack(
        [np.bincount(displacement[valid], each[valid], shape[0] * shape[1]) for each in maps]
    )
    return (sums / np.where(count, count, np.nan)).reshape(-1, *shape)


@dataclass
class Localisation(Probe):
    """CKA of final tokens with the image at every position."""

    grid: int = 16
    """Maximum number of rows and columns of a map; finer grids are averaged down. Set it to compare
    models of different grids on one."""

    name = "localisation"
    ids = ("A4.22", "SLC-19", "SLC-20")
    section = Section(
        "representation",
        "Does a token still know where it came from?",
        "Each token of the last block is compared, over many images, with the image at every "
        "position.",
        "Tokens of a ViT with a class token keep their position; those of a ResNet, or of a ViT "
        "that averages its tokens, do not (Raghu et al. 2021, Fig. 9 and 10).",
        order=4,
        headline=7,
    )
    sites = ("out",)

    def __post_init__(self) -> None:
        if self.grid < 2:
            raise VitreousError(
                f"Localisation was asked for on a grid of {self.grid}; it takes at least 2 places "
                "a side."
            )
        self.grams = Grams("unbiased", MINIBATCH)

    @property
    def shard_multiple(self) -> int:
        return MINIBATCH

    def unsuited(self, subject: Subject) -> str:
        if why := too_few(len(self.setting.data), "unbiased"):
            return why
        unit = last_with_places(subject)
        return "None of its units has positions." if unit is None else ""

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        return None if unit == last_with_places(subject) else ""

    def start_shard(self) -> None:
        self.grams = Grams("unbiased", MINIBATCH)

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Sums:
        assert sites.out is not None
        pooled = F.adaptive_avg_pool2d(sites.out.map.float(), self.places(unit))
        self.grams.add(
            sum_key(subject, unit),
            pooled.flatten(2).permute(2, 0, 1),  # (tokens, b, c)
            batch.full_shard,
            self.setting.distinct[batch.rows],
        )
        return {}

    def places(self, unit: Unit) -> Grid:
        """Rows and columns of the map of a unit, limited by the option `grid`."""
        assert unit.grid is not None
        return min(unit.grid[0], self.grid), min(unit.grid[1], self.grid)

    def end_shard(self, shard: Batch) -> Sums:
        chosen = minibatches(self.setting.distinct[shard.rows], MINIBATCH, "unbiased")
        sums: Sums = {"images": torch.tensor(float(sum(map(len, chosen))))}
        for subject in self.setting.subjects:
            unit = last_with_places(subject)
            if unit is None or not (grams := self.grams.take(sum_key(subject, unit))):
                continue
            device = grams[0].device
            pixels = image_patches(shard.prepared(subject).float().to(device), self.places(unit))
            weights = shard.on(device, "weights")[: 1 + DRAWN]
            for tokens, rows in zip(grams, chosen, strict=True):
                patches, counts = centred_gram(columns(pixels, rows)), columns(weights, rows)
                hsic = {
                    "cross": weighted_hsic(tokens, patches, counts),
                    "token": self_hsic(tokens, counts),
                    "patch": self_hsic(patches, counts),
                }
                for what, value in hsic.items():
                    name = sum_key(subject, unit, what)
                    sums[name] = sums[name] + value if name in sums else value
        return sums

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        rows: list[dict[str, Any]] = []
        arrays = {}
        count = int(sums.get("images", torch.zeros(())))
        for subject in subjects:
            unit = last_with_places(subject)
            if unit is None or sum_key(subject, unit, "cross") not in sums:
                continue
            cross, token, patch = (
                sums[sum_key(subject, unit, what)].numpy() for what in ("cross", "token", "patch")
            )
            maps, grid = doubled(ratio(cross, token, patch)), self.places(unit)
            arrays[subject.name] = maps[0].reshape(*grid, *grid).astype(np.float32)
            row = {
                **where(subject, unit),
                "chance": 1 / (grid[0] * grid[1]),
                "hit_rate": _estimate(hit_rate(maps, grid), count, (0, 1)),
                "contrast": _estimate(token_contrast(maps), count, (-2, 1)),
                "n": count,
            }
            rows += [{**row, **cell} for cell in _cells(mean_by_displacement(maps, grid), count)]
        table, replicates = tabulate(rows, COLUMNS)
        about = {"images_compared": count, **about_copies(self.setting)}
        return Result(self.name, table, COLUMNS, (MAP, PROFILE), arrays, about, replicates)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        models = result.table.drop_duplicates("model")
        sentence = rank_models(
            mean_by_model(models, ("hit_rate", "hit_rate_low", "hit_rate_high")),
            "Final tokens keep their position best in {model}: {} of them are most similar to the "
            "image at their own position",
            "least in {model}, {}",
            "{models} are tied on how many final tokens are most similar to the image at their own "
            "position, {} to {}",
            format_percent,
            alone="In {model}, {} of the final tokens are most similar to the image at their own "
            "position",
            paired=pair_models(result, models, "hit_rate"),
        )
        if sentence:
            chance = format_percent(models["chance"].max())
            yield f"{sentence.removesuffix('.')}; chance is {chance}."


def last_with_places(subject: Subject) -> Unit | None:
    """The last unit that has a map of more than one position."""
    units = [
        unit
        for unit in subject.specimen.units
        if unit.grid not in (None, (1, 1)) and unit.kind != "head"
    ]
    return units[-1] if units else None


def _cells(maps: np.ndarray, count: int) -> Iterator[dict[str, Any]]:
    """Rows of the table, one per displacement, from means (replicates, 2h - 1, 2w - 1).

    The lowest row comes first, because heat maps are drawn from the bottom to the top.
    """
    value = _estimate(maps, count)
    height, width = ((side + 1) // 2 for side in maps.shape[1:])
    for i, j in np.ndindex(maps.shape[1:]):
        i = maps.shape[1] - 1 - i
        down, right = i - height + 1, j - width + 1
        yield {
            "down": str(down),
            "right": str(right),
            "distance": float(np.hypot(down / height, right / width)),
            "value": value[i, j],
        }


def _estimate(
    replicates: np.ndarray, count: int, limits: tuple[float, float] | None = None
) -> Estimate:
    """Value, 95 % interval and replicates from (1 + DRAWN, …), clipped to `limits`.

    The interval uses Student's t with as many degrees of freedom as there are replicates, since
    these are few. The result is padded with NaN to the usual number of replicates.
    """
    value = np.asarray(replicates[0])
    freedom = min(count, len(replicates) - 1) - 1
    half_width = stdtrit(max(freedom, 1), 0.975) * replicates[1:].std(0, ddof=1)
    half_width = np.where(count > 1, half_width, np.nan)
    low, high = value - half_width, value + half_width
    if limits is not None:
        value, low, high = (np.clip(end, *limits) for end in (value, low, high))
    padded = np.full((REPEATS, *value.shape), np.nan)
    padded[: len(replicates) - 1] = replicates[1:]
    return Estimate(value, low, high, padded)
