"""What an analysis works on and with: models, images and seed; its pieces and their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch

from vitreous.data.dataset import Dataset
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch, Setting
from vitreous.measure.subject import Subject

Found = Mapping[str, Mapping[str, Numbers]]
"""The numbers of all pieces, by model and piece."""
Work = Callable[[str], Numbers]
"""Computes the numbers of one piece."""


@dataclass
class Bench:
    """What an analysis works on: models, images, the seed, and how many images pass at a time."""

    setting: Setting
    batch: int
    """Images at a time; halved when memory does not suffice, so read it anew in every piece."""
    splits: Mapping[str, Dataset] = field(default_factory=dict)
    """Other images of the data set, by split, for what is fitted on some and measured on others."""

    @property
    def data(self) -> Dataset:
        return self.setting.data

    @property
    def seed(self) -> int:
        return self.setting.seed

    def shown_to(self, subject: Subject) -> Bench:
        """The same bench, with the images as this model gets them."""
        if subject.framing is None:
            return self
        setting = replace(self.setting, data=self.data.framed(subject.framing))
        splits = {split: data.framed(subject.framing) for split, data in self.splits.items()}
        return replace(self, setting=setting, splits=splits)

    def batches(self, data: Dataset | None = None) -> Iterator[Batch]:
        """The images (default: `self.data`) in order, `self.batch` at a time."""
        data = self.data if data is None else data
        for rows in torch.arange(len(data)).split(self.batch):
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            views = {framing: images[part] for framing, images in data.views.items()}
            images, labels = data.images[part], data.labels[part]
            yield Batch(rows, images, labels, self.seed, views=views)
