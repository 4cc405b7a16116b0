"""Corruptions as a whole: what random images depend on, that severity means severity, and what
is not accepted."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
import torch

from data.natural import natural
from vitreous.data.corruptions import CORRUPTIONS, EXTRA, GROUPS, KINDS, corrupt
from vitreous.errors import BadImages, UnknownName, VitreousError

STILL = {
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "gaussian_blur",
}
STILL |= {"saturate"}
"""Nothing in these is random."""


def test_fifteen_and_four() -> None:
    assert {name: len(group) for name, group in GROUPS.items()} == {
        "noise": 3,
        "blur": 4,
        "weather": 3,
        "digital": 5,
    }
    assert len(CORRUPTIONS) == 15
    assert set(CORRUPTIONS) | set(EXTRA) == set(KINDS)
    assert {name for name, kind in KINDS.items() if not kind.random} == STILL
    for kind in KINDS.values():
        assert len(kind.cifar) == len(kind.imagenet) == 5
        assert kind.what


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_does_not_depend_on_its_batch(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = natural(9, 32)
    before = images.clone()
    whole = corrupt(images, kind, 3)
    assert torch.equal(images, before)
    assert whole.dtype == torch.uint8
    assert whole.shape == images.shape
    apart = torch.cat([corrupt(images[a:b], kind, 3, first=a) for a, b in ((0, 1), (1, 6), (6, 9))])
    assert torch.equal(whole, apart)
    monkeypatch.setattr("vitreous.data.corruptions.AT_ONCE", {"cpu": 2 * images[0].numel()})
    assert torch.equal(whole, corrupt(images, kind, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_random_depends_on_seed_severity_and_place(kind: str) -> None:
    same = natural(1, 32).repeat(2, 1, 1, 1)
    one, other = corrupt(same, kind, 4)
    assert torch.equal(one, other) == (kind in STILL)
    assert torch.equal(corrupt(same, kind, 4, seed=1)[0], one) == (kind in STILL)
    assert torch.equal(corrupt(same, kind, 4)[0], one)


UNEVEN = {
    "glass_blur",
    "motion_blur",
    "frost",
    "elastic_transform",
    "spatter",
    "saturate",
    "snow",
    "fog",
}
"""Published strengths that do not rise in the squared difference throughout: fewer copies but
more blur (glass), a darker image under thicker ice, mud after water, faded before saturated, a
finer but not a stronger distortion; and steps between two severities that are smaller than what
the random angle or fog of a few images does."""


@pytest.mark.parametrize("size", ["cifar", "imagenet"])
@pytest.mark.parametrize("kind", KINDS)
def test_severity_grows(kind: str, size: Any) -> None:
    """The mean squared difference to the clean image, over a few images."""
    images = natural(24, 32) if size == "cifar" else natural(6, 96)
    severities = [corrupt(images, kind, severity, size=size).float() for severity in range(1, 6)]
    far = [float((each - images.float()).square().mean()) for each in severities]
    if kind not in UNEVEN:
        assert all(later > earlier for earlier, later in pairwise(far)), far
    elif kind != "elastic_transform":
        assert far[0] < far[4], far


def test_saturation_fades_first_and_elastic_distorts_less_but_finer() -> None:
    """Two kinds whose published strengths do not rise in the squared difference."""

    def spread(images: torch.Tensor) -> float:
        return float((images.amax(1).float() - images.amin(1).float()).mean())

    images = natural(4, 32)
    got = [spread(corrupt(images, "saturate", severity)) for severity in range(1, 6)]
    assert got[1] < got[0] < spread(images) < got[2] < got[3] < got[4]
    for severity in range(1, 6):
        assert not torch.equal(corrupt(images, "elastic_transform", severity), images)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(16, 40), (7, 5), (1, 1), (97, 33)])
def test_any_shape(kind: str, shape: tuple[int, int]) -> None:
    images = torch.randint(0, 256, (2, 3, *shape), dtype=torch.uint8)
    assert corrupt(images, kind, 5).shape == images.shape
    assert corrupt(images[:0], kind, 5).shape == (0, 3, *shape)


COLOURED = {
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "speckle_noise",
    "frost",
    "spatter",
    "saturate",
}
"""Noise is drawn for each channel; frost, water and mud have a colour; grey, without hue,
becomes red as published."""


@pytest.mark.parametrize("kind", KINDS)
def test_black_white_and_grey(kind: str) -> None:
    grey = natural(3, 32)[:, :1].repeat(1, 3, 1, 1)
    for severity in range(1, 6):
        got = corrupt(grey, kind, severity).int()
        if kind not in COLOURED:
            assert (got - got[:, :1]).abs().max() <= 1
    if kind not in {"gaussian_noise", "impulse_noise", "snow", "frost", "brightness", "spatter"}:
        assert corrupt(torch.zeros_like(grey), kind, 3).max() == 0
    if kind in {
        "zoom_blur",
        "gaussian_blur",
        "glass_blur",
        "motion_blur",
        "defocus_blur",
        "elastic_transform",
    }:
        flat = torch.full_like(grey, 77)
        assert torch.equal(corrupt(flat, kind, 3), flat)


def test_noise_has_the_published_strength() -> None:
    grey = torch.full((40, 3, 32, 32), 128, dtype=torch.uint8)
    level = 128 / 255
    for kind, strength in (
        ("gaussian_noise", 0.06),
        ("speckle_noise", 0.1 * level),
        ("shot_noise", (level / 250) ** 0.5),
    ):
        noise = (corrupt(grey, kind, 2).float() + 0.5) / 255  # the middle of what was rounded down
        assert abs(float(noise.mean()) - level) < 3e-3
        assert abs(float(noise.std()) / strength - 1) < 0.02
    changed = corrupt(grey, "impulse_noise", 5)
    for value in (0, 255):
        assert abs(float((changed == value).float().mean()) - 0.035) < 0.002


def test_size_follows_the_sides_unless_told() -> None:
    for side, size in ((95, "cifar"), (96, "imagenet")):
        images = natural(1, side)
        found = [
            torch.equal(corrupt(images, "contrast", 1), corrupt(images, "contrast", 1, size=s))
            for s in ("cifar", "imagenet")
        ]
        assert found == [size == "cifar", size == "imagenet"]


def test_what_is_not_accepted() -> None:
    images = natural(1, 16)
    with pytest.raises(
        UnknownName, match=r"no corruption 'gausian_noise'. Did you mean gaussian_noise"
    ):
        corrupt(images, "gausian_noise", 1)
    for severity in (0, 6, 2.5, True):
        with pytest.raises(
            VitreousError, match=f"from 1 to 5, and {re.escape(repr(severity))} was asked for"
        ):
            corrupt(images, "fog", severity)  # type: ignore[arg-type]
    with pytest.raises(
        BadImages, match=r"these are float32 \(1, 3, 16, 16\); corrupt before normalising"
    ):
        corrupt(images / 255, "fog", 1)
    with pytest.raises(BadImages, match=r"these are uint8 \(1, 1, 16, 16\)"):
        corrupt(images[:, :1], "fog", 1)
    with pytest.raises(UnknownName, match=r"no set of strengths 'imagnet'. Did you mean imagenet"):
        corrupt(images, "fog", 1, size="imagnet")  # type: ignore[arg-type]
