"""`tv:CIFAR10`: the image classification sets of torchvision, downloaded when they are not there yet.

They are told apart by what their constructors take (`train=` or `split=`) and not by a table of our own. A set that
keeps its images in one array gives them at once; any other is asked for its pictures one by one.
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.sources.arrays import channels_last
from vitreous.data.sources.listing import WORDS, Listing, NoSplit, hold_out, key_of, listing, stamps
from vitreous.errors import UnknownName, VitreousError

NAMES = (
    *("CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "KMNIST", "SVHN", "STL10", "USPS", "SEMEION"),
    *(
        "Caltech101",
        "Caltech256",
        "CLEVRClassification",
        "Country211",
        "DTD",
        "EuroSAT",
        "FER2013",
        "FGVCAircraft",
    ),
    *("Flowers102", "Food101", "GTSRB", "Imagenette", "ImageNet", "OxfordIIITPet", "PCAM"),
    *("RenderedSST2", "StanfordCars", "SUN397", "FakeData"),
)
"""Sets of one label an image; torchvision has others, of boxes, captions, flow and video."""

STALLED = 20.0
"""Seconds a download may stand still."""


def find(where: str, split: str, root: Path) -> Listing:
    """The images of one split. A set without splits has a tenth held out, as everywhere."""
    import torchvision.datasets

    check_name(where)
    kind = getattr(torchvision.datasets, where)
    takes = inspect.signature(kind).parameters
    given = {"root": str(root)} if "root" in takes else {}
    if "train" in takes and split in ("train", "test"):
        return _listing(
            where, split, _made(where, kind, {**given, "train": split == "train"}), root
        )
    if "split" in takes and split in WORDS:
        return _listing(where, split, _by_word(where, kind, given, split), root)
    if "train" in takes or "split" in takes:
        raise NoSplit(f"'tv:{where}' has no split {split!r}; ask for 'train' or 'test'.")
    whole = _listing(where, "", _made(where, kind, given), root)
    return hold_out(whole, split, [str(row) for row in range(len(whole))])


def check_name(where: str) -> None:
    """Whether there is such a set."""
    if where not in NAMES:
        raise UnknownName("classification set in torchvision", where, NAMES)


def _by_word(where: str, kind: Any, given: dict[str, Any], split: str) -> Any:
    """The set calls its splits as it likes, and says so only when asked for one that it does not have."""
    for word in WORDS[split]:
        try:
            return _made(where, kind, {**given, "split": word})
        except ValueError as error:
            if "Unknown value" not in str(error):
                raise
    raise NoSplit(f"'tv:{where}' has no split {split!r}; ask for another.")


def _made(where: str, kind: Any, given: dict[str, Any]) -> Any:
    """The set as torchvision gives it, which is downloaded if its files are not there."""
    try:
        return kind(**given)
    except (RuntimeError, OSError) as error:  # how it says that files are missing
        if "download" not in inspect.signature(kind).parameters:
            raise VitreousError(
                f"The files of 'tv:{where}' are not in {given['root']!r}: {_line(error)}."
            ) from error
    except ImportError as error:
        raise VitreousError(f"torchvision cannot read 'tv:{where}': {_line(error)}.") from error
    try:
        with _impatient():
            return kind(**given, download=True)
    except (RuntimeError, OSError) as error:
        raise VitreousError(
            f"'tv:{where}' is not in {given['root']!r} and cannot be downloaded ({_line(error)}); "
            "name the folder where it is with root."
        ) from error


@contextmanager
def _impatient() -> Iterator[None]:
    """torchvision waits for a silent server for ever; here it gives up."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(STALLED)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _listing(where: str, split: str, dataset: Any, root: Path) -> Listing:
    data = getattr(dataset, "data", None)  # one array or tensor, if the set is small
    whole = None if data is None else channels_last(np.asarray(data), f"The images of 'tv:{where}'")
    pictures = Pictures(dataset) if whole is None else whole
    names = getattr(dataset, "classes", None) or getattr(dataset, "categories", None)
    classes = (
        None if names is None else [name if isinstance(name, str) else name[0] for name in names]
    )
    files = (
        sorted(path for path in root.rglob("*") if path.is_file())
        if hasattr(dataset, "root")
        else []
    )
    key = key_of(where, split, len(dataset), stamps(files))
    return listing(
        pictures, _labels(dataset), classes, lambda row: f"'tv:{where}', image {row}", key
    )


def _labels(dataset: Any) -> NDArray[np.int64]:
    """From wherever the set keeps them; as a last resort every image is opened for its label."""
    for place in ("targets", "labels", "_labels", "y"):
        found = np.asarray(getattr(dataset, place, ()))
        if found.shape == (len(dataset),):
            return found.astype(np.int64)
    return np.array(
        [int(label) for _, label in getattr(dataset, "_samples", None) or dataset], dtype=np.int64
    )


class Pictures(Sequence[Any]):
    """The pictures of a set, without their labels."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: Any) -> Any:
        return self.dataset[row][0]


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".") or type(error).__name__
