"""A set of images by its name: one grammar for every place images can come from.

| name | where it comes from |
|---|---|
| `folder:photos` | `photos/train/<class>/*.jpg` and `photos/test/<class>/*.jpg`, or `photos/<class>/*.jpg` |
| `npz:photos.npz`, `npz:a.npz,b.npz`, `npz:photos` | numpy files with `images` and `labels`, `x_train`, … |
| `tv:CIFAR10` | torchvision |
| `hf:uoft-cs/cifar10`, `hf:name:config`, `hf:./folder` | Hugging Face's datasets |
| `world:shapes` | the embedded world, which needs no file at all |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cache as cache_once
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vitreous.data import naming
from vitreous.data.dataset import Dataset
from vitreous.data.naming import SOURCES
from vitreous.data.normalisation import normalisation
from vitreous.data.sources import cache as store
from vitreous.data.sources.decode import Faults, decode, size_of
from vitreous.data.sources.listing import Listing, NoSplit, Rows, check_classes, few, key_of
from vitreous.data.subsets import spread
from vitreous.errors import VitreousError
from vitreous.image_size import ImageSize, image_size
from vitreous.validation import check_ranges

Find = Callable[[str, str, Path], Listing]

USUAL = 224
"""Side of the images of a set whose images have many sizes."""

REFERENCE = 10_000
"""Images of the training split, evenly spread over it, that decide the image size and the normalisation."""

log = logging.getLogger("vitreous")


def load(
    name: str,
    *,
    split: str = "train",
    image: ImageSize | None = None,
    size: int | None = None,
    seed: int = 0,
    skip_corrupt: bool = False,
    whole: bool = False,
    cache: Path | str | None = None,
    root: Path | str | None = None,
    memory: int = 2 << 30,
) -> Dataset:
    """The images called `name` as one uint8 tensor.

    `split` is train, test, val or all. Of a set that has no splits of its own, a tenth of each class is held out for
    testing, which a warning says; with `whole` it gives all its images, and its split is called all. `image` is the
    side in pixels, or height and width; without it images keep the size they all share, or become 224x224. `size` takes
    at most so many, from every class alike, drawn by `seed`. Files that cannot be decoded are an error that names them,
    unless `skip_corrupt` leaves them out. Decoded images are kept in the folder `cache`, and mapped from there if they
    take more than `memory` bytes. `root` is torchvision's folder.
    """
    source, _, where = name.partition(":")
    naming.check(name, split)
    check_ranges(size=size, seed=seed)
    wanted = _size(image)
    if source == "world":
        return _world(where, split, wanted, size, seed)
    home = store.folder(cache)
    find: Find = import_module(f"vitreous.data.sources.{SOURCES[source]}").find
    listing, train = _find(
        find, where, split, Path(root).expanduser() if root else home / "downloads"
    )
    if listing.whole is not None and whole:
        listing, split = listing.whole, "all"
    elif listing.whole is not None:
        _announce(name, listing.whole, train)
    classes, total = _classes(name, split, listing, train), len(listing)
    if size is not None:
        listing = listing.take(np.sort(spread(listing.labels, seed)[:size]))
    found = _decoded(name, listing, train, wanted, home, memory, skip_corrupt)
    return replace(found, classes=classes, split=split, total=total)


def _decoded(
    name: str,
    listing: Listing,
    train: Listing,
    wanted: tuple[int, int] | None,
    home: Path,
    memory: int,
    skip: bool,
) -> Dataset:
    """The images themselves, of the size and with the normalisation that the training split decides."""
    reference = train.take(np.unique(np.linspace(0, len(train) - 1, REFERENCE).astype(np.int64)))
    shown = wanted or _shared_size(reference, home)
    try:
        images, faults = _pixels(name, listing, shown, home, memory)
    except MemoryError:
        raise _too_large(name, len(listing), shown) from None
    skipped = _skipped(name, listing, faults, skip)
    good = np.setdiff1d(np.arange(len(listing)), list(faults))
    mean, std = normalisation(name, reference, shown, home, have=(listing.take(good), images))
    pixels, labels = torch.from_numpy(images[: len(good)]), torch.from_numpy(listing.labels[good])
    return Dataset(pixels, labels, (), name, mean=mean, std=std, skipped=skipped)


@cache_once
def _announced(sentence: str) -> None:
    log.warning(sentence)


def _announce(name: str, whole: Listing, train: Listing) -> None:
    """Once a process that images are held out which nobody asked to hold out."""
    rest = len(whole) - len(train)
    _announced(
        f"{name!r} has no splits of its own: {len(train):,} of its {len(whole):,} images are for training, and "
        f"{rest:,}, a tenth of each class, for testing."
    )


def _too_large(name: str, count: int, size: tuple[int, int]) -> VitreousError:
    room = count * 3 * size[0] * size[1] / 2**30
    return VitreousError(
        f"{count:,} images of {name!r} with {size[0]}x{size[1]} pixels take {room:,.0f} GiB, more than there is; ask "
        "for fewer (size=100, for one) or for smaller ones (image=224)."
    )


def _world(
    task: str, split: str, image: tuple[int, int] | None, size: int | None, seed: int
) -> Dataset:
    from vitreous.data import world

    if image is None:
        return world.load(task, split=split, size=size, seed=seed)
    if image[0] != image[1]:
        raise VitreousError(
            f"Images of the world are square, and {image[0]}x{image[1]} was asked for."
        )
    return world.load(task, split=split, size=size, image=image[0], seed=seed)


def _size(image: ImageSize | None) -> tuple[int, int] | None:
    """Height and width; decoded images have three channels, whatever is asked."""
    if image is None:
        return None
    *channels, height, width = image_size(image)
    if channels not in ([], [3]):
        raise VitreousError(
            f"Data sets have images of 3 channels and not {channels[0]}; say image={(height, width)}."
        )
    return height, width


def _find(find: Find, where: str, split: str, root: Path) -> tuple[Listing, Listing]:
    """What was asked for, and the training split, which decides how it is presented."""
    listing = find(where, split, root)
    if len(listing) == 0:
        raise NoSplit(
            f"The {split!r} split of {where!r} is empty: no class has enough images to hold one out."
        )
    try:
        return listing, listing if split == "train" else find(where, "train", root)
    except NoSplit:  # a set for testing, or without labels, stands for itself
        return listing, listing


def _classes(name: str, split: str, listing: Listing, train: Listing) -> tuple[str, ...]:
    """Names of the classes, which have to be those of the training split; numbers where there are no names."""
    lowest, highest = listing.labels.min(), listing.labels.max()
    names = listing.classes
    if names is None:
        names = tuple(str(number) for number in range(max(highest, train.labels.max()) + 1))
    else:
        check_classes(f"the {split!r} split of {name!r}", names, train.classes or ())
    if lowest < -1 or highest >= len(names):
        raise VitreousError(
            f"The labels of {name!r} go from {lowest} to {highest}, but it has {len(names)} classes, counted from 0."
        )
    return names


def _shared_size(reference: Listing, home: Path) -> tuple[int, int]:
    key = key_of(reference.key, reference.rows.tobytes(), "size") if reference.key else ""
    height, width = store.note(home, key, lambda: size_of(reference) or (USUAL, USUAL))
    return height, width


def _pixels(
    name: str, listing: Listing, size: tuple[int, int], home: Path, memory: int
) -> tuple[NDArray[np.uint8], Faults]:
    """The images that can be decoded, first in the array, and those that cannot."""
    shape = (len(listing), 3, *size)
    ready = isinstance(listing.pictures, np.ndarray) and listing.pictures.shape[1:3] == size
    keep = listing.key and not (
        ready and np.prod(shape) <= memory
    )  # an array is copied faster than found
    key = key_of(listing.key, listing.rows.tobytes(), size) if keep else ""
    return store.images(
        home, key, shape, lambda out: _fill(name, listing, size, out), memory=memory
    )


def _fill(name: str, listing: Listing, size: tuple[int, int], out: NDArray[np.uint8]) -> Faults:
    """Decode, and close the gaps that faulty images leave."""
    if isinstance(listing.pictures, np.ndarray) and listing.pictures.shape[1:3] == size:
        for start in range(0, len(listing), 4096):
            rows: Rows = listing.rows[start : start + 4096]
            out[start : start + 4096] = listing.pictures[rows].transpose(
                0, 3, 1, 2
            )  # grey fills all three
        return {}
    faults = decode(listing, size, out.__setitem__, name)
    good = (row for row in range(len(listing)) if row not in faults)
    for place, row in enumerate(good if faults else ()):
        out[place] = out[row]
    return faults


def _skipped(name: str, listing: Listing, faults: Faults, skip: bool) -> tuple[str, ...]:
    """Names of the images left out; an error if nobody asked for that, or if a class loses all it had."""
    called = {listing.called(int(listing.rows[row])): why for row, why in sorted(faults.items())}
    if not faults:
        return ()
    said = f"{len(faults)} of {len(listing)} images of {name!r} cannot be decoded"
    told = few([f"{path} ({why})" for path, why in called.items()])
    if not skip:
        raise VitreousError(
            f"{said}: {told}; mend or delete them, or leave them out with skip_corrupt=True."
        )
    lost = np.setdiff1d(listing.labels, np.delete(listing.labels, list(faults)))
    if len(lost):
        names = [
            listing.classes[each] if listing.classes and each >= 0 else str(each) for each in lost
        ]
        raise VitreousError(f"{said}, which leaves none in {few(names)}: {told}; mend them.")
    log.warning("%s and are left out: %s.", said, told)
    return tuple(called)
