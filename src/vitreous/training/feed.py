"""Batches on their way to the device."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from vitreous.data.dataset import Dataset

Batch = tuple[Tensor, Tensor]


class Feed:
    """Rows of a data set. Images that lie on the device are picked there; of others, too many for the GPU or mapped
    from a file, the next batch is gathered by a thread while the device works on this one.
    """

    def __init__(self, data: Dataset, device: torch.device) -> None:
        self.data, self.pinned = data, device.type == "cuda"
        self.apart = data.images.device.type != device.type
        self.helper = ThreadPoolExecutor(1) if self.apart else None
        self.coming: tuple[Tensor, Future[Batch]] | None = None

    def __call__(self, rows: Tensor, then: Tensor | None = None) -> Batch:
        """Images and labels of `rows`; `then` are the rows that will be asked for next."""
        if self.helper is None:
            return self.gather(rows)
        ready = self.coming is not None and torch.equal(self.coming[0], rows)
        batch = self.coming[1].result() if ready and self.coming else self.gather(rows)
        self.coming = None if then is None else (then, self.helper.submit(self.gather, then))
        return batch

    def gather(self, rows: Tensor) -> Batch:
        index = rows.to(self.data.images.device)
        images, labels = (
            self.data.images[index],
            self.data.labels[index.to(self.data.labels.device)],
        )
        return (images.pin_memory(), labels) if self.apart and self.pinned else (images, labels)
