"""Parts of a set, as the papers take them: the same share of every class (A3.11, A3.12, A3.23).

For one seed a smaller share is always contained in a larger one, so that a curve over data sizes adds images and never
exchanges them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError


def fraction(data: Dataset, share: float, *, seed: int = 0, first: bool = False) -> Dataset:
    """A share of each class, `int(share · n)` of its n images: drawn by `seed`, or the `first` ones as they are listed.

    How Vision Transformers work takes them at random and ConViT takes the first (A3.11). Images keep their order.
    """
    return data.take(_rows(_chosen(data, share, seed, first)))


def split_off(data: Dataset, share: float, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """The set in two parts, the second a share of each class: for validation. Every image is in one of them."""
    chosen = _chosen(data, share, seed, first=False)
    return data.take(_rows(~chosen)), data.take(_rows(chosen))


def first_classes(data: Dataset, count: int) -> Dataset:
    """Only the images of the first `count` classes."""
    if not 1 <= count <= len(data.classes):
        raise VitreousError(
            f"{count} classes were asked of {data.name!r}, which has {len(data.classes)}."
        )
    few = data.take(torch.nonzero((data.labels >= 0) & (data.labels < count)).flatten())
    return replace(few, classes=data.classes[:count])


def iso_samples(epochs: int, share: float) -> int:
    """Epochs over a share of the images in which a model sees as many as in `epochs` over all of them (A3.12)."""
    _check(share)
    return round(epochs / share)


def spread(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """All rows, in an order whose every beginning holds the classes in proportion, as nearly as can be."""
    drawn = np.random.default_rng(seed).permutation(len(labels))
    place, count = _places(labels[drawn])
    return drawn[np.argsort((place + 0.5) / count, kind="stable")]


def _chosen(data: Dataset, share: float, seed: int, first: bool) -> NDArray[np.bool_]:
    """Which rows belong to a share of each class."""
    _check(share)
    labels = data.labels.cpu().numpy()
    order = (
        np.arange(len(labels)) if first else np.random.default_rng(seed).permutation(len(labels))
    )
    place, count = _places(labels[order])
    wanted = np.floor(share * count + 1e-9).astype(np.int64)  # 0.29 · 100 is 28.999999999999996
    for label in np.unique(labels[order][wanted == 0]).tolist():
        name = data.classes[label] if label >= 0 else "no class"
        found = int((labels == label).sum())
        raise VitreousError(
            f"{share:g} of {name!r} is no image at all, as it has {found}; take a larger share."
        )
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[order[place < wanted]] = True
    return chosen


def _places(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row how many of its class come before it, and how many there are."""
    _, which, counts = np.unique(labels, return_inverse=True, return_counts=True)
    together = np.argsort(which, kind="stable")
    place = np.empty(len(labels), np.int64)
    place[together] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return place, counts[which]


def _rows(chosen: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(np.flatnonzero(chosen))


def _check(share: float) -> None:
    if not 0 < share <= 1:
        raise VitreousError(f"A share is above 0 and at most 1, and not {share:g}.")
