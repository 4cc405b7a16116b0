"""`Dataset`: labelled images as one uint8 tensor, from any source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from vitreous.data.framing import Framing
from vitreous.progress import progress
from vitreous.storage.fingerprints import fingerprint_of

Triple = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images, labels and normalisation. Tensors are in memory, on a GPU (`to`) or memory-mapped.

    Examples
    --------
    >>> import vitreous
    >>> data = vitreous.data.load("world:shapes", split="test", size=20)
    >>> data.take(data.labels == 0).images.shape[1:], data.classes[0]
    (torch.Size([3, 32, 32]), 'disc')
    >>> data.normalise(data.images).dtype
    torch.float32
    """

    images: Tensor  # uint8 (n, 3, height, width)
    labels: Tensor  # int64 (n,); -1 for unknown
    classes: tuple[str, ...]  # () if no image has a label
    name: str  # the name it was loaded by: "folder:photos", "world:shapes"
    split: str = "train"
    mean: Triple = (0.485, 0.456, 0.406)  # of the channels, in [0, 1]
    std: Triple = (0.229, 0.224, 0.225)
    # Other tensors (n, …) known of each image: boxes, factors, …
    truth: Mapping[str, Tensor] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()  # files that could not be decoded and were left out
    total: int = 0  # images of the split before `size` was applied; 0 if unknown
    # Why the scores of a model do not belong to these classes, by model; empty if they do.
    matched: Mapping[str, str] = field(default_factory=dict)
    matched_by: str = ""  # how labels became numbers of scores: "5 of 1000 classes, by wnids"
    framing: Framing | None = None  # how the images were resized and cropped, if they were
    # The same images resized and cropped in other ways, by framing.
    views: Mapping[Framing, Tensor] = field(default_factory=dict)
    # Whether mean and std were measured on the images. Such values say nothing about the training
    # of a model, so they are not used for a model that declares none.
    measured: bool = False

    def __repr__(self) -> str:
        height, width = self.image
        size = f"{len(self)} images of {height}x{width}, {len(self.classes)} classes"
        return f"Dataset({self.name!r}, {self.split!r}: {size})"

    def __len__(self) -> int:
        return len(self.images)

    @property
    def image(self) -> tuple[int, int]:
        """Height and width."""
        return int(self.images.shape[2]), int(self.images.shape[3])

    def take(self, rows: Tensor | Sequence[int]) -> Dataset:
        """The images of these rows, in this order."""
        index = torch.as_tensor(rows, dtype=torch.int64, device=self.images.device)
        truth = {key: value[index] for key, value in self.truth.items()}
        views = {key: value[index] for key, value in self.views.items()}
        images, labels = self.images[index], self.labels[index]
        return replace(self, images=images, labels=labels, truth=truth, views=views)

    def framed(self, framing: Framing) -> Dataset:
        """The images with this framing, if `views` has them; else the dataset itself."""
        if framing not in self.views:
            return self
        views = {key: value for key, value in self.views.items() if key != framing}
        if self.framing is not None:
            views[self.framing] = self.images
        return replace(self, images=self.views[framing], framing=framing, views=views)

    def to(self, device: torch.device | str) -> Dataset:
        """The same images on another device."""
        truth = {key: value.to(device) for key, value in self.truth.items()}
        views = {key: value.to(device) for key, value in self.views.items()}
        images, labels = self.images.to(device), self.labels.to(device)
        return replace(self, images=images, labels=labels, truth=truth, views=views)

    def normalise(self, images: Tensor) -> Tensor:
        """uint8 images as float32, their channels centred and scaled by `mean` and `std`."""
        mean = torch.tensor(self.mean, device=images.device).view(3, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(3, 1, 1)
        return (images.float() / 255 - mean) / std

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content: pixels, labels and class names."""
        shape = repr((tuple(self.images.shape), self.classes))

        def parts() -> Iterator[str | Tensor]:
            yield shape
            yield self.labels
            for images in self.images.split(4096):
                yield images
                advance(len(images))

        # Hashing takes about a second per gigabyte.
        with progress(f"Hashing {self.name}", len(self)) as advance:
            return fingerprint_of(parts())
