"""`tv:CIFAR10`: torchvision's sets for image classification, downloaded if they are not there yet.

The parameters of a constructor (`train=` or `split=`) show how to choose the split, without a table
of datasets. If a dataset keeps its images in one array, that is used; otherwise pictures are read
one by one.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.sources.listing import (
    SPLIT_NAMES,
    LazyPictures,
    Listing,
    NoSplit,
    cache_key,
    channels_last,
    file_stamps,
    hold_out,
    list_all,
)
from vitreous.errors import UnknownName, VitreousError

SETS = (
    "CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "KMNIST", "SVHN", "STL10", "USPS", "SEMEION",
    "Caltech101", "Caltech256", "CLEVRClassification", "Country211", "DTD", "EuroSAT", "FER2013",
    "FGVCAircraft", "Flowers102", "Food101", "GTSRB", "Imagenette", "ImageNet", "OxfordIIITPet",
    "PCAM",
    "RenderedSST2", "StanfordCars", "SUN397", "FakeData",
)  # fmt: skip
"""Datasets with one label per image; torchvision also has boxes, captions, flow and video."""

STALLED = 20.0
"""Seconds without data after which a download is aborted."""


def list_torchvision_sets(where: str, split: str, root: Path) -> Listing:
    """The images of one split."""
    import torchvision.datasets

    check_torchvision_set(where)
    kind = getattr(torchvision.datasets, where)
    parameters = inspect.signature(kind).parameters
    given = {"root": str(root)} if "root" in parameters else {}
    if "train" in parameters and split in ("train", "test"):
        dataset = _build(where, kind, {**given, "train": split == "train"})
        return _listing(where, split, dataset, root)
    if "split" in parameters and split in SPLIT_NAMES:
        return _listing(where, split, _build_split(where, kind, given, split), root)
    if "train" in parameters or "split" in parameters:
        raise NoSplit(f"'tv:{where}' has no split {split!r}; ask for 'train' or 'test'.")
    return hold_out(_listing(where, "", _build(where, kind, given), root), split)


def check_torchvision_set(where: str) -> None:
    """Raise if there is no such set."""
    if where not in SETS:
        raise UnknownName("classification set in torchvision", where, SETS)


def _build_split(where: str, kind: Any, given: dict[str, Any], split: str) -> Any:
    """Build the dataset with the first name of the split that it does not reject (ValueError)."""
    for word in SPLIT_NAMES[split]:
        try:
            return _build(where, kind, {**given, "split": word})
        except ValueError as error:
            if "Unknown value" not in str(error):
                raise
    raise NoSplit(f"'tv:{where}' has no split {split!r}; ask for another.")


def _build(where: str, kind: Any, given: dict[str, Any]) -> Any:
    """The torchvision dataset; its files are downloaded if missing."""
    try:
        return kind(**given)
    except (RuntimeError, OSError) as error:  # raised by torchvision if files are missing
        if "download" not in inspect.signature(kind).parameters:
            raise VitreousError(
                f"The files of 'tv:{where}' are not in {given['root']!r}: {_first_line(error)}."
            ) from error
    except ImportError as error:
        raise VitreousError(
            f"torchvision cannot read 'tv:{where}': {_first_line(error)}."
        ) from error
    try:
        with _download_timeout():
            return kind(**given, download=True)
    except (RuntimeError, OSError) as error:
        raise VitreousError(
            f"'tv:{where}' is not in {given['root']!r} and cannot be downloaded "
            f"({_first_line(error)}); "
            "name the folder where it is with root."
        ) from error


@contextmanager
def _download_timeout() -> Iterator[None]:
    """Set a timeout, without which torchvision waits for an unresponsive server for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALLED)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _listing(where: str, split: str, dataset: Any, root: Path) -> Listing:
    array = getattr(dataset, "data", None)  # one array or tensor, if the set is small
    pictures: Any
    if array is None:
        pictures = LazyPictures(len(dataset), lambda row: dataset[row][0])
    else:
        pictures = channels_last(np.asarray(array), f"The images of 'tv:{where}'")
    names = getattr(dataset, "classes", None) or getattr(dataset, "categories", None)
    classes = None
    if names is not None:
        classes = [name if isinstance(name, str) else name[0] for name in names]
    files = []
    if hasattr(dataset, "root"):
        files = sorted(path for path in root.rglob("*") if path.is_file())
    key = cache_key(where, split, len(dataset), file_stamps(files))
    labels = _labels(dataset)
    return list_all(pictures, labels, classes, lambda row: f"'tv:{where}', image {row}", key)


def _labels(dataset: Any) -> NDArray[np.int64]:
    """Labels from the attribute that has them; as a last resort, open every image for its label."""
    for attribute in ("targets", "labels", "_labels", "y"):
        values = np.asarray(getattr(dataset, attribute, ()))
        if values.shape == (len(dataset),):
            return values.astype(np.int64)
    samples = getattr(dataset, "_samples", None) or dataset
    return np.array([int(label) for _, label in samples], dtype=np.int64)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__
