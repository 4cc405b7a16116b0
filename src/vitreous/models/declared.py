"""Metadata that a model declares about its training: preprocessing of images, class names.

| key | meaning |
|---|---|
| `mean`, `std` | one number per channel, for levels in [0, 1] |
| `interpolation`, `crop_pct`, `crop_mode` | how pictures are resized and cropped, in timm's words |
| `test_size`, `test_crop_pct` | height and width that timm evaluates at, and its crop there |
| `resize`, `crop_size` | the shorter side in pixels, and the square cut out of it, instead |
| `processor` | JSON of a Hugging Face image processor that does it, to images of `crop_size` |
| `channel_order` | `bgr` if the channels are in that order |
| `label_names` | names of the classes, in the order of the scores |
| `source` | who declares it |
| `data` | the name of the images that a run was trained on |
| `image` | height and width of the images that a run was trained on |
| `size` | height and width that the model of a run takes now |

A model of your own declares it with an attribute: `model.trained_with = {"mean": …, "std": …}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import Any

from torch import nn

from vitreous.models.registry import ConfiguredModel

KEYS = (
    "mean", "std", "interpolation", "crop_pct", "crop_mode", "resize", "crop_size",
    "processor", "channel_order", "label_names", "source", "data",
    "image", "size", "test_size", "test_crop_pct",
)  # fmt: skip

FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
"""timm's names of Pillow's resampling filters, by their numbers."""


def declared_training(model: nn.Module) -> dict[str, Any]:
    """The metadata that a model declares, by the keys above.

    Its attribute `trained_with`, set by you or a loader, has priority over timm's configuration.
    """
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    metadata: dict[str, Any] = {}
    if isinstance(config, Mapping) and config.get("mean") and config.get("std"):
        metadata = {key: config.get(key) for key in ("mean", "std", "label_names")}
        metadata["source"] = "model"
        if not isinstance(model, ConfiguredModel):
            metadata |= _timm_data_config(config)
    own = getattr(model, "trained_with", None)
    if isinstance(own, Mapping) and own:
        if own.get("mean"):
            metadata = {"source": "model", "label_names": metadata.get("label_names")}
        elif own.get("crop_pct"):
            metadata.pop("test_crop_pct", None)
        metadata |= own
    return _known_keys(metadata)


def _timm_data_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A model's configuration as timm resolves it."""
    from timm.data import resolve_data_config

    resolved = resolve_data_config(pretrained_cfg=dict(config))
    evaluated = resolve_data_config(pretrained_cfg=dict(config), use_test_size=True)
    del resolved["input_size"]  # the model's images may have another size by now
    resolved["test_size"] = tuple(evaluated["input_size"][1:])
    return {**resolved, "test_crop_pct": evaluated["crop_pct"], "source": "timm"}


def torchvision_training(weights: Any) -> dict[str, Any]:
    """The metadata of torchvision's weights: their transform and categories."""
    transform = weights.transforms()
    return {
        "mean": tuple(transform.mean),
        "std": tuple(transform.std),
        "interpolation": transform.interpolation.value,
        "resize": int(transform.resize_size[0]),
        "crop_size": int(transform.crop_size[0]),
        "label_names": tuple(weights.meta.get("categories", ())),
        "source": "torchvision",
    }


def processor_training(processor: Any) -> dict[str, Any]:
    """The metadata of an image processor of Hugging Face."""
    mean, std = _processor_normalisation(processor)
    resample = getattr(processor, "resample", None)
    metadata = {
        "mean": mean,
        "std": std,
        "interpolation": "bicubic" if resample is None else FILTERS.get(int(resample), "bicubic"),
        "source": "Hugging Face",
        "processor": processor.to_json_string(),
        **_processor_crop(processor),
    }
    if getattr(processor, "do_flip_channel_order", None):
        metadata["channel_order"] = "bgr"
    return metadata


def _processor_normalisation(processor: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std for levels in [0, 1], for any scale that the processor uses."""
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if getattr(processor, "do_normalize", None):
        mean, std = tuple(processor.image_mean), tuple(processor.image_std)
    if getattr(processor, "do_rescale", True) is False:
        factor = 255.0
    else:
        factor = 255 * float(getattr(processor, "rescale_factor", None) or 1 / 255)
    offset = 1.0 if getattr(processor, "rescale_offset", None) else 0.0
    if abs(factor - 1) < 1e-6 and offset == 0:
        return mean, std
    # (factor · level - offset - mean) / std is (level - (mean + offset) / factor) / (std / factor)
    moved = tuple((each + offset) / factor for each in mean)
    return moved, tuple(each / factor for each in std)


def _processor_crop(processor: Any) -> dict[str, Any]:
    """How a processor resizes and crops, with timm's keys or as `resize`, and the final size."""
    crops = bool(getattr(processor, "do_center_crop", None))
    crop = _sides(getattr(processor, "crop_size", None)) if crops else None
    size = getattr(processor, "size", None)
    shortest, both = _shortest_edge(size), _sides(size)
    share = getattr(processor, "crop_pct", None)
    if shortest is not None and share is not None and crop is None:  # as ConvNeXt's does
        if shortest < 384:
            return {"resize": int(shortest / share), "crop_size": shortest}
        return {"crop_pct": 1.0, "crop_mode": "squash", "crop_size": shortest}
    if getattr(processor, "do_resize", True) is False:
        return {"crop_pct": 1.0, "crop_mode": "center", "crop_size": crop}
    if shortest is not None and crop is None:  # leaves images of many shapes: the middle of them
        return {"resize": shortest, "crop_size": shortest, "processor": ""}
    if shortest is not None:
        return {"resize": shortest, "crop_size": crop}
    if both is not None and crop is not None:
        share = crop_share(crop[0], both[0])
        return {"crop_pct": share, "crop_mode": "squash", "crop_size": crop}
    return {"crop_pct": 1.0, "crop_mode": "squash", "crop_size": both}


def crop_share(crop: int, resized: int) -> float:
    """A share for which timm, which rounds `crop / share` down, gets `resized`."""
    share = crop / resized
    return share if floor(crop / share) == resized else share * (1 - 1e-9)


def _shortest_edge(size: Any) -> int | None:
    """The shorter side that a processor resizes to, from any of the formats in use."""
    if isinstance(size, int):
        return size
    named = size if isinstance(size, Mapping) else vars(size) if size is not None else {}
    value = named.get("shortest_edge")
    return int(value) if value else None


def _sides(size: Any) -> tuple[int, int] | None:
    """Height and width of a processor's size, from any of the formats in use."""
    if isinstance(size, int):
        return size, size
    named = size if isinstance(size, Mapping) else vars(size) if size is not None else {}
    height, width = named.get("height"), named.get("width")
    return (int(height), int(width)) if height and width else None


def _known_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The entries with a key above and a value, with lists as tuples."""
    metadata = {key: config[key] for key in KEYS if config.get(key) is not None}
    tuples = {key: tuple(v) if isinstance(v, list) else v for key, v in metadata.items()}
    return {key: value for key, value in tuples.items() if value != ()}


def declared_undecayed(model: nn.Module) -> set[str]:
    """Names of what the parts of a model list in a method `no_weight_decay`."""
    return {
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        if callable(listed := getattr(module, "no_weight_decay", None))
        for name in listed()
    }
