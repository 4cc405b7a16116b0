"""Parts of a dataset with the same share of every class.

For one seed a smaller share is always contained in a larger one, so that a curve over data sizes
adds images and never exchanges them.
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
    """A share of each class, in the order of the dataset.

    Parameters
    ----------
    data : Dataset
    share : float
        Above 0, at most 1. A class of n images keeps `int(share * n)`.
    seed : int
        Chooses the images (as in Park & Kim 2022).
    first : bool
        Take the first images of each class instead (as in d'Ascoli et al. 2021).

    Examples
    --------
    >>> from vitreous.data import load
    >>> len(fraction(load("world:shapes", size=100), 0.5))
    48
    """
    return data.take(_rows(_chosen(data, share, seed, first)))


def split_off(data: Dataset, share: float, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split a dataset into two parts, for training and validation; the second is a share of each
    class.

    Examples
    --------
    >>> from vitreous.data import load
    >>> training, validation = split_off(load("world:shapes", size=100), 0.2)
    >>> len(training), len(validation)
    (83, 17)
    """
    chosen = _chosen(data, share, seed, first=False)
    return data.take(_rows(~chosen)), data.take(_rows(chosen))


def first_classes(data: Dataset, count: int) -> Dataset:
    """Only the images of the first `count` classes.

    Examples
    --------
    >>> from vitreous.data import load
    >>> first_classes(load("world:shapes", size=100), 2).classes
    ('disc', 'square')
    """
    if not 1 <= count <= len(data.classes):
        raise VitreousError(
            f"{count} classes were asked for, and {data.name!r} has {len(data.classes)}."
        )
    few = data.take(torch.nonzero((data.labels >= 0) & (data.labels < count)).flatten())
    return replace(few, classes=data.classes[:count])


def iso_samples(epochs: int, share: float) -> int:
    """Number of epochs over a share of the images with as many samples as `epochs` over all images.

    Examples
    --------
    >>> iso_samples(epochs=300, share=0.1)
    3000
    """
    _check_share(share)
    return round(epochs / share)


def class_balanced_order(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """All rows (n,) in a random order of which every prefix is class-balanced."""
    drawn = np.random.default_rng(seed).permutation(len(labels))
    rank, count = _rank_in_class(labels[drawn])
    return drawn[np.argsort((rank + 0.5) / count, kind="stable")]


def _chosen(data: Dataset, share: float, seed: int, first: bool) -> NDArray[np.bool_]:
    """Mask (n,) of the rows that belong to a share of each class."""
    _check_share(share)
    labels = data.labels.cpu().numpy()
    order = np.arange(len(labels))
    if not first:
        order = np.random.default_rng(seed).permutation(len(labels))
    rank, count = _rank_in_class(labels[order])
    wanted = np.floor(share * count + 1e-9).astype(np.int64)  # 0.29 · 100 is 28.999999999999996
    for label in np.unique(labels[order][wanted == 0]).tolist():
        name = data.classes[label] if label >= 0 else "no class"
        number = int((labels == label).sum())
        raise VitreousError(
            f"{share:g} of {name!r} is less than one image, as there are {number}; take a larger "
            "share."
        )
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[order[rank < wanted]] = True
    return chosen


def _rank_in_class(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row, its rank within its class, and the size of the class."""
    _, which, counts = np.unique(labels, return_inverse=True, return_counts=True)
    by_class = np.argsort(which, kind="stable")
    rank = np.empty(len(labels), np.int64)
    rank[by_class] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank, counts[which]


def _rows(chosen: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(np.flatnonzero(chosen))


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise VitreousError(f"A share is above 0 and at most 1, and not {share:g}.")
