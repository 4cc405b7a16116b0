"""Framing: how an image of any size is resized and cropped for a model.

Pixels stay 8-bit; mean and std are applied later. Resizing and cropping are done by the library
that the model comes from, so that pixels are equal to the last bit: timm's evaluation transform, or
torchvision's `Resize` and `CenterCrop`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

CropMode = Literal["fit", "center", "squash", "border"]

PILLOW_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
    "lanczos": Image.Resampling.LANCZOS,
}
"""Interpolations by timm's names."""


@dataclass(frozen=True)
class Framing:
    """How an image is rotated, resized and cropped."""

    size: tuple[int, int]
    """Height and width of the result."""
    crop: float = 1.0
    """timm's `crop_pct`: the image is resized to `size / crop` before the centre crop."""
    mode: CropMode = "fit"
    """`fit` crops the centre of the image and resizes it, in one step; the others are timm's:
    `center` resizes the shorter side and crops, `squash` resizes both sides, `border` resizes the
    longer side and pads."""
    interpolation: str = "bicubic"
    resize: int | None = None
    """Pixels that the shorter side is resized to before the centre crop, instead of `crop`, as in
    torchvision and Hugging Face."""
    fill: tuple[float, ...] = ()
    """Levels of the border in [0, 1], for `border`."""
    upright: bool = False
    """Whether images are rotated as EXIF says. timm, torchvision and Hugging Face do not, so models
    are trained and evaluated without it. Transparency is dropped, as in these libraries."""
    processor: str = ""
    """JSON of an image processor of Hugging Face, which is then used for all steps."""

    def __call__(self, image: Image.Image) -> NDArray[np.uint8]:
        """Apply the framing to an RGB image; returns (3, height, width)."""
        if self.mode == "fit" and self.resize is None and not self.processor:
            return fit_to(image, self.size, self.interpolation)
        pixels: NDArray[np.uint8] = _transform(self)(image)
        return pixels

    def keeps(self, size: tuple[int, int]) -> bool:
        """Whether images of this size are not changed."""
        if size != self.size or self.processor:
            return False
        return self.crop == 1 if self.resize is None else self.resize == min(size)

    def describe(self) -> str:
        """The steps in words: "shorter side to 248 (bicubic), middle 224x224"."""
        height, width = self.size
        into = f"{height}x{width}"
        if self.resize is not None:
            return f"shorter side to {self.resize} ({self.interpolation}), middle {into}"
        scaled = tuple(int(side / self.crop) for side in self.size)
        if self.mode == "squash":
            crop = "" if self.crop == 1 else f", middle {into}"
            return f"both sides to {scaled[0]}x{scaled[1]} ({self.interpolation}){crop}"
        if self.mode == "border":
            return f"longer side to {max(scaled)} ({self.interpolation}), padded to {into}"
        if self.mode == "fit":
            return f"middle resized to {into} ({self.interpolation})"
        # for sides that differ, timm ignores the declared interpolation and uses its default
        filter_name = self.interpolation if height == width else "bilinear"
        if height == width:
            return f"shorter side to {scaled[0]} ({filter_name}), middle {into}"
        return f"resized to cover {scaled[0]}x{scaled[1]} ({filter_name}), middle {into}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for provenance."""
        values = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        if self.processor:
            values["processor"] = json.loads(self.processor)
        return values


def fit_to(
    image: Image.Image, size: tuple[int, int], interpolation: str = "bicubic"
) -> NDArray[np.uint8]:
    """Resize the shorter side to `size`, antialiased, and crop the centre; (3, height, width)."""
    height, width = size
    if image.size != (width, height):
        image = ImageOps.fit(image, (width, height), PILLOW_FILTERS[interpolation])
    return np.asarray(image).transpose(2, 0, 1)


@cache
def _transform(framing: Framing) -> Callable[[Image.Image], Any]:
    """The transform of timm, torchvision or Hugging Face from an image to a uint8 array."""
    if framing.processor:
        return _processor(framing.processor)
    # imported here since most loading needs neither timm nor torchvision
    from timm.data.transforms import str_to_interp_mode
    from timm.data.transforms_factory import create_transform
    from torchvision import transforms

    if framing.resize is not None:
        filter_name = str_to_interp_mode(framing.interpolation)
        steps = [
            transforms.Resize(framing.resize, filter_name),
            transforms.CenterCrop(framing.size),
            transforms.PILToTensor(),
        ]
        transform = transforms.Compose(steps)
    else:
        transform = create_transform(
            (3, *framing.size),
            is_training=False,
            use_prefetcher=True,  # returns uint8
            interpolation=framing.interpolation,
            mean=framing.fill or (0.0, 0.0, 0.0),
            crop_pct=framing.crop,
            crop_mode="center" if framing.mode == "fit" else framing.mode,
        )
    return lambda image: transform(image).numpy()


def _processor(described: str) -> Callable[[Image.Image], Any]:
    """The geometric steps of an image processor, without rescaling and normalisation."""
    import transformers

    config = json.loads(described)
    processor = getattr(transformers, config["image_processor_type"]).from_dict(config)
    left_out = {"do_rescale": False, "do_normalize": False}
    if "do_flip_channel_order" in config:
        left_out["do_flip_channel_order"] = False

    def pixels(image: Image.Image) -> Any:
        found = processor(image, return_tensors="pt", **left_out)["pixel_values"][0]
        return found.round().clamp(0, 255).byte().numpy()

    return pixels
