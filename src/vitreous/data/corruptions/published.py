"""`Corruption`: a function of images, with five published strengths for small and for large images.

Strengths are those of the code that made CIFAR-10-C and ImageNet-C (Hendrycks and Dietterich 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

from torch import Tensor

from vitreous.data.random_streams import RandomStreams

Size = Literal["cifar", "imagenet"]
EPSILON = 5e-4
"""Levels, added before rounding down: float32 may leave unchanged values just below an integer."""


@dataclass(frozen=True)
class Corruption:
    """A corruption: `apply(images, *strength)`, or `apply(images, rng, *strength)` if `random`.

    Images are float (n, 3, h, w) in levels 0 … 255, which `apply` may overwrite; results outside
    are clipped. With `uint8`, `apply` takes and returns uint8 images.
    """

    name: str
    what: str
    apply: Callable[..., Tensor]
    cifar: tuple[tuple[Any, ...], ...]
    imagenet: tuple[tuple[Any, ...], ...]
    random: bool
    uint8: bool

    def __call__(
        self, images: Tensor, streams: Callable[[], RandomStreams], severity: int, size: Size
    ) -> Tensor:
        """Corrupt uint8 images; values are rounded down, as published."""
        strength = (self.cifar if size == "cifar" else self.imagenet)[severity - 1]
        if self.random:
            strength = (streams(), *strength)
        if self.uint8:
            return self.apply(images, *strength)
        corrupted = self.apply(images.float(), *strength)
        # converting via int16 is twice as fast as directly to uint8
        return corrupted.add_(EPSILON).clamp_(0, 255).short().byte()


def published(
    *, cifar: Sequence[Any], imagenet: Sequence[Any], uint8: bool = False
) -> Callable[[Callable[..., Tensor]], Corruption]:
    """Decorate a function as a corruption of the same name, with five strengths, mildest first."""

    def make(apply: Callable[..., Tensor]) -> Corruption:
        what = " ".join((apply.__doc__ or "").split("\n\n")[0].split())
        random = "rng" in signature(apply).parameters
        return Corruption(
            apply.__name__, what, apply, _tuples(cifar), _tuples(imagenet), random, uint8
        )

    return make


def _tuples(strengths: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple(each if isinstance(each, tuple) else (each,) for each in strengths)
