"""The base class of probes, which sum numbers over images and turn the sums into a `Result`.

The state of a probe is a dict of float64 sums. So merging shards, joining processes and resuming
are all addition. Intervals come from the same sums by the Poisson bootstrap: each sum is stored
1 + `REPEATS` times, once unweighted, and `REPEATS` times with every image weighted by a Poisson
number of mean one, which depends only on the seed and the number of the image. So any statistic
can be bootstrapped over images, although no image is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from vitreous.data.dataset import Dataset
from vitreous.data.framing import Framing
from vitreous.devices import PendingCopy, to_device
from vitreous.measure.report_section import Measurement
from vitreous.measure.resampling import poisson_weights
from vitreous.measure.subject import Subject
from vitreous.results import Estimate, Interval, Result, from_replicates
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Site, Sites

Sums = dict[str, Tensor]
Part = Literal["images", "labels", "weights"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class PerImageValues:
    """One array per image of a batch, which the pass will sum.

    The values of all probes are summed together, because launching hundreds of small products on a
    GPU takes longer than two large ones.
    """

    values: Tensor
    """(b, …); NaN if an image has no value."""


Updates = Mapping[str, "Tensor | PerImageValues"]
"""Sums by name, or values per image, which are summed to `name/sum` and `name/count`."""


@dataclass(frozen=True)
class Setting:
    """What is measured: models, images, and the random seed."""

    subjects: tuple[Subject, ...]
    data: Dataset
    seed: int = 0

    def __post_init__(self) -> None:
        prepared = tuple(subject.for_dataset(self.data) for subject in self.subjects)
        object.__setattr__(self, "subjects", prepared)

    @cached_property
    def distinct(self) -> Tensor:
        """(n,) whether each image differs from all earlier images; False for duplicates."""
        digests: set[bytes] = set()
        distinct = []
        for chunk in self.data.images.split(256):
            for image in chunk.cpu().contiguous().flatten(1).numpy():
                digest = blake2b(image.data, digest_size=16).digest()
                distinct.append(digest not in digests)
                digests.add(digest)
        return torch.tensor(distinct, dtype=torch.bool)

    @property
    def copies(self) -> int:
        """Number of images that are duplicates of earlier ones."""
        return int((~self.distinct).sum())

    @property
    def labelled(self) -> bool:
        return bool((self.data.labels >= 0).all()) and len(self.data.classes) > 0

    def unmarkable(self, subject: Subject) -> str:
        """Why predictions of a model cannot be compared with labels; empty if they can."""
        classes = self.data.classes
        if not self.labelled:
            return f"Images of {self.data.name!r} have no labels to compare predictions with."
        if subject.outputs is None:
            return subject.no_scores
        loaded = subject.specimen.checkpoint
        if loaded is not None and loaded.random_head:
            return (
                f"Its classifier is not in {loaded.file!r} and stays random, so its predictions "
                "mean nothing."
            )
        if subject.name in self.data.matched:
            return self.data.matched[subject.name]
        if subject.outputs != len(classes):
            return f"It has {subject.outputs} classes, and {self.data.name!r} has {len(classes)}."
        if subject.classes and subject.classes != classes:
            pairs = zip(subject.classes, classes, strict=True)
            own, given = next(pair for pair in pairs if pair[0] != pair[1])
            return (
                f"It was trained for other classes: its {own!r} is {given!r} in {self.data.name!r}."
            )
        return ""


@dataclass(frozen=True)
class Batch:
    """A batch of images, with their labels and bootstrap weights.

    Examples
    --------
    >>> import torch
    >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    >>> batch = Batch(torch.arange(4), images, torch.zeros(4, dtype=torch.int64))
    >>> len(batch), batch.total(torch.ones(4, 7)).shape
    (4, torch.Size([201, 7]))
    """

    rows: Tensor
    """(b,) numbers of the images in the dataset."""
    images: Tensor
    """(b, 3, height, width) uint8."""
    labels: Tensor
    """(b,); -1 where unknown."""
    seed: int = 0
    full_shard: bool = True
    """Whether the batch is a full shard; if memory is short it is only a part of one."""
    device: torch.device | None = None
    """Device to which all parts are sent when the batch is made, so that a GPU need not wait."""
    views: Mapping[Framing, Tensor] = field(default_factory=dict)
    """The same images resized and cropped in other ways, by framing."""

    def __post_init__(self) -> None:
        if self.device is not None:
            for part in PARTS:
                self._send(part, self.device)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def weights(self) -> Tensor:
        """(1 + REPEATS, b) weights of the images: ones, then Poisson weights per replicate."""
        poisson = torch.from_numpy(poisson_weights(self.rows.tolist(), self.seed)).T
        return torch.cat([torch.ones(1, len(self), dtype=torch.float64), poisson])

    @cached_property
    def _sent(self) -> dict[tuple[Part, torch.device], PendingCopy]:
        return {}

    @cached_property
    def _prepared(self) -> dict[str, Tensor]:
        return {}

    def _send(self, part: Part, device: torch.device) -> None:
        self._sent[part, device] = to_device(getattr(self, part), device)

    def on(self, device: torch.device, part: Part) -> Tensor:
        """Return images, labels or weights on a device; each is transferred only once."""
        if (part, device) not in self._sent:
            self._send(part, device)
        return self._sent[part, device]()

    def prepared(self, subject: Subject) -> Tensor:
        """Return the images prepared for a model; computed only once."""
        if subject.name not in self._prepared:
            view = self.views.get(subject.framing) if subject.framing is not None else None
            images = self.on(subject.device, "images") if view is None else view
            self._prepared[subject.name] = subject.prepare(images)
        return self._prepared[subject.name]

    def total(self, values: Tensor) -> Tensor:
        """(1 + REPEATS, …) weighted sums over the images of `values` (b, …).

        The sums stay on the device of the values, because each transfer would make a GPU wait.
        """
        flat = values.detach().double().reshape(len(self), prod(values.shape[1:]))
        return (self.on(flat.device, "weights") @ flat).reshape(-1, *values.shape[1:])


def interval(replicates: Tensor | np.ndarray, count: Any) -> Interval:
    """Value and 95 % interval of a statistic given as (1 + REPEATS, …).

    The interval of a single image is NaN.
    """
    values = np.asarray(replicates, dtype=np.float64)
    _, low, high = from_replicates(values[0], values[1:], count)
    unknown = np.isnan(values[0])
    return Interval(values[0], *(np.where(unknown, np.nan, end)[()] for end in (low, high)))


def estimated(replicates: Tensor | np.ndarray, count: Any) -> Estimate:
    """Value, 95 % interval and replicates of a statistic given as (1 + REPEATS, …)."""
    values = np.asarray(replicates, dtype=np.float64)
    mean, low, high = interval(values, count)
    return Estimate(np.asarray(mean), np.asarray(low), np.asarray(high), values[1:])


class Probe(Measurement, ABC):
    """A measurement in one pass over the images.

    Use a new instance for every inspection. Fields are options. The methods are called in this
    order:

    1. `begin`, once;
    2. for every shard: `start_shard`; then for every model `update` for each unit that the probe
       does not refuse, as soon as the unit is computed, and `update_output` with the output of the
       model; then `end_shard`;
    3. `answer`, once.

    What `update`, `update_output` and `end_shard` return is summed by key. Reset any other state
    in `start_shard`, because a shard starts again when memory runs out.

    Examples
    --------
    A probe that derives from `PerImage` needs only `name` and `values`.

    >>> from vitreous.measure.per_image import PerImage
    >>> class TokenNorm(PerImage):
    ...     name = "token_norm"
    ...
    ...     def values(self, subject, unit, sites):
    ...         return sites.out.tokens.norm(dim=-1).mean(1)
    >>> import vitreous
    >>> inspection = vitreous.inspect("nano:resnet", probes=[TokenNorm()], limit=4)
    >>> inspection["token_norm"].table["n"].tolist()[:2]
    [4, 4]
    """

    category: ClassVar[str] = "probe"
    sites: tuple[Site, ...] = ()
    """What to observe in every unit; empty for probes of weights or outputs."""
    setting: Setting

    @property
    def shard_multiple(self) -> int:
        """Number of images that are compared with each other.

        Shards have a multiple of this size, so that results do not depend on the size of shards.
        """
        return 1

    def begin(self, setting: Setting) -> None:
        """Called before the first image."""
        self.setting = setting

    def unsuited(self, subject: Subject) -> str:
        """Return why the probe does not suit a model, as a sentence; empty if it does."""
        return ""

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        """Return None if the probe can measure a unit; otherwise why not, as a sentence.

        The sentence may be empty if the reason is obvious.
        """
        return None if self.sites else ""

    def start_shard(self) -> None:
        """Reset the state that was kept for the last shard."""
        return

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Updates:
        """Return sums of one unit; called as soon as the unit is computed."""
        return {}

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Updates:
        """Return sums of one model, from its output."""
        return {}

    def end_shard(self, shard: Batch) -> Sums:
        """Return sums of a full shard; called when all models have run on it."""
        return {}

    @abstractmethod
    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        """Compute the result from the sums over all images, for the models that the probe suits."""


def sum_key(subject: Subject, unit: Unit | None = None, what: str = "") -> str:
    """The key of a sum: `vit/12/distance`."""
    parts = [subject.name]
    if unit is not None:
        parts.append(str(unit.index))
    if what:
        parts.append(what)
    return "/".join(parts)


def where(subject: Subject, unit: Unit) -> dict[str, Any]:
    """The first cells of a row: model, unit, kind, stage and depth."""
    return {
        "model": subject.name,
        "unit": unit.name,
        "kind": unit.kind,
        "stage": unit.stage,
        "depth": unit.depth,
    }
