"""A trained model for another task: a new classifier (A3.04, A3.06) and another resolution (A3.17)."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vitreous.errors import VitreousError
from vitreous.models import convit, vit
from vitreous.models.registry import ConfiguredModel, build
from vitreous.training.evaluate import evaluating

Size = tuple[int, int]
Head = Literal["keep", "zero", "last"]


def adapt(model: nn.Module, *, classes: int, image: int | Size, head: Head = "zero") -> nn.Module:
    """The same weights for `classes` classes and images of size `image`; the given model stays as it is.

    "zero" removes the whole head and attaches a linear one of zeros; "last" draws the last layer anew, N(0, 0.02), and
    leaves what is before it, as the hidden layer of a pre-training head; "keep" refuses a model with another number of
    classes. Positions are interpolated where there are any. It works for our models and timm's, and, with "keep" and
    its own image size, for any other.
    """
    size = (image, image) if isinstance(image, int) else image
    model = _resized(deepcopy(model), size)
    if head == "zero":
        _attach_zeros(model, classes)
    elif head == "last":
        _draw_last(model, classes)
    found = _answer(model, size).shape[-1]
    if found != classes:
        raise VitreousError(
            f"The model answers with {found} classes and the data has {classes}: take head='zero', a new classifier."
        )
    return model


def _resized(model: nn.Module, size: Size) -> nn.Module:
    """The first way that leads to a model which takes images of this size."""
    for candidate in _ways(model, size):
        try:
            _answer(candidate, size)
        except (AssertionError, RuntimeError, ValueError, VitreousError):
            continue
        return candidate
    raise VitreousError(
        f"{type(model).__name__} cannot take images of {size[0]}x{size[1]}, its weights are tied to the size it was "
        "built for: build it at that size, or resize the images."
    )


def _ways(model: Any, size: Size) -> Iterator[nn.Module]:
    """Ours: interpolated, or built anew at that size with the same weights. timm's: by its own method. Or as it is."""
    if isinstance(model, ConfiguredModel) and model.config["image"] in (
        size,
        list(size),
        size[0] if size[0] == size[1] else 0,
    ):
        yield model
        return
    if isinstance(model, vit.ViT):
        yield vit.resize(model, size)
        return
    if isinstance(model, convit.ConViT):
        yield convit.resize(model, size)
        return
    if isinstance(model, ConfiguredModel):
        twin = build(**{**model.config, "image": size})
        shapes = [
            {name: value.shape for name, value in each.state_dict().items()}
            for each in (model, twin)
        ]
        if shapes[0] == shapes[1]:
            twin.load_state_dict(model.state_dict())
            yield twin.to(next(model.parameters())).train(model.training)
    yield model
    if hasattr(model, "set_input_size"):
        model.set_input_size(img_size=size)
        yield model


def _check_replaceable(model: Any) -> None:
    if not hasattr(model, "reset_classifier") or not hasattr(model, "get_classifier"):
        raise VitreousError(
            f"{type(model).__name__} has no reset_classifier, so its head cannot be replaced: replace it yourself and "
            "take head='keep'."
        )


def _draw_last(model: Any, classes: int) -> None:
    """A new last layer in the place of the old one, whatever stands before it."""
    _check_replaceable(model)
    heads = model.get_classifier()
    for old in heads if isinstance(heads, tuple) else (heads,):
        if not isinstance(old, nn.Linear):
            raise VitreousError(
                f"The head of {type(model).__name__} is {type(old).__name__}, no linear layer to be drawn anew: take "
                "head='zero'."
            )
        path = next(name for name, module in model.named_modules() if module is old)
        new = nn.Linear(old.in_features, classes).to(old.weight)
        nn.init.normal_(new.weight, std=0.02)
        nn.init.zeros_(new.bias)
        model.set_submodule(path, new)
    model.num_classes = classes


def _attach_zeros(model: Any, classes: int) -> None:
    _check_replaceable(model)
    model.reset_classifier(classes)
    heads = model.get_classifier()
    with torch.no_grad():
        for linear in heads if isinstance(heads, tuple) else (heads,):
            for parameter in linear.parameters():
                parameter.zero_()


@torch.no_grad()
def _answer(model: nn.Module, size: Size) -> Tensor:
    """What the model says to a grey image."""
    like = next(model.parameters())
    with evaluating(model):
        answer: Any = model(torch.zeros(1, 3, *size, device=like.device, dtype=like.dtype))
    return getattr(answer, "logits", answer)
