"""The embedded world as a dataset: which images one gets, and that they never change."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from vitreous.data import world
from vitreous.data.world import tasks
from vitreous.errors import UnknownName, VitreousError


@pytest.mark.parametrize("task", world.TASKS)
@pytest.mark.parametrize("image", [16, 32])
def test_every_task_loads(task: str, image: int) -> None:
    data = world.load(task, size=600, image=image)
    assert data.images.shape == (600, 3, image, image)
    assert data.images.dtype == torch.uint8
    assert data.labels.dtype == torch.int64
    assert sorted(set(data.labels.tolist())) == list(range(len(data.classes)))
    assert data.name == f"world:{task}"
    assert all(len(value) == 600 for value in data.truth.values())
    assert any(torch.equal(value, data.labels) for value in data.truth.values())


@pytest.mark.parametrize(
    "task", ["shapes", "conflict", "syn-a:shape", "syn-b", "syn-c", "syn-d", "syn-e"]
)
def test_a_smaller_set_is_the_beginning_of_a_larger_one(task: str) -> None:
    small, large = world.load(task, size=515), world.load(task, size=1100)
    assert torch.equal(small.images, large.images[:515])
    for key, value in small.truth.items():
        assert torch.equal(value, large.truth[key][:515]), key


def rows(images: Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


@pytest.mark.parametrize("task", ["shapes", "syn-b", "syn-c", "syn-d", "syn-e"])
def test_no_image_is_in_two_splits_or_two_seeds_or_twice(task: str) -> None:
    sets = [
        world.load(task, size=1024, split=split, seed=seed)
        for split in tasks.SIZES
        for seed in (0, 1)
    ]
    assert len(set.union(*(rows(data.images) for data in sets))) == 1024 * len(sets)


def test_sizes_if_none_is_asked_for() -> None:
    assert len(world.load("syn-c", image=16)) == 20_000
    assert len(world.load("syn-c", image=16, split="test")) == 2_000


def test_readings_of_one_stream_have_the_same_images() -> None:
    for one, other in (
        ("shapes", "textures"),
        ("shapes", "colours"),
        ("syn-a:shape", "syn-a:texture"),
    ):
        first, second = world.load(one, size=64), world.load(other, size=64)
        assert torch.equal(first.images, second.images)
        assert not torch.equal(first.labels, second.labels)


def test_normalisation_is_that_of_the_training_set_in_every_split() -> None:
    train, test = (
        world.load("shapes", size=2048),
        world.load("shapes", size=4, split="test", seed=5),
    )
    assert (train.mean, train.std) == (test.mean, test.std)
    normal = train.normalise(train.images)
    assert normal.mean((0, 2, 3)).abs().max() < 0.01
    assert (normal.std((0, 2, 3)) - 1).abs().max() < 0.01
    cues, conflict = world.load("cues", size=4), world.load("conflict", size=4)
    assert (cues.mean, cues.std, cues.classes) == (conflict.mean, conflict.std, conflict.classes)


# fmt: off
PINNED: dict[str, tuple[float, ...]] = {
    "shapes": (132.77, 157.43, 104.34, 117.84, 165.17, 176.29, 150.43, 146.79, 131.01, 127.27,
        128.24, 113.23),
    "conflict": (160.54, 143.63, 148.21, 159.11, 148.46, 134.95, 128.47, 146.16, 134.80, 126.45,
        106.30, 131.11),
    "syn-a:shape": (96.68, 104.15, 103.20, 107.11, 96.68, 104.15, 103.20, 107.11, 96.68, 104.15,
        103.20, 107.11),
    "syn-b": (121.94, 126.82, 126.96, 126.20, 121.94, 126.82, 126.96, 126.20, 121.94, 126.82,
        126.96, 126.20),
    "syn-c": (126.34, 127.34, 127.32, 128.30, 126.34, 127.34, 127.32, 125.02, 126.34, 127.34,
        127.32, 118.14),
    "syn-d": (121.90, 126.96, 132.83, 125.03, 121.90, 126.96, 132.83, 125.03, 121.90, 126.96,
        132.83, 125.03),
    "syn-e": (113.69, 133.45, 112.07, 152.82, 116.30, 135.30, 110.80, 149.58, 123.58, 133.91,
        109.47, 145.06),
}
# fmt: on
"""Mean of the red, green and blue of the four quadrants of test image 700."""


@pytest.mark.parametrize("task", PINNED)
def test_synthetic_images_never_change(task: str) -> None:
    """Of torch's releases the random numbers are the same, the last bit of a product may differ:
    hence no digest."""
    image = world.load(task, split="test", size=701).images[700].double()
    quadrants = image.view(3, 2, 16, 2, 16).mean((2, 4)).flatten()
    torch.testing.assert_close(
        quadrants, torch.tensor(PINNED[task], dtype=torch.float64), atol=0.06, rtol=0
    )


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(
        UnknownName, match=re.escape("There is no synthetic dataset 'shape'. Did you mean shapes")
    ):
        world.load("shape")
    with pytest.raises(
        UnknownName, match=r"There is no split of a synthetic dataset 'tests'\. Did you mean test\?"
    ):
        world.load(split="tests")
    with pytest.raises(VitreousError, match="0 images were asked for; size has to be at least 1"):
        world.load(size=0)
    for image in (8, 30):
        with pytest.raises(VitreousError, match=f"Synthetic images of {image} pixels were"):
            world.load(image=image)
