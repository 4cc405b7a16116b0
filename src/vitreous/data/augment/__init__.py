"""Augmentation of whole batches on the device of the model, random for each image (A3.09, A3.10,
A3.24).

All randomness is in `Augmenter.draw`, a function of a generator: numbers for every image of a
batch, and a few for the batch. The rest is tensor arithmetic that `torch.compile` takes as one
graph. So several processes that draw the same numbers can each compute their own rows of one and
the same batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.config import Augment
from vitreous.data.augment import mixing
from vitreous.data.augment.chance import choose
from vitreous.data.augment.colour import Jitter
from vitreous.data.augment.erasing import Erasing
from vitreous.data.augment.geometry import Flip, ResizedCrop, Shift
from vitreous.data.augment.randaugment import RandAugment
from vitreous.data.augment.stage import Stage
from vitreous.data.dataset import Triple
from vitreous.errors import BadImages, VitreousError


class Draw(NamedTuple):
    """Uniform numbers in [0, 1) for one batch."""

    images: Tensor  # (image, numbers), a row for each image
    batch: Tensor  # for what is decided once: the mixing


class Normalise:
    """uint8 levels as the model wants them, as `Dataset.normalise` gives them."""

    numbers = 0

    def __init__(self, mean: Triple, std: Triple) -> None:
        self.mean, self.std = mean, std

    def settle(self, uniform: Tensor) -> tuple[()]:
        return ()

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor:
        channel = torch.arange(3, device=images.device).view(3, 1, 1)
        return (images.float() / 255 - choose(channel, self.mean)) / choose(channel, self.std)


class Augmenter:
    """What an `Augment` says, done to batches of images of one size. Built once per run; it keeps
    no state.

    ```python
    augmenter = Augmenter(recipe.augment, image=data.image, classes=len(data.classes), mean=data.mean, std=data.std)
    images, targets = augmenter(images, labels, augmenter.draw(len(images), generator))
    ```
    """

    def __init__(
        self, augment: Augment, *, image: tuple[int, int], classes: int, mean: Triple, std: Triple
    ) -> None:
        self.augment = augment
        self.image = image
        self.classes = classes
        self.stages = stages(augment, image, mean, std)
        self.numbers = [stage.numbers for stage in self.stages]
        self.mixes = augment.mix_prob > 0 and (augment.mixup > 0 or augment.cutmix > 0)

    def draw(self, n: int, generator: torch.Generator) -> Draw:
        """The random numbers of a batch of n, on the device of the generator, which does not
        wait for them."""
        width = sum(self.numbers)
        numbers = torch.rand(
            mixing.NUMBERS + n * width, generator=generator, device=generator.device
        )
        return Draw(numbers[mixing.NUMBERS :].view(n, width), numbers[: mixing.NUMBERS])

    def __call__(
        self, images: Tensor, labels: Tensor, draw: Draw, *, rows: slice | None = None
    ) -> tuple[Tensor, Tensor]:
        """uint8 images and labels of a whole batch to float32 images and soft targets of `rows`, by
        default all.

        Rows are computed from themselves and their mixing partners alone, and are exactly those of
        the whole result.
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
                turned = [tuple(each.flip(0) for each in own) for own in settings]
                partners = self.alter(images.flip(0)[wanted], turned, wanted)
            mixed = mixing.mix_images(altered, partners, mix)
        return mixed, mixing.mix_targets(targets, targets.flip(0), mix)[wanted]

    def alter(self, images: Tensor, settings: list[tuple[Tensor, ...]], rows: slice) -> Tensor:
        """What happens to each image alone. Settings are of the whole batch, images of these
        rows."""
        for stage, own in zip(self.stages, settings, strict=True):
            images = stage(images, *(each[rows] for each in own))
        return images

    def check(self, images: Tensor, labels: Tensor, draw: Draw) -> None:
        """Shapes and types, which are known without looking at a value."""
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


def stages(augment: Augment, image: tuple[int, int], mean: Triple, std: Triple) -> list[Stage]:
    """The stages that an `Augment` asks for, in its order."""
    low, high = augment.area
    if not 0 < low <= high <= 1:
        raise VitreousError(
            f"augment.area {augment.area} is not a range of shares of an image, such as (0.08, "
            "1.0)."
        )
    found: list[Stage] = []
    if augment.crop == "pad" and augment.padding:
        found.append(Shift(augment.padding))
    if augment.crop == "resized":
        found.append(ResizedCrop(augment.area, image))
    if augment.flip:
        found.append(Flip(augment.flip))
    if augment.randaugment:
        red, green, blue = (min(255.0, float(round(255 * each))) for each in mean)
        found.append(RandAugment(augment.randaugment, image, (red, green, blue)))
    if augment.jitter:
        found.append(Jitter(augment.jitter))
    found.append(Normalise(mean, std))
    if augment.erasing:
        found.append(Erasing(augment.erasing, image))
    return found
