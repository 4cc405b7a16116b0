"""Transforming only the images that need it: by picking, by reserved rows, and all of them, with
one result."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import binom
from torch import Tensor

from vitreous.data.augment import stage


def change(images: Tensor, amount: Tensor) -> Tensor:
    return images + amount.view(-1, 1, 1, 1).to(torch.uint8)


@pytest.mark.parametrize("share", [0.0, 0.03, 0.3, 0.9])
def test_three_ways_to_the_same_images(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(7)
    images = torch.randint(0, 200, (400, 3, 2, 2), generator=generator, dtype=torch.uint8)
    amount = torch.randint(1, 50, (400,), generator=generator)
    needed = torch.rand(400, generator=generator) < share
    expected = images.clone()
    for row in range(400):
        if needed[row]:
            expected[row] += int(amount[row])
    assert torch.equal(
        stage.apply_where(needed, change, images, images.clone(), amount, share=share), expected
    )
    monkeypatch.setattr(stage, "picks", lambda _: False)
    assert stage.capacity(400, share) < 400 or share == 0.9
    assert torch.equal(
        stage.apply_where(needed, change, images, images.clone(), amount, share=share), expected
    )
    assert torch.equal(
        stage.apply_where(needed, change, images, images.clone(), amount, share=1.0), expected
    )


@pytest.mark.parametrize("share", [1 / 30, 1 / 12, 0.25])
@pytest.mark.parametrize("count", [64, 512, 1024, 8192])
def test_reserved_rows_are_enough(count: int, share: float) -> None:
    assert binom.sf(stage.capacity(count, share), count, share) < 1e-18
    assert stage.capacity(count, share) <= count


def test_the_first_needed_rows_are_padded_with_row_zero() -> None:
    needed = torch.tensor([False, True, True, False, True, True])
    assert stage.first(needed, 3).tolist() == [1, 2, 4]
    assert stage.first(needed, 5).tolist() == [1, 2, 4, 5, 0]
