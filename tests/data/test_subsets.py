"""Shares of a set: exact counts, nested by design, complements that leave nothing out."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
import torch

from vitreous.data import Dataset
from vitreous.data.subsets import first_classes, fraction, iso_samples, split_off
from vitreous.errors import VitreousError


def numbered(*counts: int) -> Dataset:
    """Classes of these sizes, shuffled; the first pixel of an image is its number."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    number = torch.arange(len(labels))
    images = torch.stack([number % 256, number // 256, number * 0], 1).to(torch.uint8)[
        ..., None, None
    ]
    return Dataset(
        images, labels, tuple("abcdefgh"[: len(counts)]), "toy", truth={"number": number}
    )


def rows(data: Dataset) -> list[int]:
    numbers = (data.images[:, 0].long() + 256 * data.images[:, 1].long()).flatten().tolist()
    assert numbers == data.truth["number"].tolist()
    return numbers


@pytest.mark.parametrize("share", ["0.02", "0.06", "0.1", "0.29", "0.3", "0.57", "0.58", "1"])
@pytest.mark.parametrize("first", [False, True])
def test_each_class_gives_its_share_exactly(share: str, first: bool) -> None:
    """int(share · n) in rational arithmetic: 0.29 · 100 is 29, not the 28 of floating point."""
    counts = (500, 100, 50)
    part = fraction(numbered(*counts), float(share), first=first)
    assert torch.bincount(part.labels).tolist() == [
        int(Fraction(share) * count) for count in counts
    ]
    assert rows(part) == sorted(rows(part))


def test_the_first_ones_are_the_first_of_each_class() -> None:
    data = numbered(40, 20)
    expected = [
        i
        for label in (0, 1)
        for i in torch.nonzero(data.labels == label).flatten().tolist()[: (12, 6)[label]]
    ]
    assert rows(fraction(data, 0.3, first=True)) == sorted(expected)


@pytest.mark.parametrize("first", [False, True])
def test_a_smaller_share_is_part_of_a_larger_one(first: bool) -> None:
    data = numbered(300, 200, 100)
    nested = [
        set(rows(fraction(data, share, seed=5, first=first)))
        for share in (0.02, 0.06, 0.1, 0.5, 1.0)
    ]
    assert all(small < large for small, large in pairwise(nested))
    assert len(nested[-1]) == 600


def test_the_seed_decides_and_nothing_else() -> None:
    data = numbered(300, 200)
    torch.manual_seed(7)
    once = rows(fraction(data, 0.1, seed=1))
    torch.manual_seed(8)
    assert rows(fraction(data, 0.1, seed=1)) == once
    assert rows(fraction(data, 0.1, seed=2)) != once


def test_all_images_are_equally_likely() -> None:
    data = numbered(20, 10)
    often = torch.zeros(30)
    for seed in range(400):
        often[rows(fraction(data, 0.5, seed=seed))] += 1
    assert (often / 400 - 0.5).abs().max() < 5 * 0.5 / 400**0.5  # five standard errors


def test_a_share_of_no_image_names_the_class() -> None:
    with pytest.raises(
        VitreousError, match=r"0\.02 of 'b' is less than one image, as there are 49; take a larger"
    ):
        fraction(numbered(100, 49), 0.02)
    for share in (0.0, -0.1, 1.1):
        with pytest.raises(
            VitreousError, match=f"A share is above 0 and at most 1, and not {share:g}"
        ):
            fraction(numbered(10), share)


def test_splitting_off_leaves_nothing_out() -> None:
    data = numbered(100, 50, 30)
    rest, held = split_off(data, 0.2, seed=3)
    assert torch.bincount(held.labels).tolist() == [20, 10, 6]
    assert sorted(rows(rest) + rows(held)) == list(range(180))
    assert rows(held) == rows(fraction(data, 0.2, seed=3))


def test_the_first_classes() -> None:
    data = first_classes(numbered(5, 4, 3), 2)
    assert data.classes == ("a", "b")
    assert torch.bincount(data.labels).tolist() == [5, 4]
    with pytest.raises(VitreousError, match="4 classes were asked for, and 'toy' has 3"):
        first_classes(numbered(5, 4, 3), 4)


def test_iso_samples_gives_the_same_number_of_samples() -> None:
    assert [iso_samples(300, share) for share in (1.0, 0.5, 0.3, 0.1, 0.05)] == [
        300,
        600,
        1000,
        3000,
        6000,
    ]
    with pytest.raises(VitreousError, match="A share is above 0"):
        iso_samples(300, 0)
