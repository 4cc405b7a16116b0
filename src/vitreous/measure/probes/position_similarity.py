"""Cosine similarity of the position embeddings of any two patches.

    similarity[i, j] = cos(p_i, p_j)        of the position embeddings p, prefix tokens left out

drawn as one tile for each position i. Three indices summarise it:

    distance    Spearman's rank correlation of distance on the grid and similarity of i and j, i < j
    row         mean similarity of positions in one row, less that of positions in different rows
                and columns whose distance is the same to within half a patch
    column      the same for positions in one column

Dosovitskiy et al. find that embeddings learned as a plain list reflect the grid: near positions are
similar, and so are those in one row or column. Only weights are read, no images, so there is no
interval.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from vitreous.measure.probe import Probe
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.palette import OPPOSITES
from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, View
from vitreous.results.comparing import list_by_model, records
from vitreous.results.words import format_number
from vitreous.specimen.anatomy import Grid

__all__ = ["PositionSimilarity"]

NAMED = re.compile(r"(^|[._])pos(itions?|ition_?emb\w*|_?emb\w*)?(\.|$)")
"""pos_embed, pos_embedding, position_embeddings, position_embedding.weight, positions.0.table, …"""
RELATIVE = re.compile(r"rel(ative)?_pos|relative\.|bias_table")
SHEET = 288
"""Side of a sheet of tiles in pixels: enough for 16 x 16 tiles of 16 x 16."""

Table = NDArray[np.float64]


def similarity(table: Table) -> Table:
    """Cosine similarity (h, w, h, w) of vectors (h, w, d); NaN for a vector of length zero."""
    norms = np.linalg.norm(table, axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        unit = table / norms
    return np.einsum("ijd,kld->ijkl", unit, unit)


def indices(similar: Table) -> dict[str, float]:
    """The indices "distance", "row" and "column" of similarities (h, w, h, w)."""
    from scipy.stats import spearmanr

    height, width = similar.shape[:2]
    down, across = (axis.flatten() for axis in np.mgrid[:height, :width])
    first, second = np.triu_indices(height * width, 1)
    flat = similar.reshape(height * width, -1)[first, second]
    rows, columns = np.abs(down[first] - down[second]), np.abs(across[first] - across[second])
    distance = np.hypot(rows, columns)
    values = {
        "distance": math.nan if np.ptp(flat) == 0 else float(spearmanr(distance, flat).statistic)
    }
    neither = (rows > 0) & (columns > 0)
    for name, same in (("row", rows == 0), ("column", columns == 0)):
        gains, counts = [], []
        for step in np.unique(distance[same]):
            pairs = same & (distance == step)
            control = neither & (np.abs(distance - step) <= 0.5)
            if control.any():
                gains.append(flat[pairs].mean() - flat[control].mean())
                counts.append(pairs.sum())
        values[name] = float(np.average(gains, weights=counts)) if gains else math.nan
    return values


def tile_sheet(similar: Table) -> NDArray[np.uint8]:
    """A picture (SHEET, SHEET, 3) with a tile for each position, arranged as the positions are.

    If there are too many tiles, only every second, third, … position has one.
    """
    height, width = similar.shape[:2]
    step = next(
        s
        for s in range(1, 2 * max(height, width))
        if _extent(height, s) <= SHEET >= _extent(width, s)
    )
    tiles = similar[::step, ::step][:, :, :SHEET, :SHEET]
    canvas = np.full(
        (len(tiles) * (height + 1) - 1, tiles.shape[1] * (width + 1) - 1, 3), 255, dtype=np.uint8
    )
    stops = np.array(
        [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in OPPOSITES["light"]], dtype=np.float64
    )
    where = (np.nan_to_num(tiles).clip(-1, 1) + 1) / 2 * (len(stops) - 1)
    left = np.minimum(where.astype(int), len(stops) - 2)
    colours = stops[left] + (stops[left + 1] - stops[left]) * (where - left)[..., None]
    for i, j in np.ndindex(tiles.shape[:2]):
        canvas[i * (height + 1) :, j * (width + 1) :][:height, :width] = np.round(colours[i, j])
    factor = SHEET // max(canvas.shape[:2])
    canvas = canvas.repeat(factor, 0).repeat(factor, 1)
    sheet = np.full((SHEET, SHEET, 3), 255, dtype=np.uint8)
    sheet[: canvas.shape[0], : canvas.shape[1]] = canvas
    return sheet


def _extent(side: int, step: int) -> int:
    """Pixels of a row of tiles with gaps, if every `step`-th position has a tile."""
    return math.ceil(side / step) * (side + 1) - 1


def tables(subject: Subject) -> dict[str, Table]:
    """Position embeddings, learned or fixed, by the names of their weights, as (h, w, d)."""
    weights: dict[str, Tensor] = dict(subject.specimen.module.named_parameters())
    weights |= dict(subject.specimen.module.named_buffers())
    grids = {
        (unit.grid, len(unit.prefix)): None
        for unit in subject.specimen.units
        if unit.grid is not None
    }
    embeddings: dict[str, Table] = {}
    for name, weight in weights.items():
        if not NAMED.search(name) or RELATIVE.search(name) or not weight.is_floating_point():
            continue
        values = weight.detach().double().cpu().numpy()
        values = values[0] if values.ndim > 2 and len(values) == 1 else values
        if name.endswith(".rows") and f"{name.removesuffix('rows')}columns" in weights:
            across = weights[f"{name.removesuffix('rows')}columns"].detach().double().cpu().numpy()
            embeddings[name.removesuffix(".rows")] = _combine_axes(values, across)
        elif (table := _on_grid(values, list(grids))) is not None:
            embeddings[name] = table
    return embeddings


def _combine_axes(down: Table, across: Table) -> Table:
    """Combine separate embeddings of rows and columns to embeddings of positions."""
    return np.concatenate(
        [np.tile(across[None], (len(down), 1, 1)), np.tile(down[:, None], (1, len(across), 1))], -1
    )


def _on_grid(values: Table, grids: Sequence[tuple[Grid, int]]) -> Table | None:
    """Arrange a list of vectors, with or without prefix, or a map, as the grid of some unit.

    None if no grid fits. A list for images of another size is assumed to be a square.
    """
    if values.ndim == 3:
        for grid, _ in grids:
            if values.shape[1:] == grid:
                return values.transpose(1, 2, 0)
            if values.shape[:2] == grid:
                return values
    if values.ndim != 2 or values.shape[1] < 2:
        return None
    for grid, prefix in grids:
        for front in (prefix, 0):
            if len(values) - front == grid[0] * grid[1] > 1:
                return values[front:].reshape(*grid, -1)
    for front in dict.fromkeys([*(prefix for _, prefix in grids), 0]):
        side = math.isqrt(max(len(values) - front, 0))
        if side > 1 and side * side == len(values) - front:
            return values[front:].reshape(side, side, -1)
    return None


@dataclass
class PositionSimilarity(Probe):
    """Cosine similarity of position embeddings."""

    name = "position_similarity"
    ids = ("A4.28", "VIT-04")
    section = Section(
        "weights",
        "Has it learned where patches lie?",
        "The cosine between the position embedding of one patch and those of all others.",
        "Embeddings learned without any hint of two dimensions still have rows and columns "
        "(Dosovitskiy et al. 2021, Fig. 7).",
        order=2,
    )
    columns = (
        UNIT_COLUMNS[0],
        Column("table", "order", "Name of the parameter or buffer that holds the embeddings."),
        Column("index", "category", "`distance`, `row` or `column`.", label="index"),
        Column("positions", "quantity", "Number of positions."),
        Column("pictured", "category", "Whether the row goes with the sheet of tiles."),
        Column(
            "value",
            "quantity",
            "The index: a rank correlation (`distance`) or a difference of cosines.",
        ),
    )
    tiles = View(
        "tiles",
        x="model",
        array="sheets",
        where="pictured",
        title="Similarity of position embeddings",
        how_to_read="Each tile belongs to one position, and shows how much all positions resemble "
        "it: blue is the opposite, white nothing in common, brown the same. A bright spot that "
        "moves with the tile, or a cross, means that the model knows the grid.",
    )
    bars = View(
        "bar",
        x="index",
        y="value",
        colour="model",
        references=(Reference(-0.5, "distance, where the grid is clear"),),
        label="rank correlation, or difference of cosines",
        title="Do embeddings know the grid?",
        how_to_read="Distance is below zero where positions are the less alike the farther they "
        "are apart. Row and column are above zero where positions that share one are more alike "
        "than others as far apart.",
    )

    def unsuited(self, subject: Subject) -> str:
        if tables(subject):
            return ""
        names = [name for name, _ in subject.specimen.module.named_parameters()]
        if any(RELATIVE.search(name) for name in names):
            return (
                "It has no embeddings of positions to compare: it encodes offsets between tokens, "
                "inside attention."
            )
        return "It has no table of position embeddings."

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        rows: list[dict[str, Any]] = []
        sheets = []
        for subject in subjects:
            for name, embeddings in tables(subject).items():
                similar = similarity(embeddings)
                rows += _rows(subject.name, name, similar)
                sheets.append(tile_sheet(similar))
        table = pd.DataFrame(rows, columns=[column.name for column in self.columns])
        several = len(sheets) > len(subjects)
        tiles = replace(self.tiles, x="table", facet="model") if several else self.tiles
        arrays = {"sheets": np.stack(sheets)}
        return Result(self.name, table, self.columns, (tiles, self.bars), arrays)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = records(result.table[result.table["index"] == "distance"])
        several = len({row["model"] for row in rows}) < len(rows)
        values = {
            f"{row['model']} ({row['table']})" if several else row["model"]: float(row["value"])
            for row in rows
        }
        texts = {model: format_number(value, 2) for model, value in values.items()}
        if texts:
            yield (
                "The rank correlation of the similarity and the distance of two positions is "
                f"{list_by_model(texts, values)}."
            )


def _rows(model: str, name: str, similar: Table) -> Iterator[dict[str, Any]]:
    for index, value in indices(similar).items():
        yield {
            "model": model,
            "table": name,
            "index": index,
            "positions": similar.shape[0] * similar.shape[1],
            "pictured": index == "distance",
            "value": value,
        }
