"""The augmenter as a whole: a pure function of its draw, the same in parts as in one, compiled
as eager."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from data.augment_pictures import pictures
from vitreous.config import Augment
from vitreous.data.augment import Augmenter, Draw
from vitreous.data.dataset import Dataset
from vitreous.errors import BadImages, VitreousError

MEAN, STD = (0.49, 0.48, 0.45), (0.2, 0.21, 0.22)
NOTHING = Augment(crop="none", flip=0.0)
HDV = Augment(randaugment="rand-m9-n2-mstd1.0", mixup=1.0, cutmix=0.8, smoothing=0.1)
DEIT = Augment(
    crop="resized",
    randaugment="rand-m9-mstd0.5-inc1",
    jitter=0.4,
    erasing=0.25,
    mixup=0.8,
    cutmix=1.0,
)
EVERYTHING = replace(DEIT, erasing=0.8, smoothing=0.1)
SIZE = (32, 24)


def augmenter(augment: Augment, image: tuple[int, int] = SIZE, classes: int = 5) -> Augmenter:
    return Augmenter(augment, image=image, classes=classes, mean=MEAN, std=STD)


def batch(copies: int = 3, size: tuple[int, int] = SIZE) -> tuple[Tensor, Tensor]:
    images = pictures(*size).repeat(copies, 1, 1, 1)
    return images, torch.arange(len(images)) % 5


def drawn(here: Augmenter, images: Tensor, seed: int = 0) -> Draw:
    return here.draw(len(images), torch.Generator().manual_seed(seed))


def test_no_augmentation_is_plain_normalisation() -> None:
    images, labels = batch()
    here = augmenter(NOTHING)
    found, targets = here(images, labels, drawn(here, images))
    data = Dataset(images, labels, tuple("abcde"), "made", mean=MEAN, std=STD)
    assert found.dtype == torch.float32
    assert torch.equal(found, data.normalise(images))
    assert torch.equal(targets, torch.nn.functional.one_hot(labels, 5).float())


@pytest.mark.parametrize("augment", [HDV, EVERYTHING, replace(EVERYTHING, mixup=0.0, cutmix=0.0)])
@pytest.mark.parametrize("rows", [slice(0, 12), slice(12, 24), slice(5, 6), slice(1, None, 2)])
def test_rows_equal_those_of_the_complete_batch(augment: Augment, rows: slice) -> None:
    images, labels = batch()
    here = augmenter(augment)
    for seed in range(3):
        draw = drawn(here, images, seed)
        whole, part = here(images, labels, draw), here(images, labels, draw, rows=rows)
        assert torch.equal(part[0], whole[0][rows])
        assert torch.equal(part[1], whole[1][rows])


def test_rows_are_computed_from_themselves_and_their_partners() -> None:
    images, labels = batch()
    here = augmenter(HDV)
    draw = drawn(here, images)
    other = images.clone()
    other[4:20] = 255 - other[4:20]
    assert torch.equal(
        here(images, labels, draw, rows=slice(0, 4))[0],
        here(other, labels, draw, rows=slice(0, 4))[0],
    )


def test_the_generator_decides_everything_and_the_images_are_left_alone() -> None:
    images, labels = batch()
    before = images.clone()
    here = augmenter(EVERYTHING)
    first, again, other = (here(images, labels, drawn(here, images, seed)) for seed in (1, 1, 2))
    assert torch.equal(images, before)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize(
    "augment",
    [
        Augment(flip=0.0),
        Augment(crop="resized", flip=0.0),
        replace(NOTHING, flip=0.5),
        replace(NOTHING, randaugment="rand-m9-n2-mstd1.0"),
        replace(NOTHING, jitter=0.4),
        replace(NOTHING, erasing=0.5),
    ],
    ids=["pad", "resized", "flip", "randaugment", "jitter", "erasing"],
)
def test_each_image_is_altered_in_its_own_way(augment: Augment) -> None:
    image = pictures(*SIZE)[0]
    here = augmenter(augment)
    images = image.repeat(64, 1, 1, 1)
    found = here(images, torch.zeros(64, dtype=torch.long), drawn(here, images))[0]
    kinds = len({each.numpy().tobytes() for each in found})
    assert kinds == 2 if augment.flip else kinds > 20


def test_compiled_is_eager() -> None:
    """As one graph. Eager on a CPU picks the images that an operation concerns; compiled, all go
    through all."""
    images, labels = batch(4)
    here = augmenter(replace(EVERYTHING, randaugment="rand-m9-n1-p1.0-mstd1.0"))
    compiled: Any = torch.compile(here.__call__, backend="aot_eager", fullgraph=True, dynamic=False)
    for seed in range(4):
        draw = drawn(here, images, seed)
        eager, graph = here(images, labels, draw), compiled(images, labels, draw)
        torch.testing.assert_close(graph[0], eager[0], rtol=0, atol=1e-6)
        torch.testing.assert_close(graph[1], eager[1], rtol=0, atol=1e-6)


def test_autocast_changes_nothing() -> None:
    images, labels = batch()
    here = augmenter(EVERYTHING)
    draw = drawn(here, images)
    plain = here(images, labels, draw)
    with torch.autocast("cpu", torch.bfloat16):
        cast = here(images, labels, draw)
    assert cast[0].dtype == torch.float32
    assert torch.equal(cast[0], plain[0])
    assert torch.equal(cast[1], plain[1])


@pytest.mark.parametrize("size", [(32, 32), (24, 56), (64, 48)])
def test_values_stay_in_range_at_any_size(size: tuple[int, int]) -> None:
    images, labels = batch(4, size)
    here = augmenter(replace(EVERYTHING, erasing=0.0), size)
    found, targets = here(images, labels, drawn(here, images))
    channels = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    levels = (found * channels[1] + channels[0]) * 255
    assert found.shape == images.shape
    assert levels.min() > -1e-3
    assert levels.max() < 255 + 1e-3
    torch.testing.assert_close(targets.sum(1), torch.ones(len(images)))


def test_a_batch_that_does_not_fit_is_refused() -> None:
    images, labels = batch()
    here = augmenter(HDV)
    draw = drawn(here, images)
    with pytest.raises(
        BadImages,
        match=r"set up for uint8 images \(n, 3, 32, 24\) and was given float32 \(24, 3, 32, 24\)",
    ):
        here(images.float(), labels, draw)
    with pytest.raises(BadImages, match=r"given uint8 \(24, 3, 24, 32\)"):
        here(images.mT, labels, draw)
    with pytest.raises(VitreousError, match="12 images, 24 labels and numbers drawn for 24"):
        here(images[:12], labels, draw)
    with pytest.raises(VitreousError, match=r"augment.area \(0.5, 0.2\)"):
        augmenter(Augment(crop="resized", area=(0.5, 0.2)))
