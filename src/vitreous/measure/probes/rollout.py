"""Attention rollout: attention multiplied through all layers.

    R_l = Â_l R_(l-1),  R_0 = I,  Â = A + I with rows divided by their sums,  A the mean over heads

The row of the class token, or without one the mean over patches, is the share of every patch in the
output; rows of R sum to one. A token that is added in a later layer, and a token that is not a
query in a layer, have a row of the identity there. `identity=False` leaves out the skips,
`heads="max"` uses the maximum over heads. The product is meaningful only if nothing but attention
moves information between tokens. So models with convolutions between attention layers, or with
grids that change, are refused.

If the dataset has the bounding box of each object (the synthetic ones do), `inside` is the share
of the patches' total within it; a patch at the border counts in proportion. `box` is the share of
the image within the box, which is the value of `inside` if all patches have equal shares.

Arrays, for n images: "rollout/<model>", float32 (n, layers, rows, columns), the share of each patch
after each attention layer, without prefix tokens; "images", uint8 (n, height, width, 3); "tiles",
each image next to a copy with the brightness of the rollout of the last layer.
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
from vitreous.results.comparing import list_by_model
from vitreous.results.words import format_percent, plural
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import AttentionMap, Sites

__all__ = ["Rollout"]

SHADE = 0.12
"""Brightness of patches with a share of zero."""
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
        shares = {str(model): float(share) for model, share in means.items()}
        texts = {model: format_percent(share) for model, share in shares.items()}
        images = plural(last["image"].nunique(), "image")
        yield (
            "Through all layers the output depends on this share of all patches (their effective "
            f"number): {list_by_model(texts, shares)}, mean over {images}."
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
        product = extend_rollout(matrix, *self.products.get(subject.name, (None, 0)))
        self.products[subject.name] = product, attention.prefix
        queries = main_queries(unit, attention)
        patches = product[:, queries].mean(1)[:, attention.prefix :]
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
                    on_grid = shares[i].reshape(grid)
                    row = {
                        **where(subject, unit),
                        "image": self.rows[slot],
                        "label": labels[i],
                        "tile": last,
                        **self._inside(slot, on_grid),
                        "elsewhere": 1 - shares[i].sum(),
                        "value": coverage(shares[i]),
                    }
                    rows.append(row)
                    if last:
                        tiles.append(highlight(images[i], on_grid))
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
        """The share of the rollout within the box of the object, and the size of the box."""
        boxes = self.setting.data.truth.get("box")
        if boxes is None:
            return {"inside": np.nan, "box": np.nan}
        cover = box_coverage(boxes[self.rows[slot]].tolist(), self.setting.data.image, shares.shape)
        return {"inside": float((shares * cover).sum() / shares.sum()), "box": float(cover.mean())}


def box_coverage(box: Sequence[float], image: Sequence[int], grid: Sequence[int]) -> np.ndarray:
    """The share of each patch (rows, columns) that lies within a box.

    The box is x0, y0, x1, y1 in pixels; x1 and y1 are exclusive.
    """
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
    grids = {unit.grid for unit in between} - {None}  # None if there is only the class token
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
    """Attention of a layer with skip, Â (b, tokens, tokens), whose rows sum to one."""
    dtype = torch.promote_types(attention.values.dtype, torch.float32)
    values = attention.values.to(dtype)
    merged = values.mean(2, keepdim=True) if heads == "mean" else values.amax(2, keepdim=True)
    matrix = token_matrix(attention, merged)[:, 0]
    eye = torch.eye(matrix.shape[-1], dtype=dtype, device=values.device)
    no_query = matrix.sum(-1, keepdim=True) == 0
    matrix = torch.where(no_query, eye, matrix + eye if identity else matrix)
    return matrix / matrix.sum(-1, keepdim=True)


def extend_rollout(matrix: Tensor, rollout: Tensor | None, prefix: int = 0) -> Tensor:
    """Multiply the matrix Â of a layer with the rollout R of the layers before.

    Tokens that were added since come after the `prefix` prefix tokens of R, before the grid.
    """
    if rollout is None:
        return matrix
    size = matrix.shape[-1]
    added = size - rollout.shape[-1]
    if added:
        old = torch.tensor([i for i in range(size) if not prefix <= i < prefix + added])
        eye = torch.eye(size, dtype=rollout.dtype, device=rollout.device)
        extended = eye.repeat(len(rollout), 1, 1)
        extended[:, old[:, None], old] = rollout
        rollout = extended
    return matrix @ rollout


def coverage(shares: np.ndarray) -> float:
    """Effective share of patches: 2 to the entropy of their shares, divided by their number.

    1 if all shares are equal, 1/n if only one is not zero.
    """
    count, shares = shares.size, shares[shares > 0]
    shares = shares / shares.sum()
    return float(2 ** -(shares * np.log2(shares)).sum() / count)


def highlight(image: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """An image, and next to it a copy whose brightness is proportional to the shares."""
    height, width = image.shape[:2]
    mask = torch.from_numpy(shares / max(shares.max(), 1e-30))[None, None].float()
    mask = F.interpolate(mask, size=(height, width), mode="bicubic", align_corners=False).clamp(
        0, 1
    )
    brightness = SHADE + (1 - SHADE) * mask[0, 0].numpy()[..., None]
    return np.concatenate([image, (image * brightness).round().astype(np.uint8)], 1)
