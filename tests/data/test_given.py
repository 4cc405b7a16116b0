"""Images of a user's own: a path works as its name does, and tensors that would be measured wrongly
are refused in one sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import vitreous
from vitreous.data.dataset import Dataset
from vitreous.data.given import given_images

MINE = Dataset(
    torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8),
    torch.arange(6) % 2,
    ("a", "b"),
    "mine",
)


def test_a_path_is_its_name(tmp_path: Path) -> None:
    for number, kind in enumerate(("leaf", "sky")):
        (tmp_path / kind).mkdir()
        pixels = np.full((32, 32, 3), 90 * number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / kind / "0.png")
    by_path = vitreous.inspect("nano:resnet", tmp_path, ["variance"])["variance"]
    assert by_path == vitreous.inspect("nano:resnet", str(tmp_path), ["variance"])["variance"]
    assert len(vitreous.data.load(tmp_path)) == 2


def test_a_data_set_that_fits_is_passed_on() -> None:
    grey = replace(MINE, images=MINE.images[:, :1])
    unlabelled = replace(MINE, labels=torch.full((6,), -1), classes=())
    for each in (MINE, grey, unlabelled):
        assert given_images(each) is each


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"images": MINE.images / 255}, r"float32 .* \(255 \* images\)"),
        ({"images": MINE.images.numpy()}, "ndarray of uint8 .* torch.uint8, from 0 to 255.$"),
        ({"images": MINE.images.permute(0, 2, 3, 1)}, r"shape \(6, 32, 32, 3\)"),
        ({"labels": MINE.labels.int()}, "labels are Tensor of torch.int32"),
        ({"labels": [0, 1]}, "labels are list"),
        ({"labels": MINE.labels[:4]}, r"6 images and labels of the shape \(4,\)"),
        ({"labels": MINE.labels + 1}, "largest label is 2, and 2 classes"),
    ],
)
def test_tensors_that_would_be_measured_wrongly_are_refused(
    change: dict[str, object], says: str
) -> None:
    wrong = replace(MINE, **change)  # type: ignore[arg-type]
    with pytest.raises(vitreous.VitreousError, match=says):
        vitreous.inspect("nano:resnet", wrong, ["variance"])
    with pytest.raises(vitreous.VitreousError, match=says):
        vitreous.train("vit_nano", wrong, "quick", test=MINE, show=False)


@pytest.mark.parametrize(
    "given", [MINE.images, DataLoader(TensorDataset(MINE.images, MINE.labels)), 3]
)
def test_anything_else_is_named(given: object) -> None:
    with pytest.raises(vitreous.VitreousError, match=f"given as {type(given).__name__}; give a"):
        vitreous.inspect("nano:resnet", given, ["variance"])  # type: ignore[arg-type]
    with pytest.raises(vitreous.VitreousError, match="given as"):
        vitreous.analyse("nano:resnet", given, ["lesion"])  # type: ignore[arg-type]
