"""A trained model for another task: a new classifier, another resolution."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Literal

import torch
from torch import nn

from vitreous.errors import VitreousError
from vitreous.models.convit import ConViT, resize_convit
from vitreous.models.registry import ConfiguredModel, build
from vitreous.models.vit import ViT, resize_vit
from vitreous.training.evaluate import eval_mode

Sides = tuple[int, int]
Head = Literal["keep", "zero", "last"]


def adapt(model: nn.Module, *, classes: int, image: int | Sides, head: Head = "zero") -> nn.Module:
    """A copy of a model for another number of classes and another image size.

    Parameters
    ----------
    model
        One of our models or timm's; with `head="keep"` and its own image size, any other.
    classes, image
        What the copy is for. Positions are interpolated where there are any.
    head
        "zero" removes the whole head and attaches a linear one of zeros. "last" draws the last
        layer from N(0, 0.02) and leaves what is before it, as the hidden layer of a pre-training
        head. "keep" raises if the number of classes differs.

    Examples
    --------
    >>> adapt(load_model("nano:vit"), classes=100, image=48)
    """
    size = (image, image) if isinstance(image, int) else image
    model = _resized(deepcopy(model), size)
    if head != "keep":
        _replace_head(model, classes, head)
    outputs = _count_outputs(model, size)
    if outputs != classes:
        raise VitreousError(
            f"The model answers with {outputs} classes and the data has {classes}: take "
            "head='zero', a new classifier."
        )
    return model


def _resized(model: nn.Module, size: Sides) -> nn.Module:
    """The first candidate that takes images of this size."""
    for candidate in _resizing_candidates(model, size):
        try:
            _count_outputs(candidate, size)
        except (AssertionError, RuntimeError, ValueError, VitreousError):
            continue
        return candidate
    raise VitreousError(
        f"{type(model).__name__} cannot take images of {size[0]}x{size[1]}, its weights are tied "
        "to the size it was built for: build it at that size, or resize the images."
    )


def _resizing_candidates(model: Any, size: Sides) -> Iterator[nn.Module]:
    """Ours interpolated, or built at that size with the same weights; timm's by its own method."""
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
        model.set_input_size(img_size=size)
        yield model


def _replace_head(model: Any, classes: int, head: Head) -> None:
    if not hasattr(model, "reset_classifier") or not hasattr(model, "get_classifier"):
        raise VitreousError(
            f"{type(model).__name__} has no reset_classifier, so its head cannot be replaced: "
            "replace it yourself and take head='keep'."
        )
    if head == "zero":
        model.reset_classifier(classes)
        for layer in _classifiers(model):
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)
        return
    for old in _classifiers(model):
        if not isinstance(old, nn.Linear):
            raise VitreousError(
                f"The head of {type(model).__name__} is {type(old).__name__}, no linear layer to "
                "be drawn anew: take head='zero'."
            )
        path = next(name for name, module in model.named_modules() if module is old)
        new = nn.Linear(old.in_features, classes).to(old.weight)
        nn.init.normal_(new.weight, std=0.02)
        nn.init.zeros_(new.bias)
        model.set_submodule(path, new)
    model.num_classes = classes


def _classifiers(model: Any) -> tuple[nn.Module, ...]:
    """The last layers of a model: one, or two if it is distilled."""
    heads = model.get_classifier()
    return heads if isinstance(heads, tuple) else (heads,)


@torch.no_grad()
def _count_outputs(model: nn.Module, size: Sides) -> int:
    """Number of classes that the model outputs for an image of this size."""
    like = next(model.parameters())
    with eval_mode(model):
        output: Any = model(torch.zeros(1, 3, *size, device=like.device, dtype=like.dtype))
    return getattr(output, "logits", output).shape[-1]
