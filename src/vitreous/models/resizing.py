"""Adapt a model to another image size: interpolate positions, or rebuild it with its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from warnings import catch_warnings

import torch
from torch import nn

from vitreous.errors import VitreousError
from vitreous.models.convit import ConViT, resize_convit
from vitreous.models.registry import ConfiguredModel, build
from vitreous.models.vit import ViT, resize_vit

Sides = tuple[int, int]


def resize_model(model: nn.Module, size: Sides) -> nn.Module:
    """Return the model adapted to images of this size; itself if no change is needed.

    Ours are interpolated, or built at that size with the same weights; timm's are resized by their
    own method, in place.

    Examples
    --------
    >>> resize_model(load_model("nano:vit"), (48, 32))
    """
    for candidate in _candidates(model, size):
        try:
            count_outputs(candidate, size)
        except (AssertionError, RuntimeError, ValueError, VitreousError):
            continue
        return candidate
    raise VitreousError(
        f"{type(model).__name__} cannot take images of {size[0]}x{size[1]}, its weights are tied "
        "to the size it was built for: build it at that size, or resize the images."
    )


def _candidates(model: Any, size: Sides) -> Iterator[nn.Module]:
    if isinstance(model, ConfiguredModel):
        image = model.config["image"]
        if size == ((image, image) if isinstance(image, int) else tuple(image)):
            yield model
            return
    if isinstance(model, ViT):
        yield resize_vit(model, size)
        return
    if isinstance(model, ConViT):
        yield resize_convit(model, size)
        return
    if isinstance(model, ConfiguredModel):
        rebuilt = build(**{**model.config, "image": size})
        old, new = model.state_dict(), rebuilt.state_dict()
        if {k: v.shape for k, v in old.items()} == {k: v.shape for k, v in new.items()}:
            rebuilt.load_state_dict(old)
            yield rebuilt.to(next(model.parameters())).train(model.training)
    yield model
    if hasattr(model, "set_input_size"):
        with catch_warnings(action="ignore", category=UserWarning):
            model.set_input_size(img_size=size)  # whose interpolation torch warns about
        yield model


@torch.no_grad()
def count_outputs(model: nn.Module, size: Sides) -> int:
    """Return the number of classes that the model outputs for an image of this size."""
    like = next(model.parameters())
    modes = {module: module.training for module in model.modules()}
    try:
        output: Any = model.eval()(torch.zeros(1, 3, *size, device=like.device, dtype=like.dtype))
    finally:
        for module, training in modes.items():
            module.training = training
    return int(getattr(output, "logits", output).shape[-1])
