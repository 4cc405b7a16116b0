"""Masks counted pixel by pixel, and a model that needs one patch alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import vitreous
from measure.analyses.shifted import Linear, answered, chosen, levels, noise
from vitreous.errors import VitreousError
from vitreous.measure.analyses.occlusion import Occlusion, patch_masks
from vitreous.measure.probe import Batch

QUICK: dict[str, Any] = {"grids": (4, 8), "shares": (0.25, 0.75)}

CPU = torch.device("cpu")


def batch(count: int = 30, first: int = 0, seed: int = 0) -> Batch:
    return Batch(torch.arange(first, first + count), torch.zeros(0), torch.zeros(0), seed)


@pytest.mark.parametrize("grid", [1, 3, 4, 16])
def test_the_requested_number_of_patches_is_masked(grid: int) -> None:
    def at(cell: int) -> list[int]:
        return [place for place in range(16) if place * grid // 16 == cell]

    for share in (0.3, 0.5, 1.0):
        masks = patch_masks(grid, share, (16, 16), batch(), CPU)
        for mask in masks[:5]:
            patches = [
                {bool(mask[y, x]) for y in at(row) for x in at(column)}
                for row in range(grid)
                for column in range(grid)
            ]
            assert all(len(patch) == 1 for patch in patches)
            assert sum(True in patch for patch in patches) == round(share * grid * grid)


def test_masks_are_nested_and_depend_on_the_image_and_cover_every_patch() -> None:
    few, many = (patch_masks(4, share, (8, 8), batch(400), CPU) for share in (0.25, 0.75))
    assert bool((many | ~few).all())
    assert torch.equal(patch_masks(4, 0.25, (8, 8), batch(10, 5), CPU), few[5:15])
    assert not torch.equal(patch_masks(4, 0.25, (8, 8), batch(10, 5, seed=1), CPU), few[5:15])
    often = few.double().mean(0)
    assert float((often - 0.25).abs().max()) < 0.1  # 400 draws: four standard deviations are 0.087


def test_answers_against_a_loop() -> None:
    model = Linear()
    data = answered(model)
    found = Occlusion((4,), (0.25, 0.5))(model, data).table
    data = chosen(data)
    for share in (0.25, 0.5):
        images = levels(data.images)
        masks = patch_masks(4, share, (8, 8), batch(40), CPU)
        for image, mask in zip(images, masks, strict=True):
            image[:, mask] = 0  # normalised: the mean colour
        with torch.no_grad():
            right = float((model(images).argmax(1) == data.labels).double().mean())
        assert found[found["share"] == share]["value"].iloc[0] == pytest.approx(right)


def test_fully_masked_images_get_one_constant_prediction() -> None:
    model = Linear()
    found = Occlusion((2,), (1.0,))(model, answered(model)).table
    data = chosen(answered(model))
    constant = int(model.head.bias.argmax())
    expected = float((data.labels == constant).double().mean())
    assert found[found["share"] == 1]["value"].iloc[0] == pytest.approx(expected)


def test_bad_options_and_images_that_are_too_small() -> None:
    with pytest.raises(VitreousError, match="0 is not"):
        Occlusion(shares=(0, 0.5))
    with pytest.raises(VitreousError, match="none twice"):
        Occlusion(grids=(4, 4))
    with pytest.raises(VitreousError, match="one patch"):
        Occlusion(grids=(0,))
    found = vitreous.analyse(Linear(), noise(4), ["occlusion"])
    assert "no 16 patches" in found.left_out["occlusion"]["Linear"]
