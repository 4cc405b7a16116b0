"""A model to measure: its name in tables, its specimen, and its preprocessing of images."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from logging import getLogger
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitreous.data.dataset import Dataset
from vitreous.data.framing import Framing
from vitreous.devices import one_thread
from vitreous.errors import VitreousError
from vitreous.image_size import ImageSize, format_size
from vitreous.measure.class_names import ClassNames, read_class_names
from vitreous.measure.preprocessing import (
    PreprocessingChoice,
    choose_preprocessing,
    model_framing,
    per_channel,
)
from vitreous.progress import progress
from vitreous.random_numbers import seeded
from vitreous.specimen.opening import open as open_model
from vitreous.specimen.opening import unwrapped
from vitreous.specimen.specimen import Specimen
from vitreous.storage.fingerprints import fingerprint, labelled
from vitreous.weight_pairs import pair_weights

Model = nn.Module | Specimen | str
CheckpointFiles = str | Path | Sequence[str | Path] | Mapping[str, str | Path]
"""A checkpoint, several, or a dict of them by model."""
USUAL = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's mean and std, used where neither model nor dataset declares others."""
Source = Literal["you", "model", "data set", "ImageNet"]

log = getLogger("vitreous")


@dataclass(frozen=True, eq=False)
class Subject:
    """One of the models that are measured."""

    name: str
    specimen: Specimen
    model: nn.Module | None = None
    """The model as the user gave it; None if a specimen was given, which does not keep it."""
    mean: tuple[float, ...] = USUAL[0]
    std: tuple[float, ...] = USUAL[1]
    classes: tuple[str, ...] = ()
    """Names of the classes it was trained for, if known."""
    fingerprint: str = ""
    normalised: Source = "ImageNet"
    """Where mean and std come from."""
    framing: Framing | None = None
    """How images are resized and cropped for it."""
    declared_by: str = ""
    """The library whose metadata declare the preprocessing: timm, torchvision, …; else empty."""
    reverse_channels: bool = False
    """Whether its channels are blue, green, red."""

    def for_dataset(self, data: Dataset) -> Subject:
        """Set mean and std: the model's own, else those the dataset declares, else ImageNet's.

        Statistics measured on a folder of images are not used, because the input for one image
        would then depend on the other images. Only this method decides on mean and std.
        """
        if data.split == "all" and _same_place(self.specimen.trained.get("data"), data.name):
            _warn_of_training_images(self.name, data.name)
        if self.normalised in ("you", "model"):
            return self
        declared = not data.measured and (data.mean, data.std) != USUAL
        mean, std = map(self._channels, (data.mean, data.std) if declared else USUAL)
        return replace(self, mean=mean, std=std, normalised="data set" if declared else "ImageNet")

    def _channels(self, levels: tuple[float, ...]) -> tuple[float, ...]:
        """One number per channel of the model; a grey model gets the mean over colours."""
        grey = self.specimen.anatomy.image[0] == 1
        return (sum(levels) / len(levels),) if grey else tuple(map(float, levels))

    @property
    def preprocessing(self) -> dict[str, Any]:
        """The preprocessing of its images, as plain values."""
        settings: dict[str, Any] = {"mean": list(self.mean), "std": list(self.std)}
        if self.framing is not None:
            settings["framing"] = self.framing.to_dict()
        return settings

    def describe_preprocessing(self, data: Dataset) -> str:
        """The preprocessing of a dataset for the model, in words."""
        size = self.specimen.anatomy.image[1:]
        if self.framing is not None and self.framing in (data.framing, *data.views):
            steps = self.framing.describe()
        elif data.image != size:
            steps = f"resized to {format_size(size)} (bicubic)"
        else:
            steps = f"{format_size(size)} as they are"
        mean, std = (" ".join(f"{n:.4g}" for n in levels) for levels in (self.mean, self.std))
        source = self.declared_by if self.normalised == "model" else self.normalised
        evaluated = self.specimen.trained.get("test_size", size)
        if self.specimen.weights == "pretrained" and evaluated != size:
            source += f", which evaluates these weights at {format_size(evaluated)}"
        if self.normalised in ("data set", "ImageNet"):
            owner = "ImageNet's" if self.normalised == "ImageNet" else f"those of {data.name}"
            source = f"{owner}, as the model declares none; --mean and --std set others"
        return f"{steps}; mean {mean}, std {std} ({source or 'model'})"

    @property
    def network(self) -> nn.Module | None:
        """The model itself: without `torch.compile`, DataParallel and the like around it, which
        give its parts other names."""
        return None if self.model is None else unwrapped(self.model)

    @cached_property
    def _output(self) -> tuple[int | None, str]:
        """`outputs` and `no_scores`."""
        with torch.no_grad():
            output = self.specimen(self.prepare(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)))
        scores = logits(output)
        return (None, _why_no_scores(output)) if scores is None else (scores.shape[1], "")

    @property
    def outputs(self) -> int | None:
        """Number of classes; None if the output is not a score for each class."""
        return self._output[0]

    @property
    def no_scores(self) -> str:
        """Why the output is not a score for each class; empty if it is."""
        return self._output[1]

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.specimen.parameters()), torch.device("cpu"))

    def prepare(self, images: Tensor) -> Tensor:
        """Resize and normalise images (b, 3, h, w) uint8 for the model, on its device."""
        channels, *size = self.specimen.anatomy.image
        weight = next(self.specimen.parameters(), torch.empty(0))
        levels = images.to(weight.device).float() / 255
        if tuple(levels.shape[2:]) != tuple(size):
            levels = F.interpolate(
                levels, size=size, mode="bicubic", antialias=True, align_corners=False
            ).clamp(0, 1)
        if channels == 1:
            levels = levels.mean(1, keepdim=True)
        elif self.reverse_channels:
            levels = levels.flip(1)
        mean = _per_channel(self.mean[:channels], levels.device)
        std = _per_channel(self.std[:channels], levels.device)
        return ((levels - mean) / std).to(weight.dtype)


def _same_place(trained: str | None, data: str) -> bool:
    """Whether a run was trained on this dataset."""
    if trained is None or trained.startswith("world:"):
        return False
    return Path(trained.removeprefix("folder:")) == Path(data.removeprefix("folder:"))


@cache
def _warn_of_training_images(model: str, data: str) -> None:
    """Warn, once per model and dataset, that a model was trained on the images."""
    log.warning(
        "%s was trained on images of %r that are among these; --split test, or split='test' in "
        "Python, takes those it has not seen.",
        model,
        data,
    )


@cache
def _note_other_size(model: str, trained: str, inspected: str) -> None:
    """Log once that a run is measured at another image size than it was trained at."""
    log.warning("%s was trained at %s, inspected at %s.", model, trained, inspected)


@cache
def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Values as (channels, 1, 1) on a device; cached, since each transfer makes a GPU wait."""
    return torch.tensor(values, device=device).view(-1, 1, 1)


def subjects(
    models: Model | Iterable[Model] | Mapping[str, Model],
    *,
    image: ImageSize | None = None,
    pretrained: bool = False,
    weights: CheckpointFiles | None = None,
    preprocessing: Mapping[str, Any] | PreprocessingChoice | None = None,
    classes: ClassNames | None = None,
    device: torch.device | None = None,
    seed: int = 0,
) -> tuple[Subject, ...]:
    """Open one model, several, or a dict that names them.

    Random weights depend only on the name and the seed. Equal names are numbered: "vit", "vit (2)".
    `weights` are checkpoints, matched to models by `pair_weights`. `classes` are class names for
    the models with this number of scores.
    """
    choice = choose_preprocessing(preprocessing)
    if isinstance(models, Mapping):
        given = [(str(name), model) for name, model in models.items()]
    elif not isinstance(models, (str, nn.Module, Iterable)):
        raise VitreousError(f"A model is a name, an nn.Module or a Specimen, and not {models!r}.")
    else:
        several = [models] if isinstance(models, (str, nn.Module)) else list(models)
        given = [(model if isinstance(model, str) else "", model) for model in several]
    if not given:
        raise VitreousError("There is no model to inspect: give at least one.")
    pairs = pair_weights([name or default_name(model) for name, model in given], weights or ())
    opened: dict[str, Subject] = {}
    with progress("Opening", len(pairs)) as forward, one_thread():
        for pair in pairs:
            model = given[pair.index][1]
            subject = _subject(
                pair.label, model, image, pretrained, pair.weights, choice, device, seed
            )
            free, count = subject.name, 1
            while free in opened:
                count += 1
                free = f"{subject.name} ({count})"
            opened[free] = replace(subject, name=free)
            forward(1)
    result = tuple(opened.values())
    return result if classes is None else _with_class_names(result, read_class_names(classes))


def _with_class_names(subjects: Sequence[Subject], names: Sequence[str]) -> tuple[Subject, ...]:
    """The models; those with as many scores as there are names get these as class names."""
    if not any(each.outputs == len(names) for each in subjects):
        have = ", ".join(f"{each.name} has {each.outputs or 'none'}" for each in subjects)
        raise VitreousError(
            f"classes= names {len(names)} classes, and {have}; give one name for each class of the "
            "model, in the order of its scores."
        )
    return tuple(
        replace(each, classes=tuple(names)) if each.outputs == len(names) else each
        for each in subjects
    )


def default_name(model: Model) -> str:
    """The default name of a model."""
    return model.anatomy.model if isinstance(model, Specimen) else type(model).__name__


def _subject(
    label: str,
    model: Model,
    image: ImageSize | None,
    pretrained: bool,
    weights: str | None,
    choice: PreprocessingChoice,
    device: torch.device | None,
    seed: int,
) -> Subject:
    named = isinstance(model, str)
    if isinstance(model, str):
        from vitreous.models.loading import load_model  # brings timm, which only names need

        with seeded(seed):
            model = load_model(model, pretrained=pretrained, image=image, weights=weights)
        weights = None
    if isinstance(model, Specimen) and weights is not None:
        raise VitreousError(
            f"{label} is a specimen, whose weights are fixed; give the model and its weights."
        )
    if isinstance(model, Specimen):
        specimen = model
    else:
        specimen = open_model(model, image=image, weights=weights)
    channels, *size = specimen.anatomy.image
    trained_at = specimen.trained.get("image")
    if named and trained_at is not None and tuple(trained_at) != tuple(size):
        _note_other_size(label, format_size(trained_at), format_size(size))
    if channels not in (1, 3):
        raise VitreousError(
            f"{label} takes images of {channels} channels; Vitreous has images of 3 or 1."
        )
    own = None if isinstance(model, Specimen) else model
    subject = Subject(
        name=label,
        specimen=_moved(specimen, device, own),
        model=own,
        classes=tuple(map(str, specimen.trained.get("label_names", ()))),
        fingerprint=specimen_fingerprint(specimen),
    )
    return _with_preprocessing(subject, choice)


def _with_preprocessing(subject: Subject, choice: PreprocessingChoice) -> Subject:
    """The model with the preprocessing that it declares, overridden by what the user sets."""
    trained = subject.specimen.trained
    channels, height, width = subject.specimen.anatomy.image
    mean, std = trained.get("mean", USUAL[0]), trained.get("std", USUAL[1])
    source: Source = "model" if "mean" in trained else "ImageNet"
    if choice.mean is not None and choice.std is not None:
        mean = per_channel("mean", choice.mean, channels, subject.name)
        std = per_channel("std", choice.std, channels, subject.name)
        source = "you"
    return replace(
        subject,
        mean=tuple(map(float, mean)),
        std=tuple(map(float, std)),
        normalised=source,
        framing=model_framing(trained, (height, width), choice),
        declared_by=trained.get("source", ""),
        reverse_channels=trained.get("channel_order") == "bgr",
    )


def _moved(specimen: Specimen, device: torch.device | None, own: nn.Module | None) -> Specimen:
    """The specimen on a device. A specimen of the user is copied before it is moved."""
    weight = next(specimen.parameters(), None)
    if device is None or weight is None or weight.device == torch.empty(0, device=device).device:
        return specimen
    return (specimen if own is not None else copy.deepcopy(specimen)).to(device)


def logits(output: Any) -> Tensor | None:
    """Class scores (b, classes) in the output of a model; None if there are none."""
    if isinstance(output, Mapping):
        output = output.get("logits")
    elif isinstance(output, (tuple, list)) and output:
        output = output[0]
    fits = (
        isinstance(output, Tensor)
        and output.ndim == 2
        and output.is_floating_point()
        and output.shape[1] > 1
    )
    return output if fits else None


def _why_no_scores(output: Any) -> str:
    """A sentence on an output in which there are no class scores."""
    if isinstance(output, Mapping) and "logits" not in output:
        names = ", ".join(map(repr, output))
        return f"Its output has no 'logits', from which class scores are read, but {names}."
    if isinstance(output, Mapping):
        output = output["logits"]
    what = "Its output"
    if isinstance(output, (tuple, list)) and output:
        what, output = "The first item of its output", output[0]
    shape = f" (its shape is {tuple(output.shape)})" if isinstance(output, Tensor) else ""
    return f"{what} is not a score for each class{shape}."


def specimen_fingerprint(specimen: Specimen) -> str:
    """The fingerprint of weights, buffers, image size and edits."""
    state = specimen.state_dict()
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    return fingerprint(repr((specimen.anatomy.image, specimen.edits)), *labelled(tensors))
