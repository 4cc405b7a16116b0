"""One pass over the images: what is asked, of whom, and the way of a shard through all models.

The images are divided into shards. A shard passes through every model; the taps of a model's graph hand each unit to
the probes as soon as it has computed, and what the probes make of it is added to their sums. Shards are what processes
share, what is begun again where memory runs out, and what an interrupted inspection goes on from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from math import lcm
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from vitreous import __version__
from vitreous.devices import to_memory
from vitreous.errors import VitreousError
from vitreous.measure.choosing import options_of
from vitreous.measure.memory import halving
from vitreous.measure.per_image import sum_over_images
from vitreous.measure.probe import Batch, PerImageValues, Probe, Setting, Sums, Updates
from vitreous.measure.subject import Subject
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites

log = logging.getLogger("vitreous")

Forward = Callable[[int], None]
"""Moves the progress bar on: by the images that have passed through one model, or by the pieces of an analysis."""
Found = Callable[[], Sums]
"""What was found, as soon as it is called for; a GPU may still be at work on it."""
BROKEN = "broken"
"""Before the name of a model: whether it gave a number that is not finite."""


@dataclass
class Pass:
    """Probes, what they look at, and how many images pass at a time."""

    probes: tuple[Probe, ...]
    setting: Setting
    size: int
    """Images of a shard; made a multiple of what probes compare with each other."""
    batch: int
    """Images that pass together; halved whenever memory does not suffice."""
    wanted: dict[str, dict[str, list[Probe]]] = field(default_factory=dict)
    """Model, unit: the probes that look at it."""
    left_out: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Probe, model: why it, or which of its units, could not be asked."""

    def __post_init__(self) -> None:
        for probe in self.probes:
            probe.begin(self.setting)
            for subject in self.setting.subjects:
                self._ask(probe, subject)
        together = lcm(*(probe.shard_multiple for probe in self.probes))
        self.size = -(-self.size // together) * together

    def _ask(self, probe: Probe, subject: Subject) -> None:
        units = self.wanted.setdefault(subject.name, {})
        reasons = self.left_out.setdefault(probe.name, {})
        if why := probe.unsuited(subject):
            reasons[subject.name] = why
            return
        refused = {unit.name: probe.refuses(subject, unit) for unit in subject.specimen.units}
        willing = [name for name, why in refused.items() if why is None]
        if probe.sites and not willing:
            reasons[subject.name] = next(
                (why for why in refused.values() if why), "No unit can be asked this."
            )
            return
        for name in willing:
            units.setdefault(name, []).append(probe)
        if said := {name: why for name, why in refused.items() if why}:
            reasons[subject.name] = said

    def asked(self, probe: Probe) -> list[Subject]:
        """The models that can be asked."""
        refused = self.left_out[probe.name]
        return [
            each for each in self.setting.subjects if not isinstance(refused.get(each.name), str)
        ]

    @property
    def shards(self) -> int:
        return -(-len(self.setting.data) // self.size)

    def images(self, number: int) -> int:
        """How many images a shard has; the last may have fewer."""
        return min(self.size, len(self.setting.data) - number * self.size)

    @property
    def identity(self) -> dict[str, Any]:
        """What the sums depend on."""
        return {
            "vitreous": __version__,
            "models": {
                each.name: {
                    "fingerprint": each.fingerprint,
                    "mean": list(each.mean),
                    "std": list(each.std),
                }
                for each in self.setting.subjects
            },
            "data": self.setting.data.fingerprint,
            "probes": {probe.name: options_of(probe) for probe in self.probes},
            "shard": self.size,
            "seed": self.setting.seed,
        }

    def each(
        self,
        numbers: Sequence[int],
        forward: Forward = lambda count: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int, Sums]]:
        """The sums of some shards by number, until told to stop.

        A GPU never stands still: images of the next shard are made ready and sent while it computes, and it is given
        that shard before its sums of the last one are waited for.
        """
        waiting: list[tuple[int, Found]] = []
        with ThreadPoolExecutor(1) as beside:
            ready: dict[int, Future[Batch]] = {}
            for number, after in zip_longest(numbers, numbers[1:]):
                if stop():
                    break
                if (
                    after is not None and self.device is not None and self.batch >= self.size
                ):  # there is room for two
                    ready[after] = beside.submit(self._batch, self.rows(after), True)
                waiting.append((number, self.begin(number, forward, ready.pop(number, None))))
                while len(waiting) > (1 if self.device is not None else 0):
                    first, found = waiting.pop(0)
                    yield first, found()
        for last, found in waiting:
            yield last, found()

    def rows(self, number: int) -> Tensor:
        """Numbers of a shard's images."""
        return torch.arange(self.images(number)) + number * self.size

    def shard(self, number: int, forward: Forward = lambda count: None) -> Sums:
        """The sums of one shard."""
        return self.begin(number, forward)()

    def begin(
        self, number: int, forward: Forward = lambda count: None, ready: Future[Batch] | None = None
    ) -> Found:
        """Pass one shard, again with smaller batches for as long as memory does not suffice; its sums when called."""
        rows, prepared, passed = self.rows(number), ready, list[int]()

        def attempt() -> Found:
            whole = prepared.result() if prepared else self._batch(rows, whole=True)
            return self._begin(rows, whole, passed, forward)

        def again() -> None:
            nonlocal prepared
            prepared = None  # with all that was made of its images
            forward(-sum(passed))
            passed.clear()

        return halving(self, len(rows), attempt, again)

    @torch.no_grad()
    def _begin(self, rows: Tensor, whole: Batch, passed: list[int], forward: Forward) -> Found:
        sums: Sums = {}
        for probe in self.probes:
            probe.start_shard()
        for part in rows.split(self.batch):
            batch = whole if len(part) == len(rows) else self._batch(part, whole=False)
            for subject in self.setting.subjects:
                self._look(subject, batch, sums)
                passed.append(len(part))
                forward(len(part))
        for probe in self.probes:
            _add(sums, probe, probe.end_shard(whole), {})
        arriving = fetched(sums)

        def found() -> Sums:
            here = arriving()
            for subject in self.setting.subjects:
                if bool(here.pop(f"{BROKEN}:{subject.name}")):
                    raise VitreousError(
                        broken(
                            subject, (self._batch(part, False) for part in rows.split(self.batch))
                        )
                    )
            return here

        return found

    @cached_property
    def device(self) -> torch.device | None:
        """The GPU, if one is at work."""
        found = (subject.device for subject in self.setting.subjects)
        return next((device for device in found if device.type == "cuda"), None)

    def _batch(self, rows: Tensor, whole: bool) -> Batch:
        data, part = self.setting.data, slice(int(rows[0]), int(rows[-1]) + 1)
        return Batch(
            rows, data.images[part], data.labels[part], self.setting.seed, whole, self.device
        )

    def _look(self, subject: Subject, batch: Batch, sums: Sums) -> None:
        looking, waiting = self.wanted[subject.name], dict[str, Tensor]()
        sites = tuple(
            dict.fromkeys(
                site for probes in looking.values() for probe in probes for site in probe.sites
            )
        )

        def each(unit: Unit, seen: Sites) -> None:
            for probe in looking.get(unit.name, ()):
                _add(sums, probe, probe.update(subject, unit, seen, batch), waiting)

        images = batch.prepared(subject)
        if looking:
            output = subject.specimen.observe(images, sites, list(looking), each=each).output
        else:
            output = subject.specimen(images)
        for probe in self.probes:
            if not isinstance(self.left_out[probe.name].get(subject.name), str):
                _add(sums, probe, probe.update_output(subject, output, batch), waiting)
        for name, value in sum_over_images(batch, waiting).items():
            _put(sums, name, value)
        _put(sums, f"{BROKEN}:{subject.name}", _not_finite(output))


def _add(sums: Sums, probe: Probe, seen: Updates, waiting: dict[str, Tensor]) -> None:
    """To the sums, or to what is summed when the model has computed."""
    for name, value in seen.items():
        if isinstance(value, PerImageValues):
            waiting[f"{probe.name}:{name}"] = value.values
        else:
            _put(sums, f"{probe.name}:{name}", value.detach().double())


def _put(sums: Sums, name: str, value: Tensor) -> None:
    sums[name] = sums[name] + value.to(sums[name].device) if name in sums else value


def fetched(sums: Sums) -> Found:
    """On their way to main memory. A GPU hands over its sums all at once: hundreds of small transfers take longer than
    a model."""
    there = {name: value.shape for name, value in sums.items() if value.device.type != "cpu"}
    if not there:
        return lambda: sums
    arriving = to_memory(torch.cat([sums[name].flatten() for name in there]))
    names, here = list(sums), {name: value for name, value in sums.items() if name not in there}

    def found() -> Sums:
        parts = arriving().split([shape.numel() for shape in there.values()])
        arrived = {
            name: part.reshape(there[name]).clone() for name, part in zip(there, parts, strict=True)
        }
        return {name: arrived[name] if name in there else here[name] for name in names}

    return found


def _not_finite(output: Any) -> Tensor:
    """1 if something in it is no finite number: a NaN anywhere in a model reaches its output."""
    finite = [leaf.isfinite().all() for leaf in tree_leaves(output) if _is_number(leaf)]
    return (~torch.stack(finite).all()).double() if finite else torch.zeros((), dtype=torch.float64)


@torch.no_grad()
def broken(subject: Subject, batches: Iterable[Batch]) -> str:
    """What to say of a model whose output is not finite: only then it is worth a second pass to see where it began."""
    where: list[str] = []

    def each(unit: Unit, seen: Sites) -> None:
        if not where and seen.after is not None and not bool(seen.after.raw.isfinite().all()):
            where.append(unit.name)

    for batch in batches:
        if not where:
            subject.specimen.observe(batch.prepared(subject), ("after",), each=each)
    return (
        f"{subject.name} gives NaN or infinite numbers, first after its unit {where[0] if where else 'head'!r}; "
        "nothing measured on it would mean anything. In half precision numbers overflow early: try model.float()."
    )


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()
