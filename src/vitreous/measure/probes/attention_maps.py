"""Attention maps of a few images: from every patch, in every layer and head.

The arrays of the result, for n images; prefix tokens come first among queries and keys, then the
grid row by row:

    "attention/<model>/<unit's index>"  uint8 (n, heads, queries, keys)  A = level / 255 · scale
    "scale/<model>/<unit's index>"      float32 (n, heads, queries)      largest number of each row
    "images"                            uint8 (n, height, width, 3)      at most 224 pixels a side
    "tiles"                             uint8 (rows with `tile`, h, w, 3), 56 pixels a side at most

`about["maps"][model][unit's index]` has "queries" and "keys", rows and columns of their grids;
"prefix", the number of prefix tokens in front of each; "tokens", their kinds ("class",
"distillation", "register", "query" for a learned one, "prefix" if unknown); and "heads", "all" or
"mean".
`about["predictions"][model]["images"]` has for each image "top", pairs of a class and its
probability, and "label", name, probability and rank of the true class, or None.
`about["shown"]` has the numbers of the images among those inspected, `about["labels"]` their class
names. Windows and reduced keys are placed on the whole grid; keys that a query cannot attend to are
zero. On grids of more than 16 rows or columns neighbouring cells are merged to blocks, with the
mean over queries and the sum over keys. A model's maps take at most `budget` bytes. If they would
take more, there are fewer images (for all models alike). If one image is too large, queries are
averaged in blocks, at most 8 rows and columns; if that is still too large, heads are averaged.
`about["fewer"]` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vitreous.measure.heads import cross_entropy, why_hidden
from vitreous.measure.pictures import Pictured, block_grid, token_matrix
from vitreous.measure.probe import Batch, Setting, Sums, sum_key, where
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.palette import RAMPS
from vitreous.results import UNIT_COLUMNS, Column, Result, View
from vitreous.results.comparing import bold, code, records
from vitreous.results.words import format_number, plural
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.attention_geometry import AttentionGeometry
from vitreous.specimen.observe import AttentionMap, Sites

__all__ = ["AttentionMaps"]

MOST, MOST_QUERIES = 16, 8
"""Maximum number of rows and columns of a grid; the second for queries of too large maps."""
WAYS = ((MOST, True), (MOST_QUERIES, True), (MOST, False), (MOST_QUERIES, False))
"""Ways to store maps, of which the first that fits is used: (rows of queries, every head)."""
TILE, DECADES, MARK = 56, 3, (57, 243, 255)
"""Side of a tile in pixels; decades that its colours span; colour of the frame of the query."""
TOKENS = ("prefix", "class", "distillation", "register", "query")
"""Kinds of tokens without a position; the sums contain their index in this list."""
COLUMNS = (
    *UNIT_COLUMNS,
    Column("image", "order", "Number of the image among those inspected."),
    Column("label", "category", "Class of the image, where it is known."),
    Column("head", "order", "Number of the head, or `mean` for the mean over heads."),
    Column("tile", "category", "Whether the row is drawn as a tile."),
    Column("distance", "quantity", "Attention-weighted distance, mean over queries.", "pixels"),
    Column("entropy", "quantity", "Entropy of attention, mean over queries.", "bits"),
    Column(
        "elsewhere",
        "quantity",
        "Share of attention that goes to tokens without a position, such as the class token.",
    ),
)
VIEWS = (
    View(
        "tiles",
        x="unit",
        facet="model",
        where="tile",
        array="tiles",
        title="Attention of the centre patch, layer by layer",
        how_to_read="Each tile is the first image as the patch in the frame sees it, mean over "
        "heads: the brighter a place, the more it is attended to. Colours are logarithmic; a "
        "third of the scale is a factor of ten.",
    ),
)


@dataclass
class AttentionMaps(Pictured):
    """Attention maps of a few images."""

    budget: int = 3_000_000
    """Maximum number of bytes that the maps of one model take."""

    name = "attention_maps"
    ids = ("A4.30", "CVT-16")
    section = Section(
        "attention",
        "What does a patch attend to?",
        "Attention itself, image by image: choose a patch, a layer and a head.",
        "Heads of ConViT's layer 2 keep to one offset, those of layer 10 follow content (d'Ascoli "
        "et al. 2021, Fig. 4).",
        order=5,
    )

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        for model, rows in result.table.groupby("model", sort=False, observed=True):
            means = rows.groupby("unit", sort=False, observed=True)["distance"].mean().dropna()
            if len(means) < 2:
                continue
            images = plural(rows["image"].nunique(), "image")
            ends = records(means.sort_values().iloc[[0, -1]].reset_index())
            near, far = (f"{format_number(row['distance'])}\u00a0pixels" for row in ends)
            first, last = (code(row["unit"]) for row in ends)
            reach = f"attends over {near} and {last} over {far}"
            if near == far:
                first, reach = "every layer", f"attends over {near}"
            yield f"In {bold(model)} {first} {reach}, mean over heads, patches and {images}."

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        subjects = [subject for subject in setting.subjects if not self.unsuited(subject)]
        self.coarse: set[str] = set()
        self.averaged: set[str] = set()
        sizes = []
        for subject in subjects:
            ways = {way: map_bytes(subject, *way) for way in WAYS}
            fitting = (way for way, size in ways.items() if size <= self.budget)
            queries, heads = chosen = next(fitting, min(ways, key=lambda way: ways[way]))
            sizes.append(ways[chosen])
            if queries < MOST:
                self.coarse.add(subject.name)
            if not heads:
                self.averaged.add(subject.name)
        image_count = min(
            (max(1, self.budget // max(1, size)) for size in sizes), default=len(self.rows)
        )
        self.wanted, self.rows = len(self.rows), self.rows[:image_count]

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Sums:
        slots, places = self.slots(batch)
        if sites.attention is None or not slots:
            return {}
        probabilities = sites.attention.probabilities
        values = probabilities.values[places].float()
        attention = AttentionMap(values, probabilities.places)
        maps = token_matrix(
            attention,
            values.mean(2, keepdim=True) if subject.name in self.averaged else values,
            MOST,
            self._most_queries(subject),
        )
        return {
            sum_key(subject, unit, "maps"): self.placed(slots, maps),
            sum_key(subject, unit, "summary"): self.placed(slots, _summary(subject, attention)),
            sum_key(subject, unit, "grids"): torch.tensor(
                _grids(attention, self._most_queries(subject))
            )
            * float(self.rows[0] in batch.rows),
        }

    def _most_queries(self, subject: Subject) -> int:
        return MOST_QUERIES if subject.name in self.coarse else MOST

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        sums = super().update_output(subject, output, batch)
        return {**sums, **self.predicted(subject, output, batch)}

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        slots = self.complete_slots(sums, subjects)
        arrays: dict[str, np.ndarray] = {"images": self.thumbnails(slots)}
        rows: list[dict[str, Any]] = []
        tiles: list[np.ndarray] = []
        maps: dict[str, dict[str, Any]] = {}
        for subject, unit in (
            (s, u) for s in subjects for u in s.specimen.units if sum_key(s, u, "maps") in sums
        ):
            name = sum_key(subject, unit)
            images = sums[f"{name}/maps"].numpy()[slots]
            arrays[f"attention/{name}"], arrays[f"scale/{name}"] = quantise(images)
            grids = [int(number) for number in sums[f"{name}/grids"]]
            heads = "mean" if subject.name in self.averaged else "all"
            maps.setdefault(subject.name, {})[str(unit.index)] = {
                "queries": grids[:2], "keys": grids[2:4], "prefix": grids[4],
                "tokens": [TOKENS[number] for number in grids[5:]], "heads": heads,
            }  # fmt: skip
            rows += self._rows(subject, unit, sums[f"{name}/summary"].numpy(), slots)
            tiles += [tile(image.mean(0), grids) for image in images[:1]]
        if tiles:
            arrays["tiles"] = stacked(tiles)
        table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
        about = {
            "maps": maps,
            "shown": [self.rows[s] for s in slots],
            "labels": self.labels(slots),
            "predictions": self.predictions(sums, subjects, slots),
            **self._fewer(),
        }
        return Result(self.name, table, COLUMNS, VIEWS if tiles else (), arrays, about)

    def _rows(
        self, subject: Subject, unit: Unit, summary: np.ndarray, slots: list[int]
    ) -> Iterator[dict[str, Any]]:
        for slot, label in zip(slots, self.labels(slots), strict=True):
            for head, numbers in enumerate(summary[slot]):
                mean = head == summary.shape[1] - 1
                yield {
                    **where(subject, unit),
                    "image": self.rows[slot],
                    "label": label,
                    "head": "mean" if mean else str(head),
                    "tile": mean and slot == slots[0],
                    **dict(zip(("distance", "entropy", "elsewhere"), numbers, strict=True)),
                }

    def _fewer(self) -> dict[str, str]:
        """The entry "fewer" of `about`: what was reduced to stay within the budget, if anything."""
        notes = []
        if len(self.rows) < self.wanted:
            notes.append(f"{len(self.rows)} of {self.wanted} images")
        if self.coarse:
            models = ", ".join(sorted(self.coarse))
            notes.append(f"mean over blocks of neighbouring queries in {models}")
        if self.averaged:
            notes.append(f"heads averaged in {', '.join(sorted(self.averaged))}")
        if not notes:
            return {}
        text = "; ".join(notes)
        text = text[0].upper() + text[1:]
        return {"fewer": f"{text}: maps take at most {self.budget:,} bytes a model."}


def map_bytes(subject: Subject, most_queries: int = MOST, heads: bool = True) -> int:
    """Bytes of one image's maps, estimated from the anatomy: keys of a reduced grid are fewer."""
    total = 0
    for unit in subject.specimen.units:
        if why_hidden(unit) is None and unit.grid is not None:
            queries, keys = (
                len(unit.prefix) + prod(block_grid(unit.grid, most))
                for most in (most_queries, MOST)
            )
            total += queries * keys * ((unit.heads or 1) if heads else 1)
    return total


def quantise(maps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convert maps to uint8 levels and a scale per row: map = level / 255 · scale.

    The scale is the largest number of a row.
    """
    scale = maps.max(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        levels = np.nan_to_num(np.rint(255 * maps / scale[..., None]))
    return levels.astype(np.uint8), scale.astype(np.float32)


def _grids(attention: AttentionMap, most_queries: int) -> list[float]:
    """Rows and columns of the grids of queries and of keys after merging to blocks, the number of
    prefix tokens, and for each its kind as an index into `TOKENS`."""
    places = attention.places
    names = places.tokens or ("prefix",) * places.prefix
    kinds = [TOKENS.index(name) if name in TOKENS else 0 for name in names]
    queries = block_grid(places.query_grid, most_queries)
    keys = block_grid(places.key_grid, MOST)
    return [*map(float, (*queries, *keys, places.prefix, *kinds))]


def _summary(subject: Subject, attention: AttentionMap) -> Tensor:
    """Distance, entropy and attention to tokens without a position, (b, heads + 1, 3).

    The last entry is that of the attention averaged over heads.
    """
    values = torch.cat([attention.values, attention.values.mean(2, keepdim=True)], 2)
    _, height, width = subject.specimen.anatomy.image
    geometry = AttentionGeometry.of(attention.places, (height, width), values)
    distance, elsewhere = geometry.mean_distance(geometry.sums(values))
    entropy = cross_entropy(values, attention.queries).diagonal(dim1=1, dim2=2)
    return torch.stack([distance, entropy, elsewhere], -1)


def stacked(tiles: Sequence[np.ndarray]) -> np.ndarray:
    """(n, h, w, 3) of tiles (h, w, 3); smaller ones are padded with grey on the right and below."""
    high, wide = (max(tile.shape[side] for tile in tiles) for side in (0, 1))
    padded = np.full((len(tiles), high, wide, 3), 128, np.uint8)
    for place, drawn in zip(padded, tiles, strict=True):
        place[: drawn.shape[0], : drawn.shape[1]] = drawn
    return padded


def tile(matrix: np.ndarray, grids: Sequence[int]) -> np.ndarray:
    """A coloured picture of the attention of the middle patch, which is framed.

    If only prefix tokens are queries, it is that of the first token.
    """
    rows, columns, down, right, prefix = grids[:5]
    middle = prefix + rows // 2 * columns + columns // 2
    row = matrix[middle if matrix[middle].any() else 0, prefix:]
    light = 1 + np.log10(np.maximum(row / max(row.max(), 1e-30), 10.0**-DECADES)) / DECADES
    ramp = np.array(
        [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in RAMPS["dark"]], dtype=float
    )
    stops = np.linspace(0, 1, len(ramp))
    picture = np.stack([np.interp(light, stops, ramp[:, c]) for c in range(3)], -1).reshape(
        down, right, 3
    )
    high, wide = (round(TILE * side / max(rows, columns)) for side in (rows, columns))
    y, x = np.arange(high), np.arange(wide)
    canvas = picture[y * down // high][:, x * right // wide].round().astype(np.uint8)
    in_row, in_column = y * rows // high == rows // 2, x * columns // wide == columns // 2
    patch = in_row[:, None] & in_column[None, :]
    padded = np.pad(patch, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    canvas[patch & ~inside] = MARK
    return canvas
