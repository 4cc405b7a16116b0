"""Crops, flips, jitter, erasing and mixing against torchvision and timm: their pixels, and their
distributions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from timm.data import mixup as timm_mixup
from timm.data.mixup import Mixup
from timm.data.random_erasing import RandomErasing
from torch import Tensor
from torchvision import transforms
from torchvision.transforms import functional as TF

from data.augment_pictures import as_pil, from_pil, pictures
from vitreous.config import Augment
from vitreous.data.augment import mixing
from vitreous.data.augment.colour import Jitter
from vitreous.data.augment.distributions import beta
from vitreous.data.augment.erasing import Erasing
from vitreous.data.augment.geometry import Flip, ResizedCrop, Shift

MANY = 4000


def alike(ours: Tensor, theirs: Any) -> None:
    """The same distribution, column by column (Kolmogorov and Smirnov)."""
    for mine, timms in zip(ours.double().T, np.asarray(theirs, dtype=float).T, strict=True):
        assert stats.ks_2samp(mine.numpy(), timms).pvalue > 1e-3


def test_a_shift_is_a_crop_of_the_padded_picture() -> None:
    found, stage = pictures(32, 24), Shift(4)
    top, left = torch.tensor([0, 8, 4, 3, 0, 8, 7, 4]), torch.tensor([0, 8, 4, 1, 8, 0, 4, 6])
    for picture, ours, y, x in zip(
        found, stage(found, top, left), top.tolist(), left.tolist(), strict=True
    ):
        assert torch.equal(ours, TF.crop(TF.pad(picture, [4]), y, x, 32, 24))
    theirs = [
        transforms.RandomCrop.get_params(torch.empty(3, 40, 32), (32, 24))[:2] for _ in range(MANY)
    ]
    alike(torch.stack(stage.settle(torch.rand(MANY, 2)), 1), theirs)


def test_flips() -> None:
    found, stage = pictures(32, 24), Flip(0.3)
    ours = stage(found, torch.tensor([True, False] * 4))
    assert torch.equal(ours[::2], found[::2].flip(3))
    assert torch.equal(ours[1::2], found[1::2])
    assert float(stage.settle(torch.rand(MANY, 1))[0].float().mean()) == pytest.approx(
        0.3, abs=0.03
    )


def test_a_resized_crop_is_pillows() -> None:
    """Within one level: Pillow's weights are whole multiples of 2**-22."""
    found, stage = pictures(32, 24), ResizedCrop((0.08, 1.0), (32, 24))
    settings = stage.settle(torch.rand(len(found), stage.numbers))
    worst = 0
    for picture, ours, box in zip(
        found, stage(found, *settings), torch.stack(settings, 1).tolist(), strict=True
    ):
        bicubic = transforms.InterpolationMode.BICUBIC
        theirs = from_pil(TF.resized_crop(as_pil(picture), *box, [32, 24], bicubic))
        worst = max(worst, int((theirs.int() - ours.int()).abs().max()))
    assert worst <= 1
    whole = [torch.full((len(found),), each) for each in (0, 0, 32, 24)]
    assert torch.equal(stage(found, *whole), found)


@pytest.mark.parametrize("size", [(32, 32), (24, 80), (90, 30)])
@pytest.mark.parametrize("area", [(0.08, 1.0), (0.9, 1.0)])
def test_resized_crops_are_distributed_as_torchvisions(
    size: tuple[int, int], area: tuple[float, float]
) -> None:
    """Long pictures, where most tries fail, and those in the middle that are taken then."""
    stage, ratios = ResizedCrop(area, size), [3 / 4, 4 / 3]
    picture = torch.empty(3, *size)
    theirs = [
        transforms.RandomResizedCrop.get_params(picture, list(area), ratios) for _ in range(1500)
    ]
    alike(torch.stack(stage.settle(torch.rand(MANY, stage.numbers)), 1), theirs)


def test_jitter_is_torchvisions_in_every_order() -> None:
    found, stage = pictures(32, 24), Jitter(0.4)
    changes = (TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation)
    for order in itertools.permutations(range(3)):
        factors = torch.rand(len(found), 3) * 0.8 + 0.6
        ours = stage(found, factors, torch.tensor(order).expand(len(found), 3))
        for picture, mine, factor in zip(found, ours, factors.tolist(), strict=True):
            image = as_pil(picture)
            for turn in order:
                image = changes[turn](image, factor[turn])
            assert torch.equal(mine, from_pil(image))
    factors, turns = stage.settle(torch.rand(MANY, 4))
    jitter = transforms.ColorJitter(0.4, 0.4, 0.4)
    drawn = [
        jitter.get_params(jitter.brightness, jitter.contrast, jitter.saturation, None)
        for _ in range(MANY)
    ]
    alike(factors, [each[1:4] for each in drawn])
    orders = turns @ torch.tensor([9, 3, 1])
    assert stats.chisquare(orders.unique(return_counts=True)[1].numpy()).pvalue > 1e-3
    assert len(orders.unique()) == 6
    assert Jitter(1.5).low == 0, "a factor is never negative"


@pytest.mark.parametrize("size", [(32, 32), (20, 64)])
def test_erasing_is_distributed_as_timms(size: tuple[int, int]) -> None:
    """Where rectangles lie and how often there is one, read off pictures that were zero."""
    random.seed(0)
    stage, timms = Erasing(0.6, size), RandomErasing(0.6, mode="pixel", device="cpu")
    zeros = torch.zeros(1500, 3, *size)
    ours = stage(zeros.clone(), *stage.settle(torch.rand(len(zeros), stage.numbers)))
    theirs = timms(zeros.clone())

    def boxes(found: Tensor) -> Tensor:
        erased = (found != 0).all(1)
        rows, columns = erased.any(2).int(), erased.any(1).int()
        box = torch.stack([rows.argmax(1), columns.argmax(1), rows.sum(1), columns.sum(1)], 1)
        assert torch.equal(erased.sum((1, 2)), box[:, 2] * box[:, 3]), "one full rectangle each"
        return box[box[:, 2] > 0]

    mine, expected = boxes(ours), boxes(theirs)
    assert len(mine) == pytest.approx(len(expected), abs=4 * (2 * 1500 * 0.24) ** 0.5)
    alike(mine, expected.numpy())
    assert stats.kstest(ours[ours != 0][:20000].numpy(), "norm").pvalue > 1e-3


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """timm's Mixup made to use a given share and centre of the rectangle."""

    def fix(share: float, centre: tuple[int, int]) -> None:
        values: Iterator[int] = iter(centre)
        monkeypatch.setattr(timm_mixup.np.random, "beta", lambda a, b: share)
        monkeypatch.setattr(
            timm_mixup.np.random, "randint", lambda low, high, size=None: next(values)
        )

    return fix


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_mixing_is_timms(fixed: Callable[..., None], cut: bool, smoothing: float) -> None:
    """The same share and centre in both: pixels and targets within float error, also where the
    rectangle is cut off."""
    augment = Augment(mixup=0.0 if cut else 0.7, cutmix=0.8 if cut else 0.0, smoothing=smoothing)
    images, labels = torch.randn(6, 3, 20, 28), torch.tensor([0, 3, 4, 4, 1, 2])
    for seed in range(20):
        uniform = torch.rand(mixing.NUMBERS, generator=torch.Generator().manual_seed(seed))
        mix = mixing.settle(uniform, augment, (20, 28))
        alpha, pair = (0.8, uniform[4:6]) if cut else (0.7, uniform[2:4])
        fixed(float(beta(pair[0], pair[1], alpha)), (int(uniform[6] * 20), int(uniform[7] * 28)))
        timms = Mixup(augment.mixup, augment.cutmix, label_smoothing=smoothing, num_classes=5)
        theirs, soft = timms(images.clone(), labels)
        ours = mixing.mix_images(images, images.flip(0), mix)
        own = mixing.targets(labels, 5, smoothing)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
        torch.testing.assert_close(
            mixing.mix_targets(own, own.flip(0), mix), soft, rtol=0, atol=1e-5
        )


@pytest.mark.parametrize(
    "augment",
    [
        Augment(mixup=1.0, cutmix=0.8),
        Augment(mixup=0.8, cutmix=1.0, switch_prob=0.2, mix_prob=0.6),
        Augment(mixup=0.2, mix_prob=0.5),
        Augment(cutmix=1.0, mix_prob=0.5),
    ],
)
def test_mixes_are_distributed_as_timms(augment: Augment) -> None:
    """Shares of the target and of the pixels (1 in all of them for CutMix, and where nothing is
    mixed)."""
    np.random.seed(0)  # noqa: NPY002 timm draws from it
    timms = Mixup(augment.mixup, augment.cutmix, None, augment.mix_prob, augment.switch_prob)
    theirs = []
    for _ in range(MANY):
        share, cut = timms._params_per_batch()
        target = timm_mixup.cutmix_bbox_and_lam((1, 3, 32, 32), share)[1] if cut else share
        theirs.append([1.0 if cut else share, target])
    many = mixing.settle(torch.rand(mixing.NUMBERS, MANY), augment, (32, 32))
    alike(torch.stack([many.image, many.target], 1), theirs)


def test_no_mixing_is_exactly_none() -> None:
    images = torch.randn(4, 3, 8, 8)
    for augment in (Augment(mixup=1.0, mix_prob=0.0), replace(Augment(), cutmix=1.0, mix_prob=0.0)):
        mix = mixing.settle(torch.rand(mixing.NUMBERS), augment, (8, 8))
        assert torch.equal(mixing.mix_images(images, images.flip(0), mix), images)
        assert float(mix.target) == 1
