"""What a corruption is: a function of images, and five published strengths for small and five for
large images.

Strengths are those of the code that made CIFAR-10-C and ImageNet-C (Hendrycks and Dietterich 2019;
A4.16).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

from torch import Tensor

from vitreous.data.random_streams import RandomStreams

Size = Literal["cifar", "imagenet"]
HAIR = 5e-4
"""Of a level, added before rounding down, because float32 leaves untouched values a hair below
their whole number."""


@dataclass(frozen=True)
class Corruption:
    """`apply(images, *strength)` on float images (n, 3, h, w), its own, in levels; what leaves 0 …
    255 is clipped.

    With `whole`, on uint8 images: what is defined on whole levels needs no detour. With `random`,
    what it draws from comes after the images.
    """

    name: str
    what: str
    apply: Callable[..., Tensor]
    cifar: tuple[tuple[Any, ...], ...]
    imagenet: tuple[tuple[Any, ...], ...]
    random: bool
    whole: bool

    def __call__(
        self, images: Tensor, draws: Callable[[], RandomStreams], severity: int, size: Size
    ) -> Tensor:
        """Corrupted uint8 images; values are rounded down, as published."""
        strength = (self.cifar if size == "cifar" else self.imagenet)[severity - 1]
        if self.random:
            strength = (draws(), *strength)
        if self.whole:
            return self.apply(images, *strength)
        corrupted = self.apply(images.float(), *strength)
        return (
            corrupted.add_(HAIR).clamp_(0, 255).short().byte()
        )  # twice as fast as straight to bytes


def published(
    *, cifar: Sequence[Any], imagenet: Sequence[Any], whole: bool = False
) -> Callable[[Callable[..., Tensor]], Corruption]:
    """Make a corruption of a function, named after it: five strengths each, mildest first."""

    def make(apply: Callable[..., Tensor]) -> Corruption:
        what = " ".join((apply.__doc__ or "").split("\n\n")[0].split())
        random = "draws" in signature(apply).parameters
        return Corruption(
            apply.__name__, what, apply, _tuples(cifar), _tuples(imagenet), random, whole
        )

    return make


def _tuples(strengths: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple(each if isinstance(each, tuple) else (each,) for each in strengths)
