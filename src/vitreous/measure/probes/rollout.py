"""Attention rollout: attention multiplied through all layers.

    R_l = Â_l R_(l-1),  R_0 = I,  Â = A + I with rows divided by their sums,  A the mean over heads

The row of the class token, or the mean over patches where there is none, says how much of each
patch arrives there; rows of R sum to one. A token that joins later has brought nothing along, and
tokens that do not ask in a layer keep what they have: both rows are the identity's.
`identity=False` leaves the skips out, `heads="max"` takes the largest attention of all heads. The
product has a meaning only where nothing but attention moves information between tokens, so models
with convolutions between attention layers, or with grids that change, are refused.

Where the set of images knows the box of each object (the synthetic datasets do), `inside` says how
much of what rests on patches lies within it, a patch at the border counted by the share of it that
does; `box` is the share of the image that the box covers, and so what `inside` would be if all
patches counted alike.

Arrays, for n images: "rollout/<model>", float32 (n, layers, rows, columns), the share of each patch
after each attention layer, prefix tokens left out; "images", uint8 (n, height, width, 3); "tiles",
each image beside itself as the rollout of the last layer lights it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.heads import why_hidden
from vitreous.measure.pictures import Pictured, main_queries, token_matrix
from vitreous.measure.probe import Batch, Sums, sum_key, where
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, View
from vitreous.results.comparing import bold
from vitreous.results.words import format_percent, join_words, plural
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import AttentionMap, Sites

__all__ = ["Rollout"]

SHADE = 0.12
"""How much light falls on what does not count at all."""
COLUMNS = (
    *UNIT_COLUMNS,
    Column("image", "order", "Number of the image among those inspected."),
    Column("label", "category", "Class of the image, where it is known."),
    Column("tile", "category", "Whether the row is drawn as a tile: the last attention unit is."),
    Column(
        "elsewhere",
        "quantity",
        "Share that stays on tokens without a position, such as the class token.",
    ),
    Column(
        "inside",
        "quantity",
        "Share of the patches' total that lies in the object's box, where the box is known.",
    ),
    Column(
        "box", "quantity", "Share of the image that the box covers: `inside` of an even rollout."
    ),
    Column(
        "value",
        "quantity",
        "Effective number of patches, 2 to the entropy, as a share of all patches.",
        label="share of the image",
    ),
)
VIEWS = (
    View(
        "tiles",
        x="label",
        facet="model",
        where="tile",
        array="tiles",
        title="Attention rollout",
        how_to_read="Each image, and beside it the same image weighted by attention rollout: "
        "attention multiplied through all layers. Dark regions contribute little to the output.",
    ),
    View(
        "line",
        x="depth",
        y="value",
        colour="model",
        detail="image",
        bands=True,
        references=(Reference(1.0, "all patches alike"),),
        title="How much of the image counts, layer by layer",
        how_to_read="Each line is an image. At 1 all patches count alike; where a line falls, "
        "attention has gathered on a part of the image.",
    ),
)


MOVING = ("conv", "pool", "token-mlp", "mixer", "downsample")
"""Kinds that move information between positions, as attention does."""


@dataclass
class Rollout(Pictured):
    """Attention multiplied through all layers."""

    identity: bool = True
    """Count the skip connection as half of every layer."""
    heads: Literal["mean", "max"] = "mean"
    """How heads are combined: `mean` or `max`."""

    name = "rollout"
    ids = ("A4.27", "X-10", "VIT-16")
    section = Section(
        "attention",
        "Which patches does the output depend on?",
        "Attention multiplied through all layers, including the skips: from which patches the "
        "output token gathers its information.",
        "It covers the object that gives the class (Dosovitskiy et al. 2021, Fig. 6).",
        order=6,
    )

    def __post_init__(self) -> None:
        if self.heads not in ("mean", "max"):
            raise VitreousError(
                f"Rollout takes the mean or the max over heads, not {self.heads!r}."
            )

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        last = result.table[result.table["tile"]].dropna(subset="value")
        means = last.groupby("model", sort=False, observed=True)["value"].mean()
        if means.empty:
            return
        shares = [f"{format_percent(share)} in {bold(model)}" for model, share in means.items()]
        images = plural(last["image"].nunique(), "image")
        yield (
            "Through all layers, the effective number of patches that the output depends on is, "
            f"as a share of all patches, {join_words(shares)} (mean over {images})."
        )

    def unsuited(self, subject: Subject) -> str:
        return super().unsuited(subject) or unrollable(subject.specimen.units)

    def start_shard(self) -> None:
        self.products: dict[str, tuple[Tensor, int]] = {}

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Sums:
        slots, places = self.slots(batch)
        if sites.attention is None or not slots:
            return {}
        attention = sites.attention.probabilities
        matrix = layer(
            AttentionMap(attention.values[places], attention.places), self.heads, self.identity
        )
        product = rolled(matrix, *self.products.get(subject.name, (None, 0)))
        self.products[subject.name] = product, attention.prefix
        reading = main_queries(unit, attention)
        patches = product[:, reading].mean(1)[:, attention.prefix :]
        grid = torch.tensor([*attention.query_grid], dtype=torch.float64) * float(
            self.rows[0] in batch.rows
        )
        return {
            sum_key(subject, unit, "rollout"): self.placed(slots, patches),
            sum_key(subject, unit, "grid"): grid,
        }

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        self.products.pop(subject.name, None)
        return super().update_output(subject, output, batch)

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        slots = self.complete_slots(sums, subjects)
        images, labels = self.thumbnails(slots), self.labels(slots)
        arrays, rows, tiles = {"images": images}, [], []
        for subject in subjects:
            units = [
                unit for unit in subject.specimen.units if sum_key(subject, unit, "rollout") in sums
            ]
            maps = [sums[sum_key(subject, unit, "rollout")].numpy()[slots] for unit in units]
            for unit, shares in zip(units, maps, strict=True):
                grid = [int(side) for side in sums[sum_key(subject, unit, "grid")]]
                for i, slot in enumerate(slots):
                    last = unit is units[-1]
                    named = {"image": self.rows[slot], "label": labels[i], "tile": last}
                    within = self._inside(slot, shares[i].reshape(grid))
                    measured = {"elsewhere": 1 - shares[i].sum(), "value": coverage(shares[i])}
                    rows.append({**where(subject, unit), **named, **within, **measured})
                    tiles += [lit(images[i], shares[i].reshape(grid))] if last else []
            if units:
                shape = len(slots), len(units), *grid
                arrays[f"rollout/{subject.name}"] = (
                    np.stack(maps, 1).reshape(shape).astype(np.float32)
                )
        if tiles:
            arrays["tiles"] = np.stack(tiles)
        table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
        about = {"shown": [self.rows[slot] for slot in slots], "labels": labels}
        return Result(self.name, table, COLUMNS, VIEWS if tiles else (), arrays, about)

    def _inside(self, slot: int, shares: np.ndarray) -> dict[str, float]:
        """How much lies in the box of the object, and how large that is."""
        boxes = self.setting.data.truth.get("box")
        if boxes is None:
            return {"inside": np.nan, "box": np.nan}
        cover = covered(boxes[self.rows[slot]].tolist(), self.setting.data.image, shares.shape)
        return {"inside": float((shares * cover).sum() / shares.sum()), "box": float(cover.mean())}


def covered(box: Sequence[float], image: Sequence[int], grid: Sequence[int]) -> np.ndarray:
    """(rows, columns) the share of each patch that lies in a box x0, y0, x1, y1 of pixels, the last
    two beyond it."""
    along = []
    for low, high, side, count in zip(box[1::-1], box[3:1:-1], image, grid, strict=True):
        edges = np.linspace(0, side, count + 1)
        along.append(
            (np.minimum(edges[1:], high) - np.maximum(edges[:-1], low)).clip(0) * count / side
        )
    return np.outer(*along)


def unrollable(units: Sequence[Unit]) -> str:
    """Why attention cannot be multiplied through these units, as a sentence; empty if it can."""
    at = [i for i, unit in enumerate(units) if unit.kind == "attention"]
    between = units[at[0] : at[-1] + 1]
    for unit in between:
        why = why_hidden(unit)
        if why:
            return f"Not all of its attention can be observed. {why}"
        if unit.reach == "reduced":
            return (
                "Its keys lie on a coarser grid than its queries, so layers cannot be multiplied."
            )
    grids = {unit.grid for unit in between} - {None}  # None where the class token is alone
    if len(grids) > 1:
        return "Its grid changes from stage to stage, so layers cannot be multiplied."
    for unit in between:
        if unit.kind in MOVING:
            return (
                f"Between its attention layers {unit.name} ({unit.kind}) moves information between "
                "positions, too."
            )
    for before, after in pairwise(between):
        if after.grid is not None and len(before.prefix) > len(after.prefix):
            return "It loses tokens on the way, so layers cannot be multiplied."
    return ""


def layer(attention: AttentionMap, heads: Literal["mean", "max"], identity: bool) -> Tensor:
    """Â as (b, tokens, tokens), rows summing to one."""
    wide = torch.promote_types(attention.values.dtype, torch.float32)
    values = attention.values.to(wide)
    one = values.mean(2, keepdim=True) if heads == "mean" else values.amax(2, keepdim=True)
    matrix = token_matrix(attention, one)[:, 0]
    own = torch.eye(matrix.shape[-1], dtype=wide, device=values.device)
    silent = matrix.sum(-1, keepdim=True) == 0
    matrix = torch.where(silent, own, matrix + own if identity else matrix)
    return matrix / matrix.sum(-1, keepdim=True)


def rolled(matrix: Tensor, before: Tensor | None, prefix: int = 0) -> Tensor:
    """Â R; tokens that have joined since stand behind the `prefix` tokens that were there, in front
    of the grid."""
    if before is None:
        return matrix
    fresh = matrix.shape[-1] - before.shape[-1]
    if fresh:
        old = [i for i in range(matrix.shape[-1]) if not prefix <= i < prefix + fresh]
        wider = torch.eye(matrix.shape[-1], dtype=before.dtype, device=before.device).repeat(
            len(before), 1, 1
        )
        wider[:, torch.tensor(old)[:, None], torch.tensor(old)] = before
        before = wider
    return matrix @ before


def coverage(shares: np.ndarray) -> float:
    """2 to the entropy of shares, over their number: 1 if all are alike, 1/n if one is
    everything."""
    count, shares = shares.size, shares[shares > 0]
    shares = shares / shares.sum()
    return float(2 ** -(shares * np.log2(shares)).sum() / count)


def lit(image: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """An image, and beside it the image under light that falls as the shares say."""
    height, width = image.shape[:2]
    mask = torch.from_numpy(shares / max(shares.max(), 1e-30))[None, None].float()
    mask = F.interpolate(mask, size=(height, width), mode="bicubic", align_corners=False).clamp(
        0, 1
    )
    light = SHADE + (1 - SHADE) * mask[0, 0].numpy()[..., None]
    return np.concatenate([image, (image * light).round().astype(np.uint8)], 1)
