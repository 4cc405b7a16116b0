"""Every corruption against its published definition, written here image by image with numpy, scipy
and Pillow.

The references take the same random numbers, so that images can be compared value by value.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats

from data.natural import natural
from vitreous.data.corruptions import KINDS, corrupt
from vitreous.data.corruptions.blur import _sources
from vitreous.data.corruptions.filters import extend
from vitreous.data.corruptions.frost import MEANS, STDS, panes
from vitreous.data.corruptions.plasma import plasma
from vitreous.data.corruptions.published import EPSILON
from vitreous.data.corruptions.spatter import edge_distances, edges, water
from vitreous.data.random_streams import RandomStreams

Array = npt.NDArray[Any]
Make = Callable[..., Array]
CPU = torch.device("cpu")
SIDES = {"cifar": 32, "imagenet": 112}


def normal(rng: RandomStreams, *shape: int) -> Array:
    return rng.normal(*shape).numpy()[0].astype(float)


def uniform(rng: RandomStreams, *shape: int) -> Array:
    return rng.uniform(*shape).numpy()[0].astype(float)


def shares(rng: RandomStreams, *shape: int) -> Array:
    """The middles of 2 ** 16 parts of [0, 1]."""
    return (rng.words(*shape).numpy()[0].astype(float) + 2**15 + 0.5) / 2**16


def gaussian_noise(x: Array, rng: RandomStreams, scale: float) -> Array:
    return x + scale * normal(rng, *x.shape)


def speckle_noise(x: Array, rng: RandomStreams, scale: float) -> Array:
    return x + x * scale * normal(rng, *x.shape)


def shot_noise(x: Array, rng: RandomStreams, photons: int) -> Array:
    return stats.poisson.ppf(shares(rng, *x.shape), np.maximum(x * photons, 1e-30)) / photons


def impulse_noise(x: Array, rng: RandomStreams, share: float) -> Array:
    drawn = shares(rng, *x.shape)
    return np.where(drawn < share / 2, 1.0, np.where(drawn < share, 0.0, x))


def gaussian_blur(x: Array, rng: RandomStreams, sigma: float) -> Array:
    return np.stack([ndimage.gaussian_filter(c, sigma, mode="nearest", truncate=4.0) for c in x])


def defocus_blur(x: Array, rng: RandomStreams, radius: float, sigma: float) -> Array:
    reach, half = (8, 1) if radius <= 8 else (int(radius), 2)
    y, z = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disk = (y**2 + z**2 <= radius**2).astype(float)
    disk = ndimage.gaussian_filter(disk / disk.sum(), sigma, mode="mirror", radius=half)
    return np.stack([ndimage.correlate(c, disk, mode="mirror") for c in x])


def glass_blur(x: Array, rng: RandomStreams, sigma: float, reach: int, times: int) -> Array:
    levels = np.floor(gaussian_blur(x, rng, sigma) * 255 + EPSILON)
    height, width = x.shape[1:]
    for _ in range(times):
        drawn = (shares(rng, height, width) * 4 * reach * reach).astype(int)
        down, right = drawn // (2 * reach) - reach, drawn % (2 * reach) - reach
        for h in range(height - reach, reach, -1):
            for w in range(width - reach, reach, -1):
                levels[:, h, w] = levels[:, h + down[h, w], w + right[h, w]]
    return gaussian_blur(levels / 255, rng, sigma)


def moved(x: Array, angle: float, radius: int, sigma: float) -> Array:
    """One step of a pixel at a time, the outermost pixel repeated."""
    height, width = x.shape[1:]
    weights = np.exp(-(np.arange(2 * radius + 1.0) ** 2) / (2 * sigma**2))
    total = np.zeros_like(x)
    for step, weight in enumerate(weights / weights.sum()):
        y = np.clip(np.arange(height) + math.ceil(step * math.sin(angle) - 0.5), 0, height - 1)
        z = np.clip(np.arange(width) + math.ceil(step * math.cos(angle) - 0.5), 0, width - 1)
        total += weight * x[:, y][:, :, z]
    return total


def motion_blur(x: Array, rng: RandomStreams, radius: int, sigma: float) -> Array:
    return moved(x, float(rng.uniform(low=-math.pi / 4, high=math.pi / 4)), radius, sigma)


def zoomed(x: Array, factor: float) -> Array:
    side = x.shape[1]
    cut = math.ceil(side / factor)
    top = (side - cut) // 2
    large = ndimage.zoom(x[:, top : top + cut, top : top + cut], (1, factor, factor), order=1)
    trim = (large.shape[1] - side) // 2
    return large[:, trim : trim + side, trim : trim + side]


def zoom_blur(x: Array, rng: RandomStreams, largest: float, step: float) -> Array:
    layers = [zoomed(x, factor) for factor in np.arange(1, largest + step / 2, step)]
    return np.mean([x, *layers], axis=0)


def snow(x: Array, rng: RandomStreams, *strength: float) -> Array:
    mean, std, size, least, radius, sigma, keep = strength
    cut = math.ceil(x.shape[1] / size)
    noise = np.full((1, *x.shape[1:]), np.nan)  # all that is cut off
    top = (x.shape[1] - cut) // 2
    noise[:, top : top + cut, top : top + cut] = mean + std * normal(rng, 1, cut, cut)
    flakes = zoomed(noise, size)
    flakes = np.floor(np.clip(np.where(flakes < least, 0, flakes), 0, 1) * 255 + EPSILON) / 255
    angle = float(rng.uniform(low=-3 * math.pi / 4, high=-math.pi / 4))
    flakes = np.round(moved(flakes, angle, int(radius), sigma) * 255) / 255
    grey = np.tensordot([0.299, 0.587, 0.114], x, 1)
    return (
        keep * x
        + (1 - keep) * np.maximum(x, grey * 1.5 + 0.5)
        + flakes
        + np.rot90(flakes, 2, (1, 2))
    )


def frost(x: Array, rng: RandomStreams, image: float, ice: float, scale: float) -> Array:
    side = x.shape[1]
    glass = panes(scale, side, torch.device("cpu"))
    drawn = uniform(rng, 3) * [5, glass.shape[2] - side + 1, glass.shape[3] - side + 1]
    which, top, left = drawn.astype(int)
    return image * x + ice * glass[which, :, top : top + side, left : left + side].numpy()


def fog(x: Array, rng: RandomStreams, thickness: float, decay: float) -> Array:
    """Diamond and square, point by point."""
    side = 2 ** math.ceil(math.log2(x.shape[1]))
    noise = rng.coarse(side, side, low=-1, high=1)[0].numpy()
    heights = np.zeros((side, side))
    step, scale = side, 1.0
    while step >= 2:
        half = step // 2
        squares = [(y, z) for y in range(half, side, step) for z in range(half, side, step)]
        edges = [
            (y, z)
            for y in range(0, side, half)
            for z in range(0, side, half)
            if (y + z) // half % 2
        ]
        for points, way in (
            (squares, ((-1, -1), (-1, 1), (1, -1), (1, 1))),
            (edges, ((-1, 0), (1, 0), (0, -1), (0, 1))),
        ):
            for y, z in points:
                around = [heights[(y + a * half) % side, (z + b * half) % side] for a, b in way]
                heights[y, z] = sum(around) / 4 + scale * noise[y, z]
        step, scale = half, scale / decay**2
    heights = (heights - heights.min()) / np.ptp(heights)
    return (x + thickness * heights[: x.shape[1], : x.shape[2]]) * x.max() / (x.max() + thickness)


def hsv(x: Array, change: Callable[[Any, Any, Any], tuple[Any, Any, Any]]) -> Array:
    """Through hue, saturation and value, pixel by pixel, with the standard library."""
    import colorsys

    pixels = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*p))) for p in x.reshape(3, -1).T]
    return np.array(pixels).T.reshape(x.shape)


def brightness(x: Array, rng: RandomStreams, more: float) -> Array:
    return hsv(x, lambda h, s, v: (h, s, min(v + more, 1)))


def saturate(x: Array, rng: RandomStreams, factor: float, more: float) -> Array:
    return hsv(x, lambda h, s, v: (h, min(max(s * factor + more, 0), 1), v))


def contrast(x: Array, rng: RandomStreams, factor: float) -> Array:
    mean = x.mean((1, 2), keepdims=True)
    return (x - mean) * factor + mean


def elastic_transform(
    x: Array, rng: RandomStreams, strength: float, sigma: float, corners: float
) -> Array:
    side = x.shape[1]
    middle, third = side // 2, side // 3
    before = middle + third * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + rng.uniform(3, 2, low=-corners * side, high=corners * side)[0].numpy()
    matrix = np.linalg.solve(
        np.c_[before, np.ones(3)], after
    ).T  # (x, y, 1) of the image to (x, y) of the result
    back = np.linalg.inv(np.r_[matrix, [[0, 0, 1]]])
    y, z = np.mgrid[:side, :side]
    from_x, from_y, _ = np.tensordot(back, np.stack([z, y, np.ones_like(y)]), 1)
    x = np.stack([ndimage.map_coordinates(c, [from_y, from_x], order=1, mode="mirror") for c in x])
    if strength == 0:
        return x
    field = rng.coarse(2, side, side, low=-1, high=1)[0].numpy().astype(float)
    right, down = (
        strength * side * ndimage.gaussian_filter(f, sigma * side, mode="reflect", truncate=3)
        for f in field
    )
    return np.stack(
        [ndimage.map_coordinates(c, [y + down, z + right], order=1, mode="reflect") for c in x]
    )


def pixelate(x: Array, rng: RandomStreams, share: float) -> Array:
    side = x.shape[1]
    small = picture(x).resize((int(side * share), int(side * share)), Image.Resampling.BOX)
    return np.asarray(small.resize((side, side), Image.Resampling.BOX)).transpose(2, 0, 1) / 255


def jpeg_compression(x: Array, rng: RandomStreams, quality: int) -> Array:
    file = io.BytesIO()
    picture(x).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file)).transpose(2, 0, 1) / 255


def picture(x: Array) -> Image.Image:
    return Image.fromarray((x * 255).round().astype(np.uint8).transpose(1, 2, 0))


def spatter(x: Array, rng: RandomStreams, *strength: Any) -> Array:
    mean, std, sigma, least, much, what = strength
    liquid = gaussian_blur(mean + std * normal(rng, 1, *x.shape[1:]), rng, sigma)[0]
    if what == "mud":
        mud = ndimage.gaussian_filter(
            (liquid > least).astype(float), much, mode="nearest", truncate=4.0
        )
        mud = np.where(mud < 0.8, 0, mud)
        return x * (1 - mud) + mud * np.array([63, 42, 20])[:, None, None] / 255
    level = np.floor(np.where(liquid < least, 0, liquid) * 255)
    rims = edges(level[None])[0]
    distance = np.minimum(ndimage.distance_transform_edt(~rims), 20)
    distance = np.floor(ndimage.uniform_filter(distance, 3, mode="mirror") + 1e-6).astype(int)
    sums = np.bincount(distance.ravel(), minlength=256).cumsum()
    first = sums[distance.min()]
    light = np.round((sums - first) / (distance.size - first) * 255)[distance]
    light = np.clip(
        ndimage.correlate(light, [[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], mode="mirror"), 0, 255
    )
    bright = level * np.floor(ndimage.uniform_filter(light, 3, mode="mirror") + 0.5)
    return x + much * bright / bright.max() * np.array([175, 238, 238])[:, None, None] / 255


BY_HAND: dict[str, Make] = {name: globals()[name] for name in KINDS}


@pytest.mark.parametrize("size", ["cifar", "imagenet"])
@pytest.mark.parametrize("kind", BY_HAND)
def test_corruption_equals_its_definition(kind: str, size: Any) -> None:
    """The same level nearly everywhere, and never two apart: what float32 leaves beside a whole
    number may fall. In spatter alone may it move the rim of a drop, and with it some pixels."""
    side = 48 if kind == "glass_blur" and size == "imagenet" else SIDES[size]
    images = natural(1, side)
    images[0, :, 3:6, 3:9] = 0  # black, grey and white, where hue and saturation are not defined
    images[0, :, 9:12, 3:9] = 128
    images[0, :, 12:15, 3:9] = 255
    strengths = KINDS[kind].cifar if size == "cifar" else KINDS[kind].imagenet
    for severity, strength in enumerate(strengths, 1):
        got = corrupt(images, kind, severity, seed=7, first=11, size=size)[0].numpy().astype(int)
        rng = RandomStreams(f"{kind} {severity} 7", 11, 1, torch.device("cpu"))
        wanted = BY_HAND[kind](images[0].numpy() / 255, rng, *strength)
        difference = np.abs(got - np.floor(np.clip(wanted, 0, 1) * 255 + EPSILON))
        assert difference.max() <= 1 or kind == "spatter", (severity, difference.max())
        most = (
            2e-3 if size == "imagenet" else 5e-3
        )  # of 1024 pixels, where one flake of snow touches several
        assert (difference > 0).mean() < most, (severity, (difference > 0).mean())


@pytest.mark.parametrize("sides", [(1, 1), (2, 5), (7, 5), (40, 30)])
def test_images_are_extended_as_numpy_does(sides: tuple[int, int]) -> None:
    image = torch.rand(1, 3, *sides)
    for border, theirs in (("nearest", "edge"), ("mirror", "reflect")):
        wanted = np.pad(image.numpy(), ((0, 0), (0, 0), (3, 9), (12, 1)), theirs)  # type: ignore[call-overload]
        np.testing.assert_array_equal(extend(image, (3, 9), (12, 1), border), wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_distances_are_euclidean_up_to_a_limit(kind: Callable[[Array], Any]) -> None:
    found = np.random.default_rng(0).random((3, 40, 70)) < 0.003
    found[2] = False
    got = np.asarray(edge_distances(kind(found), 20))
    for each, distance in zip(found[:2], got, strict=False):
        np.testing.assert_allclose(
            distance, np.minimum(ndimage.distance_transform_edt(~each), 20), rtol=1e-6
        )
    assert (got[2] == 20).all()


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_edges_of_shapes_whose_edges_are_known(kind: Callable[[Array], Any]) -> None:
    def found(level: Array) -> Array:
        return np.asarray(edges(kind(level[None])))[0]

    step = np.zeros((12, 12))
    step[:, 6:] = 200
    assert np.unique(found(step).nonzero()[1]).tolist() == [5]
    assert np.unique(found(step.T.copy()).nonzero()[0]).tolist() == [5]
    assert not found(np.full((12, 12), 130.0)).any()
    faint = np.zeros((12, 12))
    faint[:, 6:] = 30  # slopes of 120, between the two limits
    assert not found(faint).any()
    faint[:3, 6:] = 200  # a strong edge that a faint one continues
    assert found(faint)[-1].any()


@pytest.mark.parametrize("what", ["water", "plasma", "sources"])
def test_numpy_and_torch_agree(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on numpy on a CPU runs on torch on a GPU; here both, on a CPU."""
    make: dict[str, Callable[[Callable[..., Any]], Any]] = {
        "water": lambda kind: water(
            kind(RandomStreams("drops", 0, 2, CPU).normal(40, 30, mean=140, std=90).clamp_(0, 255))
        ),
        "plasma": lambda kind: plasma(RandomStreams("clouds", 0, 2, CPU), 32, 1.7),
        "sources": lambda kind: _sources(RandomStreams("glass", 0, 2, CPU), 40, 30, 2, 3),
    }
    by_numpy = make[what](torch.Tensor.numpy)
    for module in ("plasma", "blur"):
        monkeypatch.setattr(f"vitreous.data.corruptions.{module}.native", lambda x: x)
    np.testing.assert_allclose(make[what](lambda x: x), by_numpy, rtol=1e-5, atol=1e-6)


def test_panes_have_the_tint_and_contrast_they_should() -> None:
    glass = panes(1.0, 224, torch.device("cpu")) * 255
    assert glass.shape == (5, 3, 512, 512)
    for pane, mean, std in zip(glass, MEANS, STDS, strict=True):
        torch.testing.assert_close(pane.mean((1, 2)), torch.tensor(mean).float(), atol=1.5, rtol=0)
        torch.testing.assert_close(pane.std((1, 2)), torch.tensor(std).float(), atol=3, rtol=0)
    assert (torch.corrcoef(glass[:, 0].flatten(1)) - torch.eye(5)).abs().max() < 0.3
    assert panes(0.2, 32, torch.device("cpu")).shape[-1] == 102
    assert panes(1.0, 600, torch.device("cpu")).shape[-1] == 675
