"""Base class of probes that show the attention of a few images.

The values of an image are stored at its index in an array of zeros, so that they can be summed over
batches like all other sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.heads import why_hidden, without_attention
from vitreous.measure.labels import score_names
from vitreous.measure.probe import Batch, Probe, Setting, Sums, sum_key
from vitreous.measure.subject import Subject, logits
from vitreous.specimen.anatomy import Grid, Unit
from vitreous.specimen.observe import AttentionMap

SIDE = 224
"""Maximum length of the longer side of a picture in pixels: the input size of most models."""
TOP = 3
"""Number of most probable classes that are stored of a prediction."""


@dataclass
class Pictured(Probe):
    """Base class of probes of the attention of a few images."""

    images: Sequence[int] = (0, 1, 2, 3)
    """Numbers of the images to show, among those inspected, which begin with one of each class."""

    sites = ("attention",)

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        count = len(setting.data)
        self.rows = tuple(dict.fromkeys(row for row in self.images if 0 <= row < count))
        if not self.rows:
            wanted = ", ".join(map(str, self.images))
            raise VitreousError(
                f"None of the images {wanted} is among the {count} that are inspected; they count "
                "from 0."
            )

    def unsuited(self, subject: Subject) -> str:
        return without_attention(subject)

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        return why_hidden(unit)

    def slots(self, batch: Batch) -> tuple[list[int], list[int]]:
        """Indices among the chosen images of those in a batch, and their indices in the batch."""
        rows = batch.rows.tolist()
        slots = [slot for slot, row in enumerate(self.rows) if row in rows]
        return slots, [rows.index(self.rows[slot]) for slot in slots]

    def placed(self, slots: Sequence[int], values: Tensor) -> Tensor:
        """Values of all chosen images (images, …): `values` at `slots`, and zeros elsewhere."""
        placed = values.new_zeros(len(self.rows), *values.shape[1:], dtype=torch.float64)
        placed[list(slots)] = values.detach().double()
        return placed

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        slots, _ = self.slots(batch)
        if not slots:
            return {}
        return {sum_key(subject, None, "seen"): self.placed(slots, torch.ones(len(slots)))}

    def predicted(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        """Predictions for the chosen images of a batch; empty without class scores."""
        slots, places = self.slots(batch)
        scores = logits(output)
        if scores is None or not slots:
            return {}
        labels = batch.on(scores.device, "labels")[places]
        predictions = top_classes(scores[places], labels)
        return {sum_key(subject, None, "predicted"): self.placed(slots, predictions)}

    def predictions(
        self, sums: Mapping[str, Tensor], subjects: Sequence[Subject], slots: Sequence[int]
    ) -> dict[str, Any]:
        """The most probable classes of every image and the true class, by model.

        The value of a model is a dict. Its entry "images" has a dict for every image: "top" is a
        list of [class name, probability], and "label" is [class name, probability, rank] of the
        true class, or None if it is unknown. Rank 1 is the most probable class. "unmarked" says why
        there are no labels.
        """
        data = self.setting.data
        predictions = {}
        for subject in subjects:
            kept = sums.get(sum_key(subject, None, "predicted"))
            if kept is None or subject.outputs is None:
                continue
            why = self.setting.unmarkable(subject)
            if why and not subject.classes and not subject.specimen.units[-1].parameters:
                continue  # a model without a classifier returns features, not scores
            names = score_names(subject) if why else data.classes
            images = []
            for slot in slots:
                *top, share, rank = kept[slot].tolist()
                count = len(top) // 2
                pairs = zip(top[count:], top[:count], strict=True)
                best = [[names[int(number)], value] for number, value in pairs]
                true = None if why else names[int(data.labels[self.rows[slot]])]
                images.append({"top": best, "label": true and [true, share, int(rank)]})
            predictions[subject.name] = {"images": images, "unmarked": why}
        return predictions

    def complete_slots(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> list[int]:
        """Indices of the chosen images that ran through every model.

        These are all chosen images, unless the inspection was interrupted.
        """
        none = torch.zeros(len(self.rows))
        passed = [sums.get(sum_key(subject, None, "seen"), none) > 0 for subject in subjects]
        return torch.stack(passed).all(0).nonzero()[:, 0].tolist()

    def thumbnails(self, slots: Sequence[int]) -> np.ndarray:
        """Images as bytes (n, height, width, 3), resized if a side is longer than `SIDE`."""
        pictures = self.setting.data.images[[self.rows[slot] for slot in slots]].float().cpu()
        height, width = pictures.shape[2:]
        scale = min(1.0, SIDE / max(height, width))
        if scale < 1 and len(pictures):
            size = (round(scale * height), round(scale * width))
            pictures = F.interpolate(
                pictures, size=size, mode="bicubic", antialias=True, align_corners=False
            )
        return pictures.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()

    def labels(self, slots: Sequence[int]) -> list[str]:
        """Class names of the images; "image 3" if the class is unknown."""
        data = self.setting.data
        labels = [int(data.labels[self.rows[slot]]) for slot in slots]
        return [
            data.classes[label] if 0 <= label < len(data.classes) else f"image {self.rows[slot]}"
            for slot, label in zip(slots, labels, strict=True)
        ]


def main_queries(unit: Unit, attention: AttentionMap) -> slice:
    """The queries that represent a unit: the class token if there is one, else all patches.

    In class attention these are all queries.
    """
    if unit.reach == "class":
        return slice(int(attention.queries.min()), int(attention.queries.max()) + 1)
    if "class" in unit.prefix:
        place = unit.prefix.index("class")
        return slice(place, place + 1)
    return slice(attention.prefix, None)


def top_classes(scores: Tensor, labels: Tensor, count: int = TOP) -> Tensor:
    """Summarise scores (b, classes) as (b, 2 · count + 2).

    The columns are the probabilities of the `count` most probable classes, their class numbers,
    then the probability and rank of the label. Of equal scores the first class ranks first. Labels
    outside the classes are clamped.
    """
    count = min(count, scores.shape[1])
    ranked, order = scores.double().sort(dim=1, descending=True, stable=True)
    shares = ranked.softmax(1)
    is_label = order == labels.clamp(0, scores.shape[1] - 1)[:, None]
    rank = 1 + is_label.int().argmax(1, keepdim=True)
    return torch.cat([shares[:, :count], order[:, :count], shares.gather(1, rank - 1), rank], 1)


def block_grid(grid: Grid, most: int | None) -> Grid:
    """The grid, coarsened to blocks of cells if it has more than `most` rows or columns."""
    if most is None:
        return grid
    rows, columns = (-(-side // -(-side // most)) for side in grid)
    return rows, columns


def token_matrix(
    attention: AttentionMap,
    values: Tensor,
    most: int | None = None,
    most_queries: int | None = None,
) -> Tensor:
    """Attention between all tokens, (b, heads, queries, keys), prefix tokens first.

    Parameters
    ----------
    values
        Probabilities (b, groups, heads, queries, keys).
    most
        Maximum number of rows and columns of a grid. On a larger grid cells are merged to blocks,
        with the mean over the queries and the sum over the keys of a block.
    most_queries
        Another maximum for queries.

    Returns
    -------
    Rows of tokens that are not queries are zero.
    """
    places = attention.places
    query_limit = most if most_queries is None else most_queries
    query, rows = _blocks(places.queries, places.prefix, places.query_grid, query_limit)
    keys, columns = _blocks(places.keys, places.prefix, places.key_grid, most)
    pair = query[:, :, None] * columns + keys[:, None, :]
    pair = torch.where((query[:, :, None] < 0) | (keys[:, None, :] < 0), rows * columns, pair).to(
        values.device
    )
    flat = values.transpose(1, 2).flatten(2)
    matrix = flat.new_zeros(*flat.shape[:2], rows * columns + 1)  # the last entry is for padding
    matrix.scatter_add_(2, pair.flatten().expand_as(flat), flat)  # index_add is 30 times slower
    counts = query[query >= 0].bincount(minlength=rows).clamp_min(1).to(values.device)
    return matrix[:, :, :-1].unflatten(2, (rows, columns)) / counts[:, None]


def _blocks(tokens: Tensor, prefix: int, grid: Grid, most: int | None) -> tuple[Tensor, int]:
    """The block number of each token, and the number of blocks.

    Each prefix token is a block. Padding has the number -1.
    """
    rows, columns = block_grid(grid, most)
    down, right = -(-grid[0] // rows), -(-grid[1] // columns)
    cell = (tokens - prefix).clamp_min(0)
    block = prefix + cell // grid[1] // down * columns + cell % grid[1] // right
    return torch.where(tokens < prefix, tokens, block), prefix + rows * columns
