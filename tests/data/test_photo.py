"""One picture is the same picture whatever holds it, and what is none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from data.pictures import noise
from vitreous.data.photo import read_photo
from vitreous.errors import VitreousError

PIXELS = noise(1, 20, 31, 0)[0]


@pytest.mark.parametrize(
    "given",
    [
        PIXELS,
        PIXELS.transpose(2, 0, 1),
        PIXELS[None],
        PIXELS.astype(np.int64),
        PIXELS / 255,
        (PIXELS / 255).astype(np.float32),
        np.concatenate([PIXELS, np.full((20, 31, 1), 7, np.uint8)], 2),
        torch.from_numpy(PIXELS),
        torch.from_numpy(PIXELS).permute(2, 0, 1),
        torch.from_numpy(PIXELS).permute(2, 0, 1)[None] / 255,
        Image.fromarray(PIXELS),
        Image.fromarray(PIXELS).convert("RGBA"),
    ],
    ids=lambda given: f"{type(given).__name__} {getattr(given, 'shape', '')}",
)
def test_files_images_and_arrays_give_the_same_pixels(given: Any) -> None:
    assert np.array_equal(np.asarray(read_photo(given)), PIXELS)


def test_a_file_by_name_or_path(tmp_path: Path) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "photo.png")
    for given in (tmp_path / "photo.png", str(tmp_path / "photo.png")):
        assert np.array_equal(np.asarray(read_photo(given)), PIXELS)


def test_grey_becomes_three_equal_channels() -> None:
    grey = PIXELS[..., 0]
    for given in (grey, grey[..., None], torch.from_numpy(grey), Image.fromarray(grey)):
        assert np.array_equal(np.asarray(read_photo(given)), np.stack([grey] * 3, 2))


def test_where_both_ends_could_be_channels() -> None:
    """(3, w, 3): the last are those of an array, the first those of a tensor."""
    square = PIXELS[:3]
    assert read_photo(square).size == (31, 3)
    assert read_photo(torch.from_numpy(square)).size == (3, 31)


def test_turned_as_exif_says_only_if_asked(tmp_path: Path) -> None:
    image = Image.fromarray(PIXELS)
    exif = image.getexif()
    exif[0x0112] = 6  # a quarter to the right
    image.save(tmp_path / "photo.png", exif=exif)
    assert np.array_equal(np.asarray(read_photo(tmp_path / "photo.png")), PIXELS)
    turned = np.asarray(read_photo(tmp_path / "photo.png", upright=True))
    assert np.array_equal(turned, np.rot90(PIXELS, -1))


def test_the_given_image_is_not_changed(tmp_path: Path) -> None:
    Image.fromarray(PIXELS).save(tmp_path / "photo.png")
    with Image.open(tmp_path / "photo.png") as image:
        read_photo(image)
        assert np.array_equal(np.asarray(image), PIXELS), "it is still open"
    levels = PIXELS / 255
    before = levels.copy()
    read_photo(levels)
    assert np.array_equal(levels, before)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.zeros((2, 8, 8, 3), np.uint8), "give one picture at a time"),
        (np.zeros((8, 8, 5), np.uint8), "not (8, 8, 5)"),
        (np.zeros((0, 8, 3), np.uint8), "not (0, 8, 3)"),
        (np.full((8, 8, 3), 200.0), "divide by 255"),
        (torch.randn(3, 8, 8), "undo the normalisation"),
        (np.full((8, 8, 3), np.nan), "levels from nan"),
        (np.zeros((8, 8, 3), bool), "(bool)"),
        (np.full((8, 8, 3), 300), "levels from 300 to 300"),
        ("https://example.org/photo.jpg", "is an address; download"),
        ("no-such-photo.jpg", "There is no picture 'no-such-photo.jpg'"),
        (None, "and not NoneType"),
        ([[1, 2], [3, 4]], "and not list"),
    ],
)
def test_invalid_images_are_refused_in_one_sentence(given: Any, says: str) -> None:
    with pytest.raises(VitreousError) as error:
        read_photo(given)
    assert says in str(error.value)


def test_files_that_are_no_pictures(tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("no image")
    with pytest.raises(VitreousError, match=r"text.jpg' cannot be read as a picture: not an image"):
        read_photo(tmp_path / "text.jpg")
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    with pytest.raises(VitreousError, match=r"is a folder; give one picture, such as '.*a\.png'"):
        read_photo(tmp_path)
