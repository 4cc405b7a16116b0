"""The two ends of inductive bias: a plain MLP on pixels (A1.25) and a small CNN (A1.26)."""

from __future__ import annotations

from math import prod
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.models.registry import Image, Remembers, check, family


class Plain(Remembers):
    """Features, a mean over whatever positions are left, and a linear head."""

    def __init__(self, features: nn.Sequential, width: int, classes: int) -> None:
        super().__init__()
        self.num_classes, self.num_features = classes, width
        self.features = features
        self.head: nn.Module = nn.Linear(width, classes) if classes else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def forward_features(self, images: Tensor) -> Tensor:
        return self.features(images)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = x.mean((2, 3)) if x.dim() == 4 else x
        return x if pre_logits else self.head(x)

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        check(
            (
                global_pool in (None, "", "avg"),
                f"global_pool {global_pool!r} is not 'avg', the only read-out there is",
            )
        )
        like = next(self.parameters())
        self.num_classes = num_classes
        self.head = (
            nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()
        ).to(like)


@family("mlp", {"ti": (128, 128), "s": (512, 512), "b": (2048, 2048)})
def mlp(
    size: tuple[int, ...],
    *,
    image: Image = 32,  # height and width in pixels, or one number for both
    classes: int = 10,  # 0 leaves the pooled features
    channels: int = 3,  # of the image
    hidden: tuple[int, ...]
    | None = None,  # widths of the hidden layers; None takes them from the size table
    dropout: float = 0.0,  # after every layer
) -> Remembers:
    """Dense layers with GELU on the flattened pixels: no locality, no sharing, hence the many parameters (VIT-24)."""
    hidden = size if hidden is None else hidden
    pixels = channels * (image * image if isinstance(image, int) else prod(image))
    check((bool(hidden), "hidden () needs at least one layer"))
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in zip((pixels, *hidden), hidden, strict=False):
        layers += [nn.Linear(before, after), nn.GELU(), nn.Dropout(dropout)]
    return Plain(nn.Sequential(*layers), hidden[-1], classes)


class ConvBlock(nn.Module):
    """3x3 convolution, norm, ReLU."""

    def __init__(self, before: int, after: int, padding_mode: Literal["zeros", "circular"]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, padding=1, padding_mode=padding_mode, bias=False)
        self.norm = nn.BatchNorm2d(after)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))


@family("cnn", {"ti": (16, 32, 64), "s": (32, 64, 128), "b": (64, 128, 256)})
def cnn(
    size: tuple[int, ...],
    *,
    image: Image = 32,  # height and width in pixels, or one number for both
    classes: int = 10,  # 0 leaves the pooled features
    channels: int = 3,  # of the image
    shrink: Literal["max", "none"] = "max",  # pool after each stage, or keep the resolution
    border: Literal["zeros", "circular"] = "zeros",  # padding of the convolutions
) -> Remembers:
    """Two convolutions per stage and a mean over positions.

    `shrink="none"` keeps the full resolution, which makes it equivariant to translation (exactly, with
    `border="circular"`); max-pooling after each stage makes it approximately invariant instead. Any image size will do.
    """
    side = image if isinstance(image, int) else min(image)
    smallest = 2 ** len(size) if shrink == "max" else 1
    check(
        (
            side >= smallest,
            f"image {image} is smaller than the {smallest} pixels that {len(size)} poolings need",
        )
    )
    layers: list[nn.Module] = []
    for before, after in zip((channels, *size), size, strict=False):
        layers += [ConvBlock(before, after, border), ConvBlock(after, after, border)]
        layers += [nn.MaxPool2d(2)] if shrink == "max" else []
    return Plain(nn.Sequential(*layers), size[-1], classes)
