"""The two ends of inductive bias: a plain MLP on pixels and a small CNN."""

from __future__ import annotations

from math import prod
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.models.registry import Classifier, Image, family, require

MLP_SIZES = {"ti": (128, 128), "s": (512, 512), "b": (2048, 2048)}  # widths of the hidden layers
CNN_SIZES = {"ti": (16, 32, 64), "s": (32, 64, 128), "b": (64, 128, 256)}  # channels of the stages


class Baseline(Classifier):
    """A stack of layers, the mean over whatever positions are left, and a linear head."""

    def __init__(self, features: nn.Sequential, width: int, classes: int) -> None:
        super().__init__(width, classes)
        self.features = features
        self.head = nn.Linear(width, classes) if classes else nn.Identity()

    def forward_features(self, images: Tensor) -> Tensor:
        return self.features(images)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = x.mean((2, 3)) if x.dim() == 4 else x
        return x if pre_logits else self.head(x)


class ConvNormAct(nn.Module):
    """3x3 convolution, batch norm, ReLU."""

    def __init__(self, before: int, after: int, padding_mode: Literal["zeros", "circular"]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, padding=1, padding_mode=padding_mode, bias=False)
        self.norm = nn.BatchNorm2d(after)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))


@family("mlp", MLP_SIZES)
def build_mlp(
    size: tuple[int, ...],
    *,
    image: Image = 32,  # height and width in pixels, or one number for both
    classes: int = 10,  # 0 returns the pooled features
    channels: int = 3,  # of the image
    hidden: tuple[int, ...] | None = None,  # widths of the hidden layers; None: the size table's
    dropout: float = 0.0,  # after every layer
) -> Baseline:
    """Dense layers with GELU on the flattened pixels: no locality and no weight sharing."""
    hidden = size if hidden is None else hidden
    require((bool(hidden), "hidden () needs at least one layer"))
    pixels = channels * (image * image if isinstance(image, int) else prod(image))
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in zip((pixels, *hidden), hidden, strict=False):
        layers += [nn.Linear(before, after), nn.GELU(), nn.Dropout(dropout)]
    return Baseline(nn.Sequential(*layers), hidden[-1], classes)


@family("cnn", CNN_SIZES)
def build_cnn(
    size: tuple[int, ...],
    *,
    image: Image = 32,  # height and width in pixels, or one number for both
    classes: int = 10,  # 0 returns the pooled features
    channels: int = 3,  # of the image
    shrink: Literal["max", "none"] = "max",  # pool after each stage, or keep the resolution
    border: Literal["zeros", "circular"] = "zeros",  # padding of the convolutions
) -> Baseline:
    """Two convolutions per stage and a mean over positions; takes images of any size.

    `shrink="none"` keeps the full resolution, which makes the network equivariant to translation
    (exactly, with `border="circular"`); pooling makes it approximately invariant instead.
    """
    side = image if isinstance(image, int) else min(image)
    smallest = 2 ** len(size) if shrink == "max" else 1
    needed = f"the {smallest} pixels that {len(size)} poolings need"
    require((side >= smallest, f"image {image} is smaller than {needed}"))
    layers: list[nn.Module] = []
    for before, after in zip((channels, *size), size, strict=False):
        layers += [ConvNormAct(before, after, border), ConvNormAct(after, after, border)]
        if shrink == "max":
            layers.append(nn.MaxPool2d(2))
    return Baseline(nn.Sequential(*layers), size[-1], classes)
