"""Preprocessing of images for a model: as in its training, unless the user overrides it.

What a model declares (`vitreous.models.declared`) and what the user sets determine a framing, which
resizes and crops images, and the mean and std of the channels. This module does not import torch,
so that the command line can check options at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, cast

from vitreous.data.framing import PILLOW_FILTERS, CropMode, Framing
from vitreous.errors import UnknownName, VitreousError

CROP_MODES = ("center", "squash", "border", "fit")


@dataclass(frozen=True)
class PreprocessingChoice:
    """Preprocessing set by the user; None for what the model's training determines."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop: float | None = None
    crop_mode: str | None = None
    interpolation: str | None = None
    upright: bool = False

    def __post_init__(self) -> None:
        _check_levels("mean", self.mean)
        _check_levels("std", self.std)
        if (self.mean is None) != (self.std is None):
            given, missing = ("mean", "std") if self.std is None else ("std", "mean")
            raise VitreousError(
                f"{given} is set without {missing}; set both, as the model was trained with both."
            )
        if self.crop is not None and not 0 < self.crop <= 1:
            raise VitreousError(
                f"crop={self.crop} was set; it is the share of the resized picture that is kept, "
                "above 0 and up to 1, such as 0.875."
            )
        if self.interpolation is not None and self.interpolation not in PILLOW_FILTERS:
            known = f"Known are {', '.join(PILLOW_FILTERS)}."
            raise UnknownName("interpolation", self.interpolation, PILLOW_FILTERS, known)
        if self.crop_mode is not None and self.crop_mode not in CROP_MODES:
            known = f"Known are {', '.join(CROP_MODES)}."
            raise UnknownName("crop_mode", self.crop_mode, CROP_MODES, known)


def choose_preprocessing(
    given: Mapping[str, Any] | PreprocessingChoice | None,
) -> PreprocessingChoice:
    """Make and check a `PreprocessingChoice` from a mapping of some of its fields."""
    if given is None:
        return PreprocessingChoice()
    if isinstance(given, PreprocessingChoice):
        return given
    if not isinstance(given, Mapping):
        raise VitreousError(
            f"preprocessing takes a dict such as {{'mean': (0.5, 0.5, 0.5), 'crop': 0.9}}, and not "
            f"{given!r}."
        )
    known = [each.name for each in fields(PreprocessingChoice)]
    for key in given:
        if key not in known:
            raise UnknownName("preprocessing option", str(key), known, f"Known: {', '.join(known)}")
    values = dict(given)
    for key in ("mean", "std"):
        if values.get(key) is not None:
            values[key] = parse_levels(key, values[key])
    return PreprocessingChoice(**values)


def parse_levels(name: str, given: Any) -> tuple[float, ...]:
    """Parse levels per channel: a number, a sequence, or text such as "0.5,0.5,0.5".

    >>> parse_levels("mean", ["0.485,0.456", "0.406"])
    (0.485, 0.456, 0.406)
    """
    several = isinstance(given, Sequence) and not isinstance(given, str)
    several = several or hasattr(given, "tolist")  # numpy's and torch's
    parts: list[Any] = []
    for each in list(given) if several else [given]:
        parts += each.replace(",", " ").split() if isinstance(each, str) else [each]
    try:
        levels = tuple(map(float, parts))
    except (TypeError, ValueError):
        levels = ()
    if not levels:
        raise VitreousError(
            f"{name} takes one number, or one for each channel, such as 0.485,0.456,0.406, and not "
            f"{given!r}."
        )
    return levels


def _check_levels(name: str, levels: tuple[float, ...] | None) -> None:
    if levels is None:
        return
    text = ",".join(f"{level:g}" for level in levels)
    if not all(map(isfinite, levels)) or (name == "std" and min(levels) <= 0):
        raise VitreousError(f"{name}={text} was set; it takes finite numbers, std above 0.")
    if max(levels) > 2:
        scaled = ",".join(f"{level / 255:.3g}" for level in levels)
        raise VitreousError(
            f"{name}={text} was set; levels go from 0 to 1 here, so divide by 255: {name}={scaled}."
        )


def per_channel(name: str, levels: Sequence[float], channels: int, model: str) -> tuple[float, ...]:
    """Expand levels to one number per channel of a model; raise if their number does not fit."""
    if len(levels) == 1:
        return tuple(levels) * channels
    if len(levels) == channels:
        return tuple(levels)
    text = ",".join(f"{level:g}" for level in levels)
    raise VitreousError(
        f"{name}={text} has {len(levels)} numbers, and {model} takes images of {channels} "
        f"channels; give {channels} numbers, or one for all channels."
    )


def model_framing(
    trained: Mapping[str, Any], size: tuple[int, int], choice: PreprocessingChoice
) -> Framing:
    """The framing of a model's images, from what it declares and what the user sets."""
    crop, mode, resize = trained.get("crop_pct"), trained.get("crop_mode"), trained.get("resize")
    if size == trained.get("test_size"):
        crop = trained.get("test_crop_pct", crop)
    processor = trained.get("processor", "")
    declared = trained.get("crop_size")
    height, width = (declared, declared) if isinstance(declared, int) else declared or size
    if (height, width) != size:
        # another image size than the weights declare: keep the same share of the image
        if resize is not None:
            crop = height / resize
        processor, resize = "", None
    if choice.crop is not None:
        crop, resize = choice.crop, None
    mode = choice.crop_mode or mode or ("fit" if crop is None else "center")
    if mode == "fit" and crop not in (None, 1):
        mode = "center"
    if choice.crop_mode is not None:
        resize = None
    if (choice.crop, choice.crop_mode, choice.interpolation) != (None, None, None):
        processor = ""
    return Framing(
        size=size,
        crop=1.0 if crop is None else float(crop),
        mode=cast(CropMode, "center" if resize is not None else mode),
        interpolation=choice.interpolation or trained.get("interpolation", "bicubic"),
        resize=resize,
        processor=processor,
        upright=choice.upright,
        fill=tuple(choice.mean or trained.get("mean", ())) if mode == "border" else (),
    )
