"""The inputs of an analysis (models, images, seed), and the types of its pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from vitreous.data.dataset import Dataset
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch, Setting
from vitreous.measure.subject import Subject

PieceNumbers = Mapping[str, Mapping[str, Numbers]]
"""The numbers of all pieces, by model and piece."""
Work = Callable[[str], Numbers]
"""Computes the numbers of one piece."""


@dataclass
class Bench:
    """The inputs of an analysis: models, images, random seed and batch size."""

    setting: Setting
    batch: int
    """Images per forward pass. Halved when memory runs out, so use its current value."""
    splits: Mapping[str, Dataset] = field(default_factory=dict)
    """Images of further splits, such as those that an analysis fits something on."""

    @property
    def data(self) -> Dataset:
        return self.setting.data

    @property
    def seed(self) -> int:
        return self.setting.seed

    def identity(self, further: Sequence[Subject] = ()) -> dict[str, Any]:
        """What numbers depend on: these models and `further` ones, the images, and the seed."""
        others = {split: data.fingerprint for split, data in self.splits.items()}
        return {
            "models": {
                subject.name: {"fingerprint": subject.fingerprint, **subject.preprocessing}
                for subject in (*self.setting.subjects, *further)
            },
            "data": {self.data.split: self.data.fingerprint, **others},
            "seed": self.seed,
        }

    def framed_for(self, subject: Subject) -> Bench:
        """The same bench with the images resized and cropped for this model."""
        if subject.framing is None:
            return self
        setting = replace(self.setting, data=self.data.framed(subject.framing))
        splits = {split: data.framed(subject.framing) for split, data in self.splits.items()}
        return replace(self, setting=setting, splits=splits)

    def batches(self, data: Dataset | None = None) -> Iterator[Batch]:
        """Yield the images (default: `self.data`) in order, in batches of `self.batch`."""
        data = self.data if data is None else data
        for rows in torch.arange(len(data)).split(self.batch):
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            views = {framing: images[part] for framing, images in data.views.items()}
            images, labels = data.images[part], data.labels[part]
            yield Batch(rows, images, labels, self.seed, views=views)
