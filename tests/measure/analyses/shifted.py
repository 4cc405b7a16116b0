"""Images and small classifiers whose answers can be worked out by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import vitreous
from vitreous.data.dataset import Dataset


class Linear(nn.Module):
    """Scores that are a linear function of the pixels, so that everything about them has a closed
    form."""

    def __init__(self, classes: int = 4, side: int = 8, channels: int = 3, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.image_size = side
        self.head = nn.Linear(channels * side * side, classes)
        self.head.weight.data.mul_(3)
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(images.flatten(1))
        return scores


def noise(count: int = 40, side: int = 8, classes: int = 4, seed: int = 7) -> Dataset:
    """Noise; without labels where there are no classes."""
    pixels = torch.randint(
        0, 256, (count, 3, side, side), generator=torch.Generator().manual_seed(seed)
    )
    labels = torch.arange(count) % classes if classes else torch.full((count,), -1)
    return Dataset(
        pixels.byte(), labels, tuple(f"class {c}" for c in range(classes)), "noise", "test"
    )


def answered(
    model: nn.Module, count: int = 40, side: int = 8, classes: int = 4, wrong: int = 5
) -> Dataset:
    """Noise whose labels are the model's own answers, but for every `wrong`-th image."""
    data = noise(count, side, classes)
    with torch.no_grad():
        labels = model(levels(data.images)).argmax(1)
    labels[::wrong] = (labels[::wrong] + 1) % classes
    return Dataset(data.images, labels, data.classes, "answered", "test")


def levels(images: Tensor) -> Tensor:
    """As a model that says nothing of its normalisation sees uint8 images, in double precision."""
    from vitreous.measure.subject import USUAL

    mean, std = (torch.tensor(given, dtype=torch.float64).view(3, 1, 1) for given in USUAL)
    return (images.double() / 255 - mean) / std


def chosen(data: Dataset, seed: int = 0) -> Dataset:
    """In the order in which an analysis sees them: the classes take turns."""
    from vitreous.data.subsets import class_balanced_order

    return data.take(torch.from_numpy(class_balanced_order(data.labels.numpy(), seed)))


def shapes(count: int = 12) -> Dataset:
    return vitreous.data.load("world:shapes", split="test", size=count)
