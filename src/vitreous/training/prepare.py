"""Preparing a training: the images, the model, and the description of the run."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitreous import __version__
from vitreous.config import Recipe
from vitreous.data import load as load_data
from vitreous.data.dataset import Dataset
from vitreous.data.given import given_images
from vitreous.errors import VitreousError
from vitreous.models.loading import comes_with_weights, describe_model, load_model
from vitreous.models.matching import load_weights
from vitreous.random_numbers import derive_seed, seed_torch
from vitreous.storage.fingerprints import checksum, fingerprint
from vitreous.training.adapt import adapt


def prepare_images(
    data: Dataset | Path | str, test: Dataset | None, recipe: Recipe
) -> tuple[Dataset, Dataset]:
    """Load and check training and test images; both get the training images' mean and std."""
    data = given_images(data)
    if isinstance(data, str):
        name, data = data, load_data(data)
        test = load_data(name, split="test") if test is None else test
    if test is None or isinstance(given_images(test), str):
        raise VitreousError(
            "Training images came without test images: give test=, a Dataset of the same classes."
        )
    pairs = {"classes": (data.classes, test.classes), "size": (data.image, test.image)}
    for what, (ours, theirs) in pairs.items():
        if ours != theirs:
            raise VitreousError(
                f"Training and test images differ in their {what}: {ours} and {theirs}."
            )
    if not len(data) or not len(test):
        raise VitreousError(
            f"There are {len(data)} training and {len(test)} test images; both need at least one."
        )
    if bool((data.labels < 0).any()):
        raise VitreousError(f"The images of {data.name!r} have no labels to learn from.")
    if len(data.classes) < 2 and recipe.objective != "masked":
        raise VitreousError(
            f"All images of {data.name!r} are of one class, {', '.join(data.classes)!r}: there is "
            "nothing to tell apart. Training needs a folder of pictures for each class."
        )
    return data, replace(test, mean=data.mean, std=data.std)


def prepare_model(
    model: nn.Module | str,
    data: Dataset,
    recipe: Recipe,
    seed: int,
    pretrained: bool = False,
    weights: Path | str | None = None,
) -> tuple[nn.Module, dict[str, Any]]:
    """The model for these images and classes, and its description for `recipe.json`.

    A module is trained in place unless the recipe replaces its head. A name is built for the data
    with weights of this seed. Weights that come with a name (`run:`, `nano:`, `pretrained`) or from
    a checkpoint (`weights`) are fine-tuned, with a new head and at another resolution if the data
    need that.
    """
    seed_torch(derive_seed(seed, "weights"))  # a new head of a module is drawn, too
    classes = len(data.classes)
    if isinstance(model, nn.Module) and weights is not None:
        load_weights(model, weights)
    if isinstance(model, nn.Module):
        if recipe.head != "keep":
            model = adapt(model, classes=classes, image=data.image, head=recipe.head)
        return model, {**describe_model(model, None), "weights": weights_fingerprint(model)}
    name = model
    image = data.image[0] if data.image[0] == data.image[1] else data.image
    is_trained = pretrained or weights is not None or comes_with_weights(name)
    options = {} if is_trained else dict(recipe.model)
    model = load_model(
        name,
        pretrained=pretrained,
        image=image,
        classes=None if is_trained else classes,
        options=options,
        weights=weights,
    )
    model = adapt(model, classes=classes, image=data.image, head=recipe.head)
    description = describe_model(model, name, image=image, classes=classes, options=options)
    if is_trained:
        description |= {"from": name, "weights": weights_fingerprint(model)}
    return model, description


def weights_fingerprint(model: nn.Module) -> str:
    """The fingerprint of a model's state dict, names and values in its order."""
    return fingerprint(*(part for entry in model.state_dict().items() for part in entry))


def run_identity(
    model: dict[str, Any],
    data: Dataset,
    test: Dataset,
    recipe: Recipe,
    seed: int,
    teacher: nn.Module | None,
) -> dict[str, Any]:
    """Everything that the result depends on, as plain values: the content of `recipe.json`."""
    return {
        "model": model,
        "data": {
            "name": data.name, "images": len(data), "image": data.image, "classes": data.classes,
            "mean": data.mean, "std": data.std, "fingerprint": data.fingerprint,
        },
        "test": {"name": test.name, "images": len(test), "fingerprint": test.fingerprint},
        "recipe": recipe.to_json(),
        "seed": seed,
        "teacher": None if teacher is None else weights_fingerprint(teacher),
    }  # fmt: skip


def run_title(identity: dict[str, Any]) -> str:
    """A readable folder name that is unique to the run: model, data, recipe and a checksum."""
    model = identity["model"]
    name = (model.get("build") or model.get("load") or {"name": model.get("module")})["name"]
    title = f"{name}-{identity['data']['name']}-{identity['recipe']['name']}"
    letters = (letter if letter.isalnum() or letter in "-_.+" else "_" for letter in title[:80])
    return f"{''.join(letters)}-{checksum(identity)[:8]}"


_version = cache(version)  # finding and parsing one takes milliseconds


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware and command: what the result should not depend on, but might."""
    packages = ("torch", "torchvision", "timm", "numpy", "safetensors")
    return {
        "vitreous": __version__,
        **{package: _version(package) for package in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "threads": torch.get_num_threads(),
        "command": " ".join(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def move_to_gpu(data: Dataset, device: torch.device) -> Dataset:
    """The images on the GPU if they take less than a third of its free memory, else unchanged."""
    if device.type != "cuda":
        return data
    free, _ = torch.cuda.mem_get_info(device)
    return data.to(device) if data.images.numel() < free / 3 else data
