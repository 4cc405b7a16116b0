"""A model under inspection: its name in tables, its parts, and how images are made ready for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.errors import VitreousError
from vitreous.specimen.opening import open as open_model
from vitreous.specimen.specimen import Specimen

Model = nn.Module | Specimen | str
USUAL = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's channels, for models that do not say how their images were normalised."""


@dataclass(frozen=True, eq=False)
class Subject:
    """One of the models side by side."""

    name: str
    specimen: Specimen
    model: nn.Module | None = None
    """As it was given; None for a specimen, whose model is not known any more."""
    mean: tuple[float, ...] = USUAL[0]
    std: tuple[float, ...] = USUAL[1]
    fingerprint: str = ""

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.specimen.parameters()), torch.device("cpu"))

    def prepare(self, images: Tensor) -> Tensor:
        """uint8 (b, 3, h, w) of any size as the model wants them: size, channels, normalisation, type, device."""
        channels, *size = self.specimen.anatomy.image
        weight = next(self.specimen.parameters(), torch.empty(0))
        levels = images.to(weight.device).float() / 255
        if tuple(levels.shape[2:]) != tuple(size):
            levels = F.interpolate(levels, size=size, mode="bicubic", antialias=True, align_corners=False).clamp(0, 1)
        if channels == 1:
            levels = levels.mean(1, keepdim=True)
        mean, std = (levels.new_tensor(given)[:channels].view(-1, 1, 1) for given in (self.mean, self.std))
        return ((levels - mean) / std).to(weight.dtype)


def subjects(
    models: Model | Iterable[Model] | Mapping[str, Model],
    *,
    image: int | None = None,
    pretrained: bool = False,
    device: torch.device | None = None,
) -> tuple[Subject, ...]:
    """Open what was given: one model, several, or several by name."""
    if isinstance(models, Mapping):
        given = [(str(name), model) for name, model in models.items()]
    else:
        several = [models] if isinstance(models, (str, nn.Module)) else list(models)
        given = [(model if isinstance(model, str) else "", model) for model in several]
    if not given:
        raise VitreousError("There is no model to inspect: give at least one.")
    taken: dict[str, int] = {}
    found = []
    for name, model in given:
        subject = _subject(name, model, image, pretrained, device)
        taken[subject.name] = taken.get(subject.name, 0) + 1
        count = taken[subject.name]
        found.append(subject if count == 1 else _renamed(subject, f"{subject.name} ({count})"))
    return tuple(found)


def _subject(name: str, model: Model, image: int | None, pretrained: bool, device: torch.device | None) -> Subject:
    if isinstance(model, str):
        from vitreous.models.loading import load

        name, model = name or model, load(model, pretrained=pretrained, image=image)
    specimen = model if isinstance(model, Specimen) else open_model(model, image=image)
    label = name or (specimen.anatomy.model if isinstance(model, Specimen) else type(model).__name__)
    channels = specimen.anatomy.image[0]
    if channels not in (1, 3):
        raise VitreousError(
            f"{label} takes images of {channels} channels; Vitreous has colour and grey images, 3 or 1."
        )
    mean, std = _normalisation(model)
    own = None if isinstance(model, Specimen) else model
    return Subject(
        label, specimen.to(device) if device is not None else specimen, own, mean, std, fingerprint(specimen)
    )


def _renamed(subject: Subject, name: str) -> Subject:
    return Subject(name, subject.specimen, subject.model, subject.mean, subject.std, subject.fingerprint)


def _normalisation(model: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """As timm's and our models say; ImageNet's where nothing is said."""
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None) or {}
    if not isinstance(config, Mapping) or "mean" not in config:
        return USUAL
    return tuple(map(float, config["mean"])), tuple(map(float, config["std"]))


def fingerprint(module: nn.Module) -> str:
    """Of the weights and buffers, wherever they lie."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
