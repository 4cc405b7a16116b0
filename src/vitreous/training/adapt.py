"""Adapting a trained model to another task: a new classifier, another resolution."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal

from torch import nn

from vitreous.errors import VitreousError
from vitreous.models.resizing import Sides, count_outputs, resize_model

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
    model = resize_model(deepcopy(model), size)
    declared = getattr(model, "trained_with", None)
    if isinstance(declared, Mapping) and "size" in declared:
        model.trained_with = {**declared, "size": size}  # type: ignore[assignment]
    if head != "keep":
        _replace_head(model, classes, head)
    outputs = count_outputs(model, size)
    if outputs != classes:
        raise VitreousError(
            f"The model answers with {outputs} classes and the data has {classes}: take "
            "head='zero', a new classifier."
        )
    return model


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
