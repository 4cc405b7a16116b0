"""Batches come as asked for, also when they were gathered before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from training.toy import images
from vitreous.data.dataset import Dataset
from vitreous.training.step import BatchFeed, order


def test_prefetched_batches_are_those_requested(tmp_path: Path) -> None:
    """Mapped from a file, with and without the thread, in order and out of order."""
    data = images()
    np.save(tmp_path / "pixels.npy", data.images.numpy())
    pixels = torch.from_numpy(np.load(tmp_path / "pixels.npy", mmap_mode="r+"))
    mapped = Dataset(pixels, data.labels, data.classes, "mapped")
    feed = BatchFeed(mapped, torch.device("meta"))  # anywhere else than where the images are
    assert feed.thread is not None
    batches = order(70, 4, 16, 1, 0, 0)
    for asked, then in [(0, 1), (1, 2), (3, 0), (2, None), (1, None)]:
        got = feed(batches[asked], None if then is None else batches[then])
        assert torch.equal(got[0], data.images[batches[asked]])
        assert torch.equal(got[1], data.labels[batches[asked]])
    assert BatchFeed(data, torch.device("cpu")).thread is None
