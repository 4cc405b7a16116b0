"""Mean and standard deviation of a dataset's channels, always those of its training split.

They are measured over all pixels of the reference images (see `loading`), independent of how many
images are loaded, so that a model trained on a dataset can be tested on a part of it.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from vitreous.data.dataset import Triple
from vitreous.data.framing import Framing
from vitreous.data.sources.decode import VERSION, decode
from vitreous.data.sources.image_cache import cached_value
from vitreous.data.sources.listing import Listing, Rows, cache_key

PUBLISHED: dict[str, tuple[Triple, Triple]] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
}
"""The papers' values, by the last word of the name at torchvision or Hugging Face.

The deviations of CIFAR-10 are smaller than those of its pixels (.247 .243 .262); so are the
papers'.
"""


def published_normalisation(name: str) -> tuple[Triple, Triple] | None:
    """Published mean and std of a dataset; None if there are none.

    >>> published_normalisation("tv:CIFAR10")[0]
    (0.4914, 0.4822, 0.4465)
    """
    source, _, where = name.partition(":")
    published = PUBLISHED.get(where.rpartition("/")[2].lower())
    return published if source in ("tv", "hf") else None


def measured_normalisation(
    name: str,
    reference: Listing,
    framing: Framing,
    home: Path,
    decoded: tuple[Listing, NDArray[np.uint8]],
) -> tuple[Triple, Triple]:
    """Mean and std of the reference images; images among `decoded` are not decoded again."""

    def measure() -> tuple[Triple, Triple]:
        listing, images = decoded
        same_key = listing.key != "" and listing.key == reference.key
        rows = np.flatnonzero(np.isin(listing.rows, reference.rows))
        if (listing.pictures is reference.pictures or same_key) and len(rows) == len(reference):
            return _mean_and_std(_histogram(images, rows))
        return _mean_and_std(_histogram_of_undecoded(name, reference, framing))

    key = ""
    if reference.key:
        parts = (VERSION, reference.key, reference.rows.tobytes(), framing)
        key = cache_key(*parts, "normalisation")
    mean, std = cached_value(home, key, measure)
    return tuple(mean), tuple(std)


def _histogram_of_undecoded(name: str, reference: Listing, framing: Framing) -> NDArray[np.int64]:
    """The histogram of images that are decoded only for this purpose."""
    pictures = reference.pictures
    if isinstance(pictures, np.ndarray) and framing.keeps(pictures.shape[1:3]):
        return _histogram(pictures.transpose(0, 3, 1, 2), reference.rows)
    total, lock = np.zeros((3, 256), np.int64), Lock()

    def add(_: int, pixels: NDArray[np.uint8]) -> None:
        counts = _histogram(pixels[None], np.zeros(1, np.int64))
        with lock:
            np.add(total, counts, out=total)

    decode(reference, framing, add, f"training images of {name}")
    return total


def _histogram(images: NDArray[np.uint8], rows: Rows) -> NDArray[np.int64]:
    """Count each level in each channel, (3, 256); grey counts for all three channels."""
    total = np.zeros((3, 256), np.int64)
    for part in np.array_split(rows, max(len(rows) // 256, 1)):
        pixels = np.broadcast_to(images[part], (len(part), 3, *images.shape[2:]))
        total += [np.bincount(pixels[:, channel].ravel(), minlength=256) for channel in range(3)]
    return total


def _mean_and_std(histogram: NDArray[np.int64]) -> tuple[Triple, Triple]:
    """Mean and std in [0, 1]; std is at least one level, so that constant images stay finite."""
    share, value = histogram / max(int(histogram[0].sum()), 1), np.arange(256) / 255
    mean = share @ value
    std = np.sqrt((share * (value - mean[:, None]) ** 2).sum(1)).clip(1 / 255)
    (r, g, b), (rs, gs, bs) = mean.tolist(), std.tolist()
    return (r, g, b), (rs, gs, bs)
