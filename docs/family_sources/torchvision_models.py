"""Every classifier and segmentation model of torchvision, and the backbone of every detector;
random weights."""

from __future__ import annotations

from types import ModuleType

import torchvision
from torch import nn
from torchvision import models

LIBRARY = f"torchvision {torchvision.__version__.split('+')[0]}"
SIDES = {"inception_v3": 299, "ssd300_vgg16": 300}
"""Models that need more than the 64 pixels that are enough for the others."""

MINIMUM = 64


def names() -> list[str]:
    detectors = [f"{name}.backbone" for name in models.list_models(module=models.detection)]
    return [
        *models.list_models(module=models),
        *models.list_models(module=models.segmentation),
        *detectors,
    ]


def label(name: str) -> str:
    return name


def build(name: str) -> tuple[nn.Module, tuple[int, int, int] | None]:
    """The model, and the image size to open it with, which few of torchvision's models know."""
    plain, _, part = name.partition(".")
    module: ModuleType = models
    for other in (models.segmentation, models.detection):
        if plain in models.list_models(module=other):
            module = other
    random = {"weights": None} if module is models else {"weights": None, "weights_backbone": None}
    model: nn.Module = models.get_model(plain, **random)
    if part:
        model = getattr(model, part)
    fixed = 224 if plain.startswith(("vit_", "maxvit")) else SIDES.get(plain, MINIMUM)
    return model, (3, fixed, fixed)
