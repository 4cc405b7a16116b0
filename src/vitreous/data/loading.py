"""Load a dataset by name, with one syntax for all sources.

| name | source |
|---|---|
| `photos` | a folder: `photos/train/<class>/*.jpg`, `photos/<class>/*.jpg` or `photos/*.jpg` |
| `photo.jpg`, `photos/*/*.jpg` | one picture, or those that a pattern matches |
| `photos.zip`, `train-{000..004}.tar` | archives of pictures, webdataset shards |
| `train.parquet`, `data/*.parquet` | parquet files with a column of pictures |
| `npz:photos.npz`, `npz:a.npz,b.npz`, `npz:photos` | numpy files with `images` and `labels`, … |
| `tv:CIFAR10` | torchvision |
| `hf:uoft-cs/cifar10`, `hf:name:config`, `hf:./folder` | Hugging Face's datasets |
| `world:shapes` | synthetic images, which need no files |
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

from vitreous.data.dataset import Dataset
from vitreous.data.dataset_names import check_dataset, parse_dataset, plain_name
from vitreous.data.framing import Framing
from vitreous.data.normalisation import measured_normalisation, published_normalisation
from vitreous.data.sources.decode import VERSION, Faults, decode, shared_size
from vitreous.data.sources.image_cache import cache_folder, cached_images, cached_value
from vitreous.data.sources.listing import (
    Listing,
    NoSplit,
    Rows,
    cache_key,
    check_classes,
    enumerate_few,
)
from vitreous.data.subsets import class_balanced_order
from vitreous.data.world.tasks import load_task
from vitreous.devices import ordinary_torch
from vitreous.errors import VitreousError
from vitreous.image_size import ImageSize, image_size
from vitreous.validation import check_ranges

ListSource = Callable[[str, str, Path], Listing]

DEFAULT_SIDE = 224
"""Side of the images if those of a dataset have different sizes."""

REFERENCE = 10_000
"""Maximum number of training images, evenly spread, that determine image size and normalisation."""

log = logging.getLogger("vitreous")


@ordinary_torch()
def load(
    name: Path | str,
    *,
    split: str | None = None,
    image: ImageSize | None = None,
    framing: Framing | None = None,
    size: int | None = None,
    seed: int = 0,
    skip_corrupt: bool = False,
    whole: bool = False,
    cache: Path | str | None = None,
    root: Path | str | None = None,
    memory: int = 2 << 30,
    statistics: bool = True,
    shuffled: bool = False,
) -> Dataset:
    """Load a dataset by name, as one uint8 tensor.

    Parameters
    ----------
    name : str or Path
        A path, `npz:PATH`, `tv:NAME`, `hf:NAME` or `world:TASK`.
    split : str, optional
        train, test, val or all. Default: train, and all images of data without splits. If you ask
        for a split and the data have none, a tenth of each class is the test split, with a warning.
    image : int or sequence of int, optional
        The side in pixels, or height and width (default: the size of all images, else 224x224).
    framing : Framing, optional
        How images are resized and cropped, instead of `image` (default: the middle,
        resized). The images of `world:` are drawn, and not framed.
    size : int, optional
        Maximum number of images, class-balanced.
    seed : int
        Random seed of the choice.
    skip_corrupt : bool
        Leave out files that cannot be decoded, instead of raising an error that names them.
    whole : bool
        Take all images if the data have no splits, or not this one; the split is then called all.
    cache : Path, optional
        Folder of decoded images. Default: `$VITREOUS_CACHE`, else `~/.cache/vitreous`.
    root : Path, optional
        torchvision's folder.
    memory : int
        Images that take more bytes are mapped from the cache.
    statistics : bool
        Measure mean and std of the training images; without it a dataset has the published ones,
        or ImageNet's.
    shuffled : bool
        Return the images in a random order of which every prefix is class-balanced.

    Examples
    --------
    >>> load("world:shapes", split="test", size=100)
    Dataset('world:shapes', 'test': 100 images of 32x32, 10 classes)
    """
    name = str(name)
    check_dataset(name, split)
    check_ranges(size=size, seed=seed)
    name = plain_name(name)
    source, where = parse_dataset(name)
    if split is None:
        split, whole = "train", True
    wanted = _height_and_width(image)
    if framing is None and wanted is not None:
        framing = Framing(wanted)
    if source == "world":
        drawn = _load_world(where, split, wanted, size, seed)
        order = class_balanced_order(drawn.labels.numpy(), seed)
        return drawn.take(torch.from_numpy(order)) if shuffled else drawn
    home = cache_folder(cache)
    downloads = Path(root).expanduser() if root else home / "downloads"
    try:
        listing, train = _list_images(source, where, split, downloads)
    except NoSplit:
        if not whole:
            raise
        split = "all"
        listing, train = _list_images(source, where, split, downloads)
    if listing.complete is not None and whole:
        listing, split = listing.complete, "all"
    elif listing.complete is not None:
        _warn_of_held_out(name, len(train), len(listing.complete))
    classes, total = _classes(name, split, listing, train), len(listing)
    if size is not None:
        listing = listing.take(np.sort(class_balanced_order(listing.labels, seed)[:size]))
    rows = class_balanced_order(listing.labels, seed) if shuffled else None
    decoded = _decoded(name, listing, train, framing, home, memory, skip_corrupt, statistics, rows)
    return replace(decoded, classes=classes, split=split, total=total)


@cache_once
def _warn_once(sentence: str) -> None:
    log.warning(sentence)


def _warn_of_held_out(name: str, train: int, total: int) -> None:
    _warn_once(
        f"{name!r} has no splits of its own: {train:,} of its {total:,} images are for training, "
        f"and {total - train:,}, a tenth of each class, for testing."
    )


def _load_world(
    task: str, split: str, image: tuple[int, int] | None, size: int | None, seed: int
) -> Dataset:
    if image is None:
        return load_task(task, split=split, size=size, seed=seed)
    if image[0] != image[1]:
        raise VitreousError(
            f"Synthetic images are square, and {image[0]}x{image[1]} was asked for."
        )
    return load_task(task, split=split, size=size, image=image[0], seed=seed)


def _height_and_width(image: ImageSize | None) -> tuple[int, int] | None:
    """Height and width; decoded images always have three channels."""
    if image is None:
        return None
    *channels, height, width = image_size(image)
    if channels not in ([], [3]):
        raise VitreousError(
            f"Datasets have images of 3 channels and not {channels[0]}; say "
            f"image={(height, width)}."
        )
    return height, width


def _list_images(module: str, where: str, split: str, root: Path) -> tuple[Listing, Listing]:
    """The split, and the training split, which determines size, classes and normalisation."""
    source = import_module(f"vitreous.data.sources.{module}")
    list_source: ListSource = getattr(source, f"list_{module}")
    listing = list_source(where, split, root)
    if len(listing) == 0 and split == "all":
        raise VitreousError(f"There are no images in {where!r}.")
    if len(listing) == 0:
        raise NoSplit(
            f"The {split!r} split of {where!r} is empty: no class has enough images to hold one "
            "out."
        )
    if split == "train":
        return listing, listing
    try:
        return listing, list_source(where, "train", root)
    except NoSplit:  # a dataset for testing only, or without labels
        return listing, listing


def _classes(name: str, split: str, listing: Listing, train: Listing) -> tuple[str, ...]:
    """Class names, which must equal those of the training split; numbers if there are no names."""
    lowest, highest = listing.labels.min(), listing.labels.max()
    names = listing.classes
    if names is None:
        names = tuple(str(number) for number in range(max(highest, train.labels.max()) + 1))
    else:
        check_classes(f"the {split!r} split of {name!r}", names, train.classes or ())
    if lowest < -1 or highest >= len(names):
        raise VitreousError(
            f"The labels of {name!r} go from {lowest} to {highest}, but it has {len(names)} "
            "classes, counted from 0."
        )
    return names


def _decoded(
    name: str,
    listing: Listing,
    train: Listing,
    framing: Framing | None,
    home: Path,
    memory: int,
    skip: bool,
    statistics: bool,
    order: Rows | None,
) -> Dataset:
    """The decoded images, with the size and the normalisation of the training split."""
    reference = train.take(np.unique(np.linspace(0, len(train) - 1, REFERENCE).astype(np.int64)))
    framing = framing or Framing(_default_size(name, reference, home))
    if order is not None and len(listing) * 3 * np.prod(framing.size) > memory:
        # Decoded in this order, because sorting later would read a memory-mapped array completely.
        listing, order = listing.take(order), None
    try:
        images, faults = _pixels(name, listing, framing, home, memory)
    except MemoryError:
        height, width = framing.size
        room = len(listing) * 3 * height * width / 2**30
        raise VitreousError(
            f"{len(listing):,} images of {name!r} with {height}x{width} pixels take {room:,.0f} "
            "GiB, more than "
            "there is; ask for fewer (size=100) or for smaller ones (image=224)."
        ) from None
    skipped = _skipped(name, listing, faults, skip)
    good = np.setdiff1d(np.arange(len(listing)), list(faults))
    pixels, labels = torch.from_numpy(images[: len(good)]), torch.from_numpy(listing.labels[good])
    data = Dataset(pixels, labels, (), name, skipped=skipped, framing=framing)
    if published := published_normalisation(name):
        data = replace(data, mean=published[0], std=published[1])
    elif statistics:
        decoded = listing.take(good), images
        mean, std = measured_normalisation(name, reference, framing, home, decoded)
        data = replace(data, mean=mean, std=std, measured=True)
    if order is None:
        return data
    return data.take(torch.from_numpy(np.searchsorted(good, order[np.isin(order, good)])))


def _default_size(name: str, reference: Listing, home: Path) -> tuple[int, int]:
    """The size that all images share, else 224x224, with a warning."""
    key = ""
    if reference.key:
        key = cache_key(VERSION, reference.key, reference.rows.tobytes(), "shared size")
    height, width = cached_value(home, key, lambda: shared_size(reference) or (0, 0))
    if height:
        return height, width
    _warn_once(
        f"The images of {name!r} differ in size: the middle of each is resized to "
        f"{DEFAULT_SIDE}x{DEFAULT_SIDE}. --image, or image= in Python, sets another size."
    )
    return DEFAULT_SIDE, DEFAULT_SIDE


def _pixels(
    name: str, listing: Listing, framing: Framing, home: Path, memory: int
) -> tuple[NDArray[np.uint8], Faults]:
    """Decoded images (n, 3, height, width), with the others at the end, and the latter's faults."""
    shape = (len(listing), 3, *framing.size)
    pictures = listing.pictures
    ready = isinstance(pictures, np.ndarray) and framing.keeps(pictures.shape[1:3])
    # For an array that fits into memory, copying is faster than using the cache.
    keep = listing.key and not (ready and np.prod(shape) <= memory)
    key = cache_key(VERSION, listing.key, listing.rows.tobytes(), framing) if keep else ""

    def fill(out: NDArray[np.uint8]) -> Faults:
        if isinstance(listing.pictures, np.ndarray) and ready:
            for start in range(0, len(listing), 4096):
                pictures = listing.pictures[listing.rows[start : start + 4096]]
                out[start : start + 4096] = pictures.transpose(0, 3, 1, 2)  # broadcasts grey
            return {}
        faults = decode(listing, framing, out.__setitem__, name)
        if faults:  # close the gaps
            good = (row for row in range(len(listing)) if row not in faults)
            for place, row in enumerate(good):
                out[place] = out[row]
        return faults

    return cached_images(home, key, shape, fill, memory=memory)


def _skipped(name: str, listing: Listing, faults: Faults, skip: bool) -> tuple[str, ...]:
    """Names of the images left out; raises without `skip`, or if a class loses all its images."""
    if not faults:
        return ()
    why = {
        listing.describe_row(int(listing.rows[row])): fault for row, fault in sorted(faults.items())
    }
    count = f"{len(faults)} of {len(listing)} images of {name!r} cannot be decoded"
    details = enumerate_few([f"{path} ({fault})" for path, fault in why.items()])
    if not skip:
        raise VitreousError(
            f"{count}: {details}; mend or delete them, or leave them out with skip_corrupt=True."
        )
    lost = np.setdiff1d(listing.labels, np.delete(listing.labels, list(faults)))
    if len(lost):
        classes = listing.classes
        names = [classes[each] if classes and each >= 0 else str(each) for each in lost]
        raise VitreousError(
            f"{count}, which leaves none in {enumerate_few(names)}: {details}; mend them."
        )
    _warn_once(f"{count} and are left out: {details}.")
    return tuple(why)
