"""What comes before the first step: images and model as asked for, and the description of the run."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from vitreous import __version__
from vitreous.config import Recipe
from vitreous.data import load as load_data
from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError
from vitreous.models import loading, runs
from vitreous.random_numbers import derive_seed
from vitreous.storage.fingerprints import checksum, fingerprint
from vitreous.training.adapt import adapt


def images(data: Dataset | str, test: Dataset | None) -> tuple[Dataset, Dataset]:
    """Training and test images that fit together; both are normalised alike."""
    if isinstance(data, str):
        name, data = data, load_data(data)
        test = load_data(name, split="test") if test is None else test
    if test is None:
        raise VitreousError(
            "Training images came without test images: give test=, a Dataset of the same classes."
        )
    for what, ours, theirs in (
        ("classes", data.classes, test.classes),
        ("size", data.image, test.image),
    ):
        if ours != theirs:
            raise VitreousError(
                f"Training and test images differ in their {what}: {ours} and {theirs}."
            )
    if not len(data) or not len(test):
        raise VitreousError(
            f"There are {len(data)} training and {len(test)} test images; both have to be some."
        )
    if bool((data.labels < 0).any()):
        raise VitreousError(f"The images of {data.name!r} have no labels to learn from.")
    return data, replace(test, mean=data.mean, std=data.std)


def model(
    given: nn.Module | str, data: Dataset, recipe: Recipe, seed: int, pretrained: bool
) -> tuple[nn.Module, dict[str, Any]]:
    """The model for these images and classes, and what the run remembers of it.

    A module is trained as it is; a name is built for the data; weights that come with a name (`run:`, `nano:`,
    `pretrained`) are fine-tuned, with another head and at another resolution where the data ask for it.
    """
    classes = len(data.classes)
    if isinstance(given, nn.Module):
        made = (
            given
            if recipe.head == "keep"
            else adapt(given, classes=classes, image=data.image, head=recipe.head)
        )
        return made, {**runs.describe(made, None), "weights": weights_fingerprint(made)}
    torch.manual_seed(derive_seed(seed, "weights"))
    image = data.image[0] if data.image[0] == data.image[1] else data.image
    ready = pretrained or given.partition(":")[0] in ("run", "nano")
    options = {} if ready else dict(recipe.model)
    built = {"name": given, "image": image, "classes": classes, "options": options}
    made = loading.load(
        given,
        pretrained=pretrained,
        image=image,
        classes=None if ready else classes,
        options=options,
    )
    made = adapt(made, classes=classes, image=data.image, head=recipe.head)
    described = runs.describe(
        made, given, **{key: value for key, value in built.items() if key != "name"}
    )
    return made, described | (
        {"from": given, "weights": weights_fingerprint(made)} if ready else {}
    )


def weights_fingerprint(model: nn.Module) -> str:
    """The fingerprint of a model's state dict, names and values in its order."""
    return fingerprint(*(part for entry in model.state_dict().items() for part in entry))


def identity(
    described: dict[str, Any],
    data: Dataset,
    test: Dataset,
    recipe: Recipe,
    seed: int,
    teacher: nn.Module | None,
) -> dict[str, Any]:
    """All that the result depends on, as plain values: `recipe.json`."""
    return {
        "model": described,
        "data": {
            "name": data.name, "images": len(data), "image": data.image, "classes": data.classes,
            "mean": data.mean, "std": data.std, "fingerprint": data.fingerprint,
        },
        "test": {"name": test.name, "images": len(test), "fingerprint": test.fingerprint},
        "recipe": recipe.to_json(),
        "seed": seed,
        "teacher": None if teacher is None else weights_fingerprint(teacher),
    }  # fmt: skip


def title(identity: dict[str, Any]) -> str:
    """A name for the run that a person can read and no other run has."""
    model = identity["model"]
    name = (model.get("build") or model.get("load") or {"name": model.get("module")})["name"]
    words = f"{name}-{identity['data']['name']}-{identity['recipe']['name']}"
    plain = "".join(letter if letter.isalnum() or letter in "-_.+" else "_" for letter in words)
    return f"{plain[:80]}-{checksum(identity)[:8]}"


def environment(device: torch.device) -> dict[str, Any]:
    """What the result should not depend on, but might."""
    return {
        "vitreous": __version__,
        **{
            package: version(package)
            for package in ("torch", "torchvision", "timm", "numpy", "safetensors")
        },
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "threads": torch.get_num_threads(),
        "command": " ".join(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def resident(data: Dataset, device: torch.device) -> Dataset:
    """On the GPU, if it takes less than a third of what is free there; otherwise where it is."""
    if device.type != "cuda":
        return data
    free, _ = torch.cuda.mem_get_info(device)
    return data.to(device) if data.images.numel() < free / 3 else data
