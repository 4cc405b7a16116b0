"""Every kind of picture becomes RGB of one size; compared with pixels written by hand, with
torchvision and with timm."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from timm.data.readers import create_reader
from torchvision.datasets.folder import default_loader
from torchvision.transforms import v2

from data.pictures import chw, encoded, noise
from vitreous.data.framing import Framing, fit_to
from vitreous.data.sources.decode import (
    cut_sheet,
    decode,
    rgb_picture,
    shared_size,
    sheet_side,
)
from vitreous.data.sources.listing import list_all


def stored(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def seen(content: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    image = rgb_picture(content)
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP", "PPM"])
def test_lossless_kinds_keep_every_pixel(kind: str) -> None:
    pixels = noise(1, 7, 9)[0]
    assert (seen(encoded(pixels, kind)) == pixels).all()


def test_greyscale_fills_all_channels() -> None:
    grey = noise(1, 5, 6)[0, ..., 0]
    assert (seen(encoded(grey)) == grey[..., None]).all()


def modes() -> dict[str, bytes]:
    """A picture of each kind that is stored in a mode of its own."""
    pixels, alpha = noise(1, 16, 16)[0], noise(1, 16, 16, 1)[0, ..., :1]
    rgb = Image.fromarray(pixels)
    palette = rgb.quantize(16)
    return {
        "RGBA": encoded(np.concatenate([pixels, alpha], -1)),
        "RGBA in WebP": encoded(np.concatenate([pixels, alpha], -1), "WEBP"),
        "LA": encoded(np.concatenate([pixels[..., :1], alpha], -1)),
        "P": stored(palette, "PNG"),
        "P with a transparent entry": stored(palette, "PNG", transparency=1),
        "P with transparency by entry": stored(palette, "PNG", transparency=bytes(range(16))),
        "RGB with a transparent colour": stored(rgb, "PNG", transparency=(1, 2, 3)),
        "L with a transparent level": stored(rgb.convert("L"), "PNG", transparency=7),
        "1": stored(rgb.convert("1"), "PNG"),
        "CMYK": stored(rgb.convert("CMYK"), "JPEG"),
        "YCbCr": stored(rgb.convert("YCbCr"), "JPEG"),
        "LAB": stored(Image.merge("LAB", rgb.split()), "TIFF"),
        "GIF": stored(rgb, "GIF"),
    }


@pytest.mark.parametrize("mode", modes())
@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
def test_pixels_are_those_that_image_folder_and_timm_read(mode: str, tmp_path: Path) -> None:
    """Through torchvision's own loader and timm's own reader."""
    file = tmp_path / "class" / "picture.png"
    file.parent.mkdir()
    file.write_bytes(modes()[mode])
    theirs = np.asarray(default_loader(str(file)))
    with create_reader("", root=str(tmp_path))[0][0] as opened:
        assert (np.asarray(Image.open(opened).convert("RGB")) == theirs).all()
    assert (seen(modes()[mode]) == theirs).all()
    assert (np.asarray(rgb_picture(file)) == theirs).all()


def test_sixteen_bits_become_eight() -> None:
    deep = np.array([[0, 257, 65535], [128 * 257, 100, 200]], np.uint16)
    expected = np.array([[0, 1, 255], [128, 0, 1]])
    assert (seen(encoded(deep))[..., 0] == expected).all()  # type: ignore[arg-type]
    assert (seen(stored(Image.fromarray(deep), "TIFF"))[..., 1] == expected).all()
    share = np.array([[0.0, 0.5, 1.0]], np.float32)
    assert seen(stored(Image.fromarray(share), "TIFF"))[0, :, 2].tolist() == [0, 128, 255]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_only_if_asked_for(orientation: int) -> None:
    """Stored turned by numpy, they come back as they were stored, or as they were."""
    upright = noise(1, 4, 6)[0]
    turned = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = stored(Image.fromarray(np.ascontiguousarray(turned)), "PNG", exif=exif.tobytes())
    assert (seen(content) == turned).all()
    assert (np.asarray(rgb_picture(content, upright=True)) == upright).all()
    assert shared_size(list_all([content], [0], ["a"], str, "")) == turned.shape[:2]


def test_of_an_animation_the_first_frame() -> None:
    frames = [Image.new("RGB", (3, 2), colour) for colour in ("red", "blue", "lime")]
    for kind in ("GIF", "TIFF", "PNG"):
        assert (
            seen(stored(frames[0], kind, save_all=True, append_images=frames[1:])) == [255, 0, 0]
        ).all(), kind


def test_cmyk_jpeg() -> None:
    red = stored(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)
    assert np.abs(seen(red).astype(int) - [255, 0, 0]).max() <= 4


@pytest.mark.parametrize(
    ("height", "width", "side"),
    [(64, 96, 32), (96, 64, 32), (20, 20, 30), (48, 80, 48), (10, 18, 20)],
)
def test_resizing_is_that_of_torchvision(height: int, width: int, side: int) -> None:
    """Sizes where the longer side and the margins are whole numbers, so that rounding them is
    not a question."""
    image = Image.fromarray(noise(1, height, width)[0])
    theirs = v2.Compose([v2.Resize(side, v2.InterpolationMode.BICUBIC), v2.CenterCrop(side)])(image)
    difference = np.abs(
        fit_to(image, (side, side)).astype(int) - chw(np.asarray(theirs)).astype(int)
    )
    assert difference.max() <= 1


def test_height_and_width_may_differ() -> None:
    image = Image.fromarray(
        np.repeat(np.arange(40, dtype=np.uint8)[:, None, None], 60, 1).repeat(3, 2)
    )
    out = fit_to(image, (10, 30))
    assert out.shape == (3, 10, 30)
    assert (
        np.abs(out[0, :, 15] - (10.5 + 2 * np.arange(10))).max() <= 1.5
    )  # rows 10 to 29 of 40, two by two


def test_a_sheet_is_cut_row_by_row() -> None:
    images = noise(6, 4, 4)
    sheet = images.reshape(2, 3, 4, 4, 3).transpose(0, 2, 1, 3, 4).reshape(8, 12, 3)
    parts = [np.asarray(part) for part in cut_sheet(Image.fromarray(sheet), 6)]
    assert (np.stack(parts) == images).all()
    with pytest.raises(ValueError, match="a sheet of 12x8 pixels cannot hold 5 equal squares"):
        sheet_side((12, 8), 5)


def test_images_decoded_in_parallel_are_in_order(tmp_path: Path) -> None:
    images = noise(300, 6, 6)
    contents = [encoded(each) for each in images]
    contents[17], contents[170] = b"not a picture", contents[170][:60]
    rows = np.setdiff1d(np.arange(300), [3, 4, 200])
    some = list_all(contents, np.zeros(300, int), ["a"], str, "").take(rows)
    out = np.zeros((len(rows), 3, 6, 6), np.uint8)
    faults = decode(some, Framing((6, 6)), out.__setitem__, "noise")
    assert {int(rows[position]) for position in faults} == {17, 170}
    assert faults[int(np.searchsorted(rows, 17))] == "not an image"
    good = np.setdiff1d(np.arange(len(rows)), list(faults))
    assert (out[good] == chw(images[rows[good]])).all()


def test_images_of_one_size_or_of_many() -> None:
    def sizes(*shapes: tuple[int, int]) -> tuple[int, int] | None:
        contents = [encoded(noise(1, *shape)[0]) for shape in shapes]
        return shared_size(list_all(contents, np.zeros(len(contents), int), ["a"], str, ""))

    assert sizes((4, 6), (4, 6)) == (4, 6)
    assert sizes((4, 6), (6, 4)) is None


def test_faults_of_files_are_described_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jpeg = stored(Image.fromarray(noise(1, 64, 64)[0]), "JPEG")
    png = encoded(noise(1, 64, 64)[0])
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EOF\n"
    large = encoded(noise(1, 100, 100)[0])
    contents = {
        "empty.jpg": b"",
        "text.jpg": b"I am a poem.",
        "truncated.jpg": jpeg[: len(jpeg) // 2],
        "truncated.png": png[: len(png) // 2],
        "program.jpg": program,  # Pillow would run Ghostscript on it
        "beginning.jpg": jpeg[:2],
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    paths = [tmp_path / name for name in (*contents, "gone.jpg", "folder.jpg")]
    paths[-1].mkdir()
    listing = list_all([*paths, large], [0] * (len(paths) + 1), ["a"], str, "")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4000)  # a warning at 64 x 64
    faults = decode(listing, Framing((8, 8)), lambda position, pixels: None, "rubbish")
    words = [faults[position] for position in range(len(listing))]
    assert words[:2] == ["not an image", "not an image"]
    assert "truncated" in words[2]
    assert words[4:8] == ["not an image", "not an image", "No such file or directory", words[7]]
    assert words[8] == "more than 8,000 pixels"
    assert all("\n" not in each and str(tmp_path) not in each for each in words)
