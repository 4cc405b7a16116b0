"""What a question is: something that adds up numbers while images stream by, and turns the sums into a `Result`.

A probe's whole state is a dict of float64 sums. Merging shards, joining processes and going on after an interruption
are all addition, and cannot disagree. Intervals come from the same sums: each is kept 1 + `REPEATS` times, once as it
is and `REPEATS` times with every image counted as often as a Poisson number of mean one says, which depends on the
image's number and the seed alone. That is the bootstrap over images for any statistic, without keeping single images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from vitreous.data.dataset import Dataset
from vitreous.devices import Arriving, to_device
from vitreous.measure.section import Measurement
from vitreous.measure.subject import Subject
from vitreous.random_numbers import row_generators
from vitreous.results import Estimate, Interval, Result, from_replicates
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Site, Sites

REPEATS = 200
"""Bootstrap replicates; their standard deviation, of which intervals are made, is then known to 5 %."""

Sums = dict[str, Tensor]
Part = Literal["images", "labels", "weights"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class PerImageValues:
    """Something that every image of a batch says by itself. A probe hands it over as it is, and it is summed together
    with what all other probes hand over: a GPU starts two large products sooner than hundreds of small ones."""

    values: Tensor
    """(b, …) an array an image, NaN where it has nothing to say."""


Updates = Mapping[str, "Tensor | PerImageValues"]
"""What a probe makes of something seen: sums by name, or what is still to be summed, to `name/sum` and `name/count`."""


@dataclass(frozen=True)
class Setting:
    """What is inspected: models, images, and the seed of whatever is drawn."""

    subjects: tuple[Subject, ...]
    data: Dataset
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "subjects", tuple(each.shown(self.data) for each in self.subjects))

    @cached_property
    def distinct(self) -> Tensor:
        """(n,) whether an image is the first with its pixels: false for copies of an earlier one."""
        seen: set[bytes] = set()
        found = []
        for part in self.data.images.split(256):
            for image in part.cpu().contiguous().flatten(1).numpy():
                digest = blake2b(image.data, digest_size=16).digest()
                found.append(digest not in seen)
                seen.add(digest)
        return torch.tensor(found, dtype=torch.bool)

    @property
    def copies(self) -> int:
        return int((~self.distinct).sum())

    @property
    def labelled(self) -> bool:
        return bool((self.data.labels >= 0).all()) and len(self.data.classes) > 0

    def unmarkable(self, subject: Subject) -> str:
        """Why a model's answers cannot be marked right or wrong, as a sentence; empty if they can."""
        classes = self.data.classes
        if not self.labelled:
            return f"Images of {self.data.name!r} have no labels, so nobody knows which answers are right."
        if subject.outputs is None:
            return "Its output is not a score for each class."
        if subject.outputs != len(classes):
            return (
                f"It tells {subject.outputs} classes apart, and {self.data.name!r} has {len(classes)}. For some of its "
                "classes, give a Dataset with all class names of the model as `classes` and labels that count in them."
            )
        if subject.classes and subject.classes != classes:
            which = next(
                pair for pair in zip(subject.classes, classes, strict=True) if pair[0] != pair[1]
            )
            return f"It was trained for other classes: its {which[0]!r} is {which[1]!r} in {self.data.name!r}."
        return ""


@dataclass(frozen=True)
class Batch:
    """Images that pass together."""

    rows: Tensor
    """(b,) numbers of the images in the set."""
    images: Tensor
    """(b, 3, height, width) uint8, as the set has them."""
    labels: Tensor
    """(b,) -1 where unknown."""
    seed: int = 0
    whole: bool = True
    """Whether the batch is a whole shard; where memory is short it is a part of one."""
    device: torch.device | None = None
    """Where everything is sent as soon as the batch is made, so that a GPU need not wait for it."""

    def __post_init__(self) -> None:
        if self.device is not None:
            for part in PARTS:
                self._send(part, self.device)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def weights(self) -> Tensor:
        """(1 + REPEATS, b) how often each image counts: once, and then as drawn for each resampling."""
        return torch.cat(
            [
                torch.ones(1, len(self), dtype=torch.float64),
                torch.from_numpy(streams(self.rows.tolist(), self.seed)).T,
            ]
        )

    @cached_property
    def _sent(self) -> dict[tuple[Part, torch.device], Arriving]:
        return {}

    @cached_property
    def _prepared(self) -> dict[str, Tensor]:
        return {}

    def _send(self, part: Part, device: torch.device) -> None:
        self._sent[part, device] = to_device(getattr(self, part), device)

    def on(self, device: torch.device, part: Part) -> Tensor:
        """Images, labels or weights there, brought once: a transfer to a GPU takes as long as a model."""
        if (part, device) not in self._sent:
            self._send(part, device)
        return self._sent[part, device]()

    def prepared(self, subject: Subject) -> Tensor:
        """The images as a model wants them, made once."""
        if subject.name not in self._prepared:
            self._prepared[subject.name] = subject.prepare(self.on(subject.device, "images"))
        return self._prepared[subject.name]

    def total(self, values: Tensor) -> Tensor:
        """(1 + REPEATS, …) sums over the batch of one value (or array of values) an image.

        They stay on the device of the values: a GPU that has to hand over every number as it comes waits all the time.
        """
        flat = values.detach().double().reshape(len(self), prod(values.shape[1:]))
        return (self.on(flat.device, "weights") @ flat).reshape(-1, *values.shape[1:])


def times(row: int, seed: int) -> np.ndarray:
    """(REPEATS,) how often image `row` counts in each resampling."""
    found: np.ndarray = streams([row], seed)[0]
    return found


def streams(rows: Sequence[int], seed: int) -> np.ndarray:
    """(b, REPEATS) `times` of several images, each from a stream of its own."""
    drawn = np.empty((len(rows), REPEATS))
    for place, generator in enumerate(row_generators(seed, rows)):
        drawn[place] = generator.poisson(1.0, REPEATS)
    return drawn


def interval(replicates: Tensor | np.ndarray, count: Any) -> Interval:
    """Value and 95 % interval of a statistic given as (1 + REPEATS, …); without an interval for a single image."""
    values = np.asarray(replicates, dtype=np.float64)
    found = from_replicates(values[0], values[1:], count)
    unknown = np.isnan(values[0])
    return Interval(values[0], *(np.where(unknown, np.nan, end)[()] for end in found[1:]))


def estimated(replicates: Tensor | np.ndarray, count: Any) -> Estimate:
    """A statistic given as (1 + REPEATS, …), with its interval and its replicates."""
    values = np.asarray(replicates, dtype=np.float64)
    found = interval(values, count)
    return Estimate(
        np.asarray(found.mean), np.asarray(found.low), np.asarray(found.high), values[1:]
    )


class Probe(Measurement, ABC):
    """One question. An instance serves one inspection; options are its arguments, with defaults.

    The order of calls: `begin`; then for every shard `start_shard`, and for every model `see` with each unit that was
    not refused, as soon as the unit has computed, and `end` with the model's output; `close` when all models have seen
    the shard; at last `answer`. What `see`, `end` and `close` return is added up under its keys. What a probe keeps on
    itself between `see` and `close` it forgets at `start_shard`: a shard is begun again where memory ran out.
    """

    sites: tuple[Site, ...] = ()
    """What to look at in every unit; nothing for questions to the weights or the output alone."""
    setting: Setting

    @property
    def shard_multiple(self) -> int:
        """Images that are compared with each other: shards hold whole numbers of so many, so that no result depends on
        how images are divided."""
        return 1

    def begin(self, setting: Setting) -> None:
        """Before the first image."""
        self.setting = setting

    def unsuited(self, subject: Subject) -> str:
        """Why the whole model cannot be asked, as a sentence; empty if it can."""
        return ""

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        """Why a unit cannot be asked, as a sentence; empty if that goes without saying; None if it can."""
        return None if self.sites else ""

    def start_shard(self) -> None:
        """Forget what was kept on the way."""
        return

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Updates:
        """A unit has computed."""
        return {}

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Updates:
        """A model has computed."""
        return {}

    def end_shard(self, shard: Batch) -> Sums:
        """All models have seen the shard."""
        return {}

    @abstractmethod
    def answer(self, sums: Mapping[str, Tensor], asked: Sequence[Subject]) -> Result:
        """The result, for the models that could be asked, at least one."""


def sum_key(subject: Subject, unit: Unit | None = None, what: str = "") -> str:
    """Under which a sum is kept: `vit/12/distance`."""
    return "/".join(
        str(part)
        for part in (subject.name, None if unit is None else unit.index, what)
        if part not in (None, "")
    )


def where(subject: Subject, unit: Unit) -> dict[str, Any]:
    """The first columns of a row."""
    return {
        "model": subject.name,
        "unit": unit.name,
        "kind": unit.kind,
        "stage": unit.stage,
        "depth": unit.depth,
    }
