"""Framing is timm's evaluation transform, torchvision's preset and Pillow's fit, to the last
bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data.transforms_factory import create_transform
from torchvision.transforms import InterpolationMode
from torchvision.transforms._presets import ImageClassification

from data.pictures import noise
from vitreous.data import load
from vitreous.data.framing import Framing

SIZES = [(1, 1), (3, 200), (40, 30), (64, 64), (97, 331), (300, 225)]
"""Heights and widths of pictures: tiny, lying, standing, square."""


def pictures(modes: tuple[str, ...] = ("RGB",)) -> list[Image.Image]:
    found = []
    for number, (height, width) in enumerate(SIZES):
        image = Image.fromarray(noise(1, height, width, number)[0])
        found += [image.convert(mode) for mode in modes]
    return found


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
@pytest.mark.parametrize("crop", [0.875, 0.9, 1.0])
@pytest.mark.parametrize("size", [(64, 64), (64, 48), (40, 96)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
def test_equals_timm(mode: str, crop: float, size: tuple[int, int], interpolation: str) -> None:
    mean = (0.1, 0.5, 0.9)
    theirs = create_transform(
        (3, *size), crop_pct=crop, crop_mode=mode, interpolation=interpolation, mean=mean,
        normalize=False,
    )  # fmt: skip
    fill = mean if mode == "border" else ()
    ours = Framing(size, crop, mode, interpolation, fill=fill)  # type: ignore[arg-type]
    for image in pictures():
        assert np.array_equal(ours(image), theirs(image).numpy())


def test_equals_torchvisions_preset() -> None:
    theirs = ImageClassification(
        crop_size=56, resize_size=61, interpolation=InterpolationMode.BILINEAR, mean=(0,) * 3,
        std=(1,) * 3,
    )  # fmt: skip
    ours = Framing((56, 56), mode="center", interpolation="bilinear", resize=61)
    for image in pictures():
        assert torch.equal(torch.from_numpy(ours(image)).float() / 255, theirs(image))


def test_files_are_read_as_timm_reads_them(tmp_path: Path) -> None:
    """Grey, palette, transparent and turned pictures, through the loader and its cache."""
    theirs = create_transform((3, 32, 24), crop_pct=0.8, interpolation="bicubic", normalize=False)
    files = []
    for mode in ("RGB", "L", "RGBA", "LA", "P", "1"):
        for number, image in enumerate(pictures((mode,))):
            files.append(tmp_path / f"{mode}{number}.png")
            image.save(files[-1])
    turned = Image.Exif()
    turned[0x0112] = 6
    for number, image in enumerate(pictures(("RGB", "L", "CMYK"))):
        files.append(tmp_path / f"turned{number}.jpg")
        image.save(files[-1], exif=turned)
    framing = Framing((32, 24), 0.8, "center")
    data = load(f"folder:{tmp_path}", split="all", framing=framing, statistics=False)
    expected = [theirs(Image.open(file).convert("RGB")) for file in sorted(files)]
    assert torch.equal(data.images, torch.stack(expected))
    assert data.mean == (0.485, 0.456, 0.406)  # nobody measured it


def test_framings_do_not_share_a_cache(tmp_path: Path) -> None:
    Image.fromarray(noise(1, 50, 80)[0]).save(tmp_path / "a.png")
    first, second = (
        load(f"folder:{tmp_path}", split="all", framing=Framing((32, 32), crop, "center"), memory=0)
        for crop in (1.0, 0.8)
    )
    assert not torch.equal(first.images, second.images)


def test_arrays_are_framed_as_well(tmp_path: Path) -> None:
    """Also those that have the size already, unless nothing is cropped."""
    pixels = noise(4, 32, 32)
    np.savez(tmp_path / "images.npz", images=pixels, labels=np.arange(4) % 2)
    theirs = create_transform((3, 32, 32), crop_pct=0.8, interpolation="bicubic", normalize=False)
    for crop in (0.8, 1.0):
        framing = Framing((32, 32), crop, "center")
        data = load(f"npz:{tmp_path}/images.npz", split="all", framing=framing, statistics=False)
        expected = [theirs(Image.fromarray(each)) for each in pixels]
        if crop == 1:
            assert torch.equal(data.images, torch.from_numpy(pixels).permute(0, 3, 1, 2))
        else:
            assert torch.equal(data.images, torch.stack(expected))


@pytest.mark.parametrize(
    ("framing", "words"),
    [
        (Framing((224, 224)), "middle resized to 224x224 (bicubic)"),
        (
            Framing((224, 224), 0.9, "center"),
            "shorter side to 248 (bicubic), middle 224x224",
        ),
        (
            Framing((224, 160), 0.5, "center"),
            "resized to cover 448x320 (bilinear), middle 224x160",
        ),
        (Framing((64, 64), 1.0, "squash", "box"), "both sides to 64x64 (box)"),
        (Framing((64, 64), 0.5, "border"), "longer side to 128 (bicubic), padded to 64x64"),
        (
            Framing((224, 224), interpolation="bilinear", resize=232),
            "shorter side to 232 (bilinear), middle 224x224",
        ),
    ],
)
def test_says_what_it_does(framing: Framing, words: str) -> None:
    assert framing.describe() == words
