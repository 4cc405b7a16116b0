"""Why a model does not run on a batch of images, in one sentence: the wrong size, or no images at all."""

from __future__ import annotations

import inspect
from collections import deque

from torch import nn

from vitreous.errors import NotExportable
from vitreous.image_size import format_size
from vitreous.specimen.inputs import Shape, accepted

NAMES = {
    "tokens": (
        "input_ids",
        "ids",
        "tokens",
        "token_ids",
        "text",
        "texts",
        "input_tokens",
        "captions",
        "sentences",
    ),
    "video": ("video", "videos", "clips", "frames", "pixel_values_videos", "volume", "volumes"),
    "audio": ("audio", "waveform", "waveforms", "wav", "speech", "input_values", "input_features"),
    "a series": ("series", "sequences", "time_series", "past_values"),
    "points": ("points", "point_cloud", "coordinates"),
}
"""What an argument of forward is called, by what it holds."""

SYMPTOMS = {
    "'indices'": "integer tokens",
    "conv3d": "video or volumes (5 dimensions)",
    "expected 5, got 4": "video or volumes (5 dimensions)",
    "conv1d": "a series (3 dimensions)",
    "expected 3, got 4": "a series (3 dimensions)",
    "expected 2, got 4": "a table (2 dimensions)",
    "must be sequence": "a list",
    "list indices": "a dict or a list",
    "only integers, slices": "a dict",
    "too many indices for tensor of dimension 4": "a dict, or more than 4 dimensions,",
    "to be 2d or 3d, got 4d": "a series (2 or 3 dimensions)",
    "too many values to unpack": "fewer dimensions, or several inputs",
}
"""What a model takes, by what it says when it gets images."""

TOWERS = (
    "vision_model", "vision_tower", "vision_encoder", "visual", "visual_encoder", "image_encoder", "image_model",
    "image_tower", "img_encoder", "vision", "vision_backbone", "image_backbone", "backbone",
)  # fmt: skip
"""What the part of a model that takes images is called, the plainest first."""


def does_not_run(model: nn.Module, shape: Shape, error: BaseException | None) -> NotExportable:
    """The error to raise for a model that has failed on images of `shape`: what it takes, and what to do."""
    name = type(model).__name__
    if getattr(model.forward, "__func__", model.forward) is nn.Module.forward:
        return NotExportable(
            f"{name} has no forward; put it into a module whose forward takes a batch of images."
        )
    if (takes := surely_takes(model)) is not None:
        return NotExportable(f"{name} {takes} and not one batch of images; {_way_out(model)}.")
    found = next(accepted(model), None)
    if found is not None:
        return NotExportable(
            f"{name} does not run on images of {format_size(shape)} ({first_line(error)}), but it "
            f"runs on {format_size(found)}: say image={found}."
        )
    if (takes := likely_takes(model, error)) is not None:
        return NotExportable(
            f"{name} takes {takes} and not a batch of images ({first_line(error)}); {_way_out(model)}."
        )
    return NotExportable(
        f"{name} does not run on images of {format_size(shape)}, nor of any usual size "
        f"({first_line(error)}); if it takes images, say image=(channels, height, width); if not, {_way_out(model)}."
    )


def surely_takes(model: nn.Module) -> str | None:
    """What a model takes that cannot be called with one batch of images, by the signature of its forward."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in positional if p.default is p.empty]
    by_name = [
        f"{p.name}=" for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty
    ]
    if len(needed) + len(by_name) > 1:
        names = [*needed, *by_name]
        return f"takes {len(names)} inputs ({', '.join(names)})"
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) or (positional and not by_name):
        return None
    words = by_name or [f"**{p.name}" for p in parameters if p.kind is p.VAR_KEYWORD]
    return f"takes its input by name ({words[0]})" if words else "takes no input"


def likely_takes(model: nn.Module, error: BaseException | None) -> str | None:
    """What a model that fails on images of every size takes: by names and annotations, layers, and what it said."""
    parameters = inspect.signature(model.forward).parameters
    first = next(iter(parameters.values()), None)
    name = str(getattr(model, "main_input_name", None) or (first.name if first is not None else ""))
    others = [
        word
        for word in ("pixel_values", "image", "images", "img")
        if word in parameters and word != name
    ]
    for what, names in NAMES.items():
        if name.lower() in names:
            return f"{what} and images ({name}, {others[0]})" if others else f"{what} ({name})"
    annotation = str(first.annotation if first is not None else "").lower().removeprefix("typing.")
    for word in ("list", "sequence", "dict", "mapping", "str"):
        if annotation.startswith((word, f"<class '{word}")):
            return f"a {word} ({name})"
    text = str(error).lower()
    found = next((what for symptom, what in SYMPTOMS.items() if symptom in text), None)
    kinds = {type(module) for module in model.modules()}
    if found is None and nn.Conv2d not in kinds and kinds & {nn.Conv3d, nn.Conv1d}:
        return SYMPTOMS["conv3d"] if nn.Conv3d in kinds else SYMPTOMS["conv1d"]
    return found


def vision_tower(model: nn.Module) -> str | None:
    """The path of the part that takes images, where a part near the top has such a name."""
    queue: deque[tuple[str, nn.Module]] = deque([("", model)])
    while queue:
        path, module = queue.popleft()
        children = dict(module.named_children())
        for name in TOWERS:
            if name in children:
                return f"{path}{name}"
        if path.count(".") < 2:
            queue.extend((f"{path}{name}.", child) for name, child in children.items())
    return None


def _way_out(model: nn.Module) -> str:
    tower = vision_tower(model)
    wrap = "wrap it in a module whose forward takes a batch of images alone"
    return f"open its vision tower, model.{tower}, or {wrap}" if tower else wrap


def first_line(error: BaseException | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).split(" (unhinted")[0].rstrip(".")[:160]
