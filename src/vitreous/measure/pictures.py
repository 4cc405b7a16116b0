"""Probes of the attention of a few images: which images, and how they are shown.

The numbers of an image stand at its place in an array of zeros, so that they can be summed like all
others.
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
"""Pixels of the longer side of a picture, at most: what most models take."""
TOP = 3
"""Classes that are kept of a prediction."""


@dataclass
class Pictured(Probe):
    """A probe of the attention of a few images."""

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
        """Which of the chosen images are in a batch, and where."""
        rows = batch.rows.tolist()
        here = [slot for slot, row in enumerate(self.rows) if row in rows]
        return here, [rows.index(self.rows[slot]) for slot in here]

    def placed(self, slots: Sequence[int], values: Tensor) -> Tensor:
        """(images, …) with `values` at the places of their images and zeros elsewhere."""
        placed = values.new_zeros(len(self.rows), *values.shape[1:], dtype=torch.float64)
        placed[list(slots)] = values.detach().double()
        return placed

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        slots, _ = self.slots(batch)
        return (
            {sum_key(subject, None, "seen"): self.placed(slots, torch.ones(len(slots)))}
            if slots
            else {}
        )

    def predicted(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        """What a model predicts for the chosen images of a batch; nothing without class scores."""
        slots, places = self.slots(batch)
        scores = logits(output)
        if scores is None or not slots:
            return {}
        labels = batch.on(scores.device, "labels")[places]
        found = top_classes(scores[places], labels)
        return {sum_key(subject, None, "predicted"): self.placed(slots, found)}

    def predictions(
        self, sums: Mapping[str, Tensor], subjects: Sequence[Subject], slots: Sequence[int]
    ) -> dict[str, Any]:
        """By model: the most probable classes of every image and, where it is known, the label.

        "images" has for each image "top", pairs of a name and a probability, and "label", name,
        probability and rank of the true class (1 is the first), or None; "unmarked" says why there
        are no labels.
        """
        data = self.setting.data
        found = {}
        for subject in subjects:
            kept = sums.get(sum_key(subject, None, "predicted"))
            if kept is None or subject.outputs is None:
                continue
            why = self.setting.unmarkable(subject)
            if why and not subject.classes and not subject.specimen.units[-1].parameters:
                continue  # features, which are no scores, come out of a model without a classifier
            names = score_names(subject) if why else data.classes
            images = []
            for slot in slots:
                *top, share, rank = kept[slot].tolist()
                count = len(top) // 2
                pairs = zip(top[count:], top[:count], strict=True)
                best = [[names[int(number)], value] for number, value in pairs]
                true = None if why else names[int(data.labels[self.rows[slot]])]
                images.append({"top": best, "label": true and [true, share, int(rank)]})
            found[subject.name] = {"images": images, "unmarked": why}
        return found

    def complete_slots(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> list[int]:
        """The images that have passed through every model; all of them, unless an inspection was
        interrupted."""
        none = torch.zeros(len(self.rows))
        passed = [sums.get(sum_key(subject, None, "seen"), none) > 0 for subject in subjects]
        return torch.stack(passed).all(0).nonzero()[:, 0].tolist()

    def thumbnails(self, slots: Sequence[int]) -> np.ndarray:
        """(n, height, width, 3) bytes, smaller where they are large."""
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
        """Names of the classes of the images, or their numbers where the class is unknown."""
        data = self.setting.data
        found = [int(data.labels[self.rows[slot]]) for slot in slots]
        return [
            data.classes[label] if 0 <= label < len(data.classes) else f"image {self.rows[slot]}"
            for slot, label in zip(slots, found, strict=True)
        ]


def asking_tokens(unit: Unit, attention: AttentionMap) -> slice:
    """Tokens whose attention stands for a unit: the class token, or all patches where there is
    none.

    Where patches do not ask, in class attention, it is those that do.
    """
    if unit.reach == "class":
        return slice(int(attention.queries.min()), int(attention.queries.max()) + 1)
    if "class" in unit.prefix:
        place = unit.prefix.index("class")
        return slice(place, place + 1)
    return slice(attention.prefix, None)


def top_classes(scores: Tensor, labels: Tensor, count: int = TOP) -> Tensor:
    """(b, 2 · count + 2) of scores (b, classes): probabilities of the most probable classes, their
    numbers, then probability and rank of the label; of equal scores the first class wins.

    Labels that are no class have the numbers of the nearest one.
    """
    count = min(count, scores.shape[1])
    ranked, order = scores.double().sort(dim=1, descending=True, stable=True)
    shares = ranked.softmax(1)
    own = order == labels.clamp(0, scores.shape[1] - 1)[:, None]
    rank = 1 + own.int().argmax(1, keepdim=True)
    return torch.cat([shares[:, :count], order[:, :count], shares.gather(1, rank - 1), rank], 1)


def block_grid(grid: Grid, most: int | None) -> Grid:
    """The grid, or one of blocks of its cells that has at most `most` rows and columns."""
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
    """(b, heads, queries, keys) over tokens, prefix first, of probabilities (b, groups, heads,
    queries, keys).

    On a grid with more than `most` rows or columns, cells are taken together in blocks: the
    attention of a block is the mean over its cells as queries and the sum over them as keys.
    `most_queries` is another limit for queries. Rows of tokens that do not ask are zero.
    """
    places = attention.places
    asking = most if most_queries is None else most_queries
    query, rows = _blocks(places.queries, places.prefix, places.query_grid, asking)
    keys, columns = _blocks(places.keys, places.prefix, places.key_grid, most)
    pair = query[:, :, None] * columns + keys[:, None, :]
    pair = torch.where((query[:, :, None] < 0) | (keys[:, None, :] < 0), rows * columns, pair).to(
        values.device
    )
    flat = values.transpose(1, 2).flatten(2)
    whole = flat.new_zeros(*flat.shape[:2], rows * columns + 1)
    whole.scatter_add_(
        2, pair.flatten().expand_as(flat), flat
    )  # adding by an index is 30 times as slow
    asked = query[query >= 0].bincount(minlength=rows).clamp_min(1).to(values.device)
    return whole[:, :, :-1].unflatten(2, (rows, columns)) / asked[:, None]


def _blocks(tokens: Tensor, prefix: int, grid: Grid, most: int | None) -> tuple[Tensor, int]:
    """The number of each token's block, prefix tokens being blocks of their own, -1 for padding;
    and how many blocks there are."""
    rows, columns = block_grid(grid, most)
    down, right = -(-grid[0] // rows), -(-grid[1] // columns)
    cell = (tokens - prefix).clamp_min(0)
    block = prefix + cell // grid[1] // down * columns + cell % grid[1] // right
    return torch.where(tokens < prefix, tokens, block), prefix + rows * columns
