"""Spatter: water or mud on the lens. The rims of water drops are bright."""

from __future__ import annotations

import torch
from torch import Tensor

from vitreous.data.corruptions.filters import gaussian_smooth
from vitreous.data.corruptions.numpy_or_torch import Array, Neighbours, add_frame, library, native
from vitreous.data.corruptions.published import published
from vitreous.data.random_streams import RandomStreams

WATER, MUD = (175, 238, 238), (63, 42, 20)


@published(
    cifar=[
        (0.62, 0.1, 0.7, 0.7, 0.5, "water"),
        (0.65, 0.1, 0.8, 0.7, 0.5, "water"),
        (0.65, 0.3, 1, 0.69, 0.5, "water"),
        (0.65, 0.1, 0.7, 0.69, 0.6, "mud"),
        (0.65, 0.1, 0.5, 0.68, 0.6, "mud"),
    ],
    imagenet=[
        (0.65, 0.3, 4, 0.69, 0.6, "water"),
        (0.65, 0.3, 3, 0.68, 0.6, "water"),
        (0.65, 0.3, 2, 0.68, 0.5, "water"),
        (0.65, 0.3, 1, 0.65, 1.5, "mud"),
        (0.67, 0.4, 1, 0.65, 1.5, "mud"),
    ],
)
def spatter(
    images: Tensor,
    rng: RandomStreams,
    mean: float,
    std: float,
    sigma: float,
    least: float,
    strength: float,
    what: str,
) -> Tensor:
    """Cover the pixels where smoothed normal noise exceeds `least` with water or mud.

    `strength` is the brightness of water, or the blur of mud.
    """
    liquid = gaussian_smooth(rng.normal(*images.shape[-2:], mean=255 * mean, std=255 * std), sigma)
    if what == "water":
        bright = torch.as_tensor(water(native(liquid.mul_(liquid >= 255 * least)))).mul_(strength)
        for channel, colour in zip(images.unbind(1), WATER, strict=True):
            channel.add_(bright, alpha=colour)
        return images
    mud = gaussian_smooth((liquid > 255 * least).float(), strength)
    mud *= mud >= 0.8
    for channel, colour in zip(images.unbind(1), MUD, strict=True):
        channel.lerp_(mud.new_tensor(float(colour)), mud)
    return images


def water(liquid: Array) -> Array:
    """Brightness of drops (n, h, w), at most one: thickness times embossed, equalised rim distance.

    Distances are exact; the original uses OpenCV's approximation with a 5x5 mask, with errors of up
    to 2 %.
    """
    lib = library(liquid)
    level = lib.floor(liquid)
    around = Neighbours(_equalised(_mean3(edge_distances(edges(level), 20))), "mirror")
    light = around(1, 1) - around(-1, -1)
    light *= 2
    for way in ((0, 0), (0, 1), (1, 0)):
        light += around(*way)
    light -= around(0, -1)
    light -= around(-1, 0)
    light = around.rows(lib.clip(light, 0, 255, out=light))
    bright = lib.floor(_mean3(light) + 0.5)
    bright *= level
    # Clipped, because the original divides by 0 without drops.
    bright /= lib.clip(lib.amax(bright, axis=(1, 2), keepdims=True), 1, None)
    return bright


def edges(level: Array, low: int = 50, high: int = 150) -> Array:
    """Canny edges, bool (n, h, w), of integer levels up to 255.

    Gradients are |dx| + |dy| of Sobel's filters; edges above `low` count if connected to one above
    `high`.
    """
    lib = library(level)
    around = Neighbours(lib.asarray(level, dtype=lib.int16), "nearest")
    dx = around(0, 1) - around(0, -1)
    dx *= 2
    dy = around(1, 0) - around(-1, 0)
    dy *= 2
    down, up = around(1, 1) - around(-1, -1), around(-1, 1) - around(1, -1)
    dx += down
    dx += up
    dy += down
    dy -= up
    wide, tall = abs(dx), abs(dy)
    size = wide + tall
    steep, flat = (lib.asarray(each, dtype=lib.float32) * (2**0.5 - 1) for each in (tall, wide))
    flat, steep = tall < flat, wide < steep  # less than 22.5 degrees from an axis
    near = Neighbours(around.rows(size))
    rising = (dx ^ dy) < 0
    across = (size > near(0, -1)) & (size >= near(0, 1)) & flat
    along = (size > near(-1, 0)) & (size >= near(1, 0)) & steep
    down = (size > lib.maximum(near(-1, -1), near(1, 1))) & ~rising
    up = (size > lib.maximum(near(-1, 1), near(1, -1))) & rising
    ridge = (across | along | ((down | up) & ~(flat | steep))) & (size > low)
    return _linked(around.rows(ridge & (size > high)), around.rows(ridge))


def _linked(strong: Array, ridge: Array) -> Array:
    """All of `ridge` that is connected, also by corners, with `strong`."""
    around = Neighbours(strong)
    count, wide, inner = -1, around.width + 2, around(0, 0)
    ridge = Neighbours(ridge)(0, 0)
    while count != (count := int(library(strong).count_nonzero(inner))):
        tall = around.line[:, : -2 * wide] | around.line[:, wide:-wide] | around.line[:, 2 * wide :]
        length = inner.shape[1]
        inner[...] = (tall[:, :length] | tall[:, 1 : length + 1] | tall[:, 2 : length + 2]) & ridge
    return around.rows(inner)


def edge_distances(edge: Array, most: int) -> Array:
    """Distance of each pixel of (n, h, w) to the nearest edge, at most `most`.

    First within its row, by steps of one, two, four, … pixels to the left and to the right; then
    the minimum over the rows around. Rows are stored one behind the other, too far apart to be
    crossed.
    """
    lib, (images, height, width) = library(edge), edge.shape
    wide = width + most
    away = add_frame(lib.asarray(~edge, dtype=lib.int16) * most, (0, 0), (0, most), most).reshape(
        images, -1
    )
    for step in (1 << power for power in range(most.bit_length())):
        left, right = away[:, :-step], away[:, step:]
        lib.minimum(left, right + step, out=left)
        lib.minimum(right, left + step, out=right)
    far = int(away.reshape(images, height, wide)[..., :width].max()) if images else 0
    square = away * away
    rows = add_frame(square.reshape(images, height, wide), (far, far), (0, 0), most**2).reshape(
        images, -1
    )
    for step in range(1, far):
        above, below = (
            rows[:, start * wide :][:, : height * wide] for start in (far - step, far + step)
        )
        nearer = lib.minimum(above, below)
        nearer += step**2
        lib.minimum(square, nearer, out=square)
    distance = lib.asarray(square.reshape(images, height, wide)[..., :width], dtype=lib.float32)
    return lib.sqrt(distance, out=distance)


def _mean3(x: Array) -> Array:
    """Means over 3 × 3 pixels."""
    around = Neighbours(x, "mirror")
    line, wide, length = around.line, around.width + 2, around.height * (around.width + 2)
    tall = line[:, : -2 * wide] + line[:, 2 * wide :]
    tall += line[:, wide:-wide]
    both = tall[:, :length] + tall[:, 2 : length + 2]
    both += tall[:, 1 : length + 1]
    both /= 9
    return around.rows(both)


def _equalised(level: Array) -> Array:
    """Levels (n, h, w), rounded down, with equalised histograms; images of one level stay."""
    lib, (images, height, width) = library(level), level.shape
    mine = lib.asarray(level, dtype=lib.int64)
    mine += 256 * (lib.cumsum(lib.ones_like(mine[:, :1, :1]), axis=0) - 1)
    sums = lib.cumsum(
        lib.bincount(mine.reshape(-1), minlength=256 * images).reshape(images, 256), axis=1
    )
    lowest = lib.amin(lib.where(sums > 0, sums, height * width), axis=1, keepdims=True)
    spread = lib.round((sums - lowest) * 255 / lib.clip(height * width - lowest, 1, None))
    same = lib.cumsum(lib.ones_like(spread), axis=1) - 1
    return lib.take(
        lib.asarray(lib.where(lowest == height * width, same, spread), dtype=lib.float32), mine
    )
