"""Images as users give them: by name, by path, or as a `Dataset` of their own."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError

CHANNELS = (1, 3)


def given_images(data: object) -> Dataset | str:
    """A name, also of a path, or a `Dataset` whose tensors are what they have to be.

    Float images would be normalised as if they were bytes, and every number would be wrong.
    """
    if isinstance(data, (str, Path)):
        return str(data)
    if not isinstance(data, Dataset):
        raise VitreousError(
            f"Images were given as {type(data).__name__}; give a path, a name such as "
            "'world:shapes', or your tensors as vitreous.data.Dataset(images, labels, classes, "
            "name)."
        )
    if problem := _images_problem(data.images) or _labels_problem(data):
        raise VitreousError(f"The dataset {data.name!r} cannot be used: {problem}.")
    return data


def _images_problem(images: object) -> str:
    if not isinstance(images, Tensor) or images.dtype != torch.uint8:
        floats = "float" in str(getattr(images, "dtype", ""))
        hint = "; (255 * images).round().to(torch.uint8) converts floats from 0 to 1"
        return (
            f"its images are {_kind(images)} and have to be a tensor of torch.uint8, from 0 to 255"
            f"{hint * floats}"
        )
    if images.ndim != 4 or images.shape[1] not in CHANNELS:
        return (
            f"its images have the shape {tuple(images.shape)} and need (images, channels, height, "
            "width), with 3 channels or 1"
        )
    return ""


def _labels_problem(data: Dataset) -> str:
    labels = data.labels
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64:
        return f"its labels are {_kind(labels)} and have to be a tensor of torch.int64"
    if labels.shape != data.images.shape[:1]:
        return f"it has {len(data.images)} images and labels of the shape {tuple(labels.shape)}"
    if len(labels) and int(labels.max()) >= len(data.classes):
        return (
            f"its largest label is {int(labels.max())}, and {len(data.classes)} classes are named; "
            "labels count from 0, and -1 is unknown"
        )
    return ""


def _kind(values: object) -> str:
    dtype = getattr(values, "dtype", None)
    return type(values).__name__ if dtype is None else f"{type(values).__name__} of {dtype}"
