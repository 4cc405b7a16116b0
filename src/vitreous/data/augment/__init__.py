"""Augmentation of batches on the device of the model, random for each image.

All randomness is in `Augmenter.draw`, which returns uniform numbers for every image of a batch, and
a few for the batch. The rest is tensor arithmetic that `torch.compile` compiles as one graph. So
several processes that draw the same numbers can each compute their rows of the same batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.config import Augment
from vitreous.data.augment import mixing
from vitreous.data.augment.colour import Jitter
from vitreous.data.augment.distributions import lookup
from vitreous.data.augment.erasing import Erasing
from vitreous.data.augment.geometry import Flip, ResizedCrop, Shift
from vitreous.data.augment.randaugment import RandAugment
from vitreous.data.augment.stage import Stage
from vitreous.data.dataset import Triple
from vitreous.errors import BadImages, VitreousError


class Draw(NamedTuple):
    """Uniform numbers in [0, 1) for one batch."""

    images: Tensor  # (image, numbers), a row for each image
    batch: Tensor  # for mixing, which is the same for the whole batch


class Normalise:
    """`Dataset.normalise` as a stage."""

    numbers = 0

    def __init__(self, mean: Triple, std: Triple) -> None:
        self.mean, self.std = mean, std

    def settle(self, uniform: Tensor) -> tuple[()]:
        return ()

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor:
        channel = torch.arange(3, device=images.device).view(3, 1, 1)
        return (images.float() / 255 - lookup(channel, self.mean)) / lookup(channel, self.std)


class Augmenter:
    """Applies an `Augment` to batches of images of one size. Built once per run; it has no state.

    ```python
    classes = len(data.classes)
    augmenter = Augmenter(augment, image=data.image, classes=classes, mean=data.mean, std=data.std)
    images, targets = augmenter(images, labels, augmenter.draw(len(images), generator))
    ```
    """

    def __init__(
        self, augment: Augment, *, image: tuple[int, int], classes: int, mean: Triple, std: Triple
    ) -> None:
        self.augment = augment
        self.image = image
        self.classes = classes
        self.stages = _stages(augment, image, mean, std)
        self.numbers = [stage.numbers for stage in self.stages]
        self.mixes = augment.mix_prob > 0 and (augment.mixup > 0 or augment.cutmix > 0)

    def draw(self, n: int, generator: torch.Generator) -> Draw:
        """Draw the random numbers of a batch of n, on the generator's device, without waiting."""
        width = sum(self.numbers)
        numbers = torch.rand(
            mixing.NUMBERS + n * width, generator=generator, device=generator.device
        )
        return Draw(numbers[mixing.NUMBERS :].view(n, width), numbers[: mixing.NUMBERS])

    def __call__(
        self, images: Tensor, labels: Tensor, draw: Draw, *, rows: slice | None = None
    ) -> tuple[Tensor, Tensor]:
        """Augment a batch; return float32 images and soft targets of `rows` (default: all).

        Images (n, 3, height, width) are uint8. Only the rows and their mixing partners are
        computed, and they are exactly those of the complete result.
        """
        self.check(images, labels, draw)
        wanted = slice(None) if rows is None else rows
        parts = zip(self.stages, draw.images.split(self.numbers, 1), strict=True)
        settings = [stage.settle(uniform) for stage, uniform in parts]
        targets = mixing.targets(labels, self.classes, self.augment.smoothing)
        with torch.autocast(images.device.type, enabled=False):
            altered = self.alter(images[wanted], settings, wanted)
            if not self.mixes:
                return altered, targets[wanted]
            mix = mixing.settle(draw.batch, self.augment, self.image)
            if rows is None:
                partners = altered.flip(0)
            else:
                turned = [tuple(each.flip(0) for each in setting) for setting in settings]
                partners = self.alter(images.flip(0)[wanted], turned, wanted)
            mixed = mixing.mix_images(altered, partners, mix)
        return mixed, mixing.mix_targets(targets, targets.flip(0), mix)[wanted]

    def alter(self, images: Tensor, settings: list[tuple[Tensor, ...]], rows: slice) -> Tensor:
        """Apply the stages. `settings` are those of the complete batch, `images` only of `rows`."""
        for stage, setting in zip(self.stages, settings, strict=True):
            images = stage(images, *(each[rows] for each in setting))
        return images

    def check(self, images: Tensor, labels: Tensor, draw: Draw) -> None:
        """Raise if shapes or types are wrong. Checking values would wait for a GPU."""
        if images.dtype != torch.uint8 or images.shape[1:] != (3, *self.image):
            raise BadImages(
                f"Augmentation was set up for uint8 images (n, 3, {self.image[0]}, "
                f"{self.image[1]}) and was given "
                f"{str(images.dtype).removeprefix('torch.')} {tuple(images.shape)}."
            )
        if not len(images) == len(labels) == len(draw.images):
            raise VitreousError(
                f"A batch is augmented as a whole, but there are {len(images)} images, "
                f"{len(labels)} labels and "
                f"numbers drawn for {len(draw.images)}."
            )


def _stages(augment: Augment, image: tuple[int, int], mean: Triple, std: Triple) -> list[Stage]:
    """The stages of an `Augment`, in order."""
    low, high = augment.area
    if not 0 < low <= high <= 1:
        raise VitreousError(
            f"augment.area {augment.area} is not a range of shares of an image, such as (0.08, "
            "1.0)."
        )
    chosen: list[Stage] = []
    if augment.crop == "pad" and augment.padding:
        chosen.append(Shift(augment.padding))
    if augment.crop == "resized":
        chosen.append(ResizedCrop(augment.area, image))
    if augment.flip:
        chosen.append(Flip(augment.flip))
    if augment.randaugment:
        red, green, blue = (min(255.0, float(round(255 * each))) for each in mean)
        chosen.append(RandAugment(augment.randaugment, image, (red, green, blue)))
    if augment.jitter:
        chosen.append(Jitter(augment.jitter))
    chosen.append(Normalise(mean, std))
    if augment.erasing:
        chosen.append(Erasing(augment.erasing, image))
    return chosen
