"""One pass over the images in shards. Every shard runs through all models, observed by the probes.

The probes get each unit as soon as it is computed, and what they return is added to their sums. The
shards are divided among processes. If memory runs out, a shard starts again with a smaller batch.
An interrupted inspection resumes after the last complete shard.
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
from vitreous.measure.memory import halving
from vitreous.measure.per_image import sum_over_images
from vitreous.measure.probe import Batch, PerImageValues, Probe, Setting, Sums, Updates
from vitreous.measure.selection import described
from vitreous.measure.subject import Subject
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites

log = logging.getLogger("vitreous")

Forward = Callable[[int], None]
"""Advances the progress bar: by images through one model, or by pieces of an analysis."""
Fetch = Callable[[], Sums]
"""Waits for the sums of a shard, which a GPU may still be computing, and returns them."""
BROKEN = "broken"
"""Prefix of the sums that are positive if the output of a model was not finite."""


@dataclass
class Pass:
    """Probes, the models and images that they measure, and the sizes of shard and batch."""

    probes: tuple[Probe, ...]
    setting: Setting
    size: int
    """Images per shard; rounded up to a multiple of every probe's `shard_multiple`."""
    batch: int
    """Images per forward pass; halved when memory runs out."""
    probes_of: dict[str, dict[str, list[Probe]]] = field(default_factory=dict)
    """The probes that observe a unit, by model and unit."""
    left_out: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Why a model, or some of its units by name, cannot be measured, by probe and model."""

    def __post_init__(self) -> None:
        for probe in self.probes:
            probe.begin(self.setting)
            for subject in self.setting.subjects:
                self._assign(probe, subject)
        multiple = lcm(*(probe.shard_multiple for probe in self.probes))
        self.size = -(-self.size // multiple) * multiple

    def _assign(self, probe: Probe, subject: Subject) -> None:
        """Record which units of a model a probe observes, and why it leaves out the others."""
        units = self.probes_of.setdefault(subject.name, {})
        reasons = self.left_out.setdefault(probe.name, {})
        if why := probe.unsuited(subject):
            reasons[subject.name] = why
            return
        refused = {unit.name: probe.refuses(subject, unit) for unit in subject.specimen.units}
        observed = [name for name, why in refused.items() if why is None]
        explained = {name: why for name, why in refused.items() if why}
        if probe.sites and not observed:
            reasons[subject.name] = next(iter(explained.values()), "It suits none of its units.")
            return
        for name in observed:
            units.setdefault(name, []).append(probe)
        if explained:
            reasons[subject.name] = explained

    def suits(self, probe: Probe, subject: Subject) -> bool:
        """Whether a probe can measure a model, or at least some of its units."""
        return not isinstance(self.left_out[probe.name].get(subject.name), str)

    def suited(self, probe: Probe) -> list[Subject]:
        """The models that a probe can measure."""
        return [subject for subject in self.setting.subjects if self.suits(probe, subject)]

    def reasons(self, probe: Probe) -> dict[str, str]:
        """Why a probe without any result measured none of the models, by model."""
        left_out = self.left_out[probe.name]
        observed = "its units" if probe.sites else "no unit, since its 'sites' are empty"
        no_rows = f"The probe observes {observed}, and its result has no row."
        return {
            subject.name: no_rows if self.suits(probe, subject) else str(left_out[subject.name])
            for subject in self.setting.subjects
        }

    @property
    def shards(self) -> int:
        return -(-len(self.setting.data) // self.size)

    def images(self, number: int) -> int:
        """Number of images of a shard; the last may have fewer."""
        return min(self.size, len(self.setting.data) - number * self.size)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the sums depend on."""
        models = {}
        for each in self.setting.subjects:
            models[each.name] = {"fingerprint": each.fingerprint, **each.preprocessing}
        return {
            "vitreous": __version__,
            "models": models,
            "data": self.setting.data.fingerprint,
            "probes": {probe.name: described(probe) for probe in self.probes},
            "shard": self.size,
            "seed": self.setting.seed,
        }

    def stream(
        self,
        numbers: Sequence[int],
        forward: Forward = lambda count: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int, Sums]]:
        """Run the shards `numbers` until `stop()`; yield the number and sums of each.

        A GPU is kept busy: the images of the next shard are prepared and transferred while it
        computes, and the next shard is launched before the sums of the last one are fetched.
        """
        on_gpu = self.device is not None
        pending: list[tuple[int, Fetch]] = []
        with ThreadPoolExecutor(1) as background:
            ready: dict[int, Future[Batch]] = {}
            for number, following in zip_longest(numbers, numbers[1:]):
                if stop():
                    break
                fits_two_shards = self.batch >= self.size  # the batch was not halved so far
                if following is not None and on_gpu and fits_two_shards:
                    ready[following] = background.submit(self._batch, self.rows(following), True)
                pending.append((number, self.begin(number, forward, ready.pop(number, None))))
                while len(pending) > (1 if on_gpu else 0):
                    oldest, fetch = pending.pop(0)
                    yield oldest, fetch()
        for number, fetch in pending:
            yield number, fetch()

    def rows(self, number: int) -> Tensor:
        """Numbers of the images of a shard."""
        return torch.arange(self.images(number)) + number * self.size

    def shard(self, number: int, forward: Forward = lambda count: None) -> Sums:
        """Compute the sums of one shard."""
        return self.begin(number, forward)()

    def begin(
        self, number: int, forward: Forward = lambda count: None, ready: Future[Batch] | None = None
    ) -> Fetch:
        """Run one shard through all models, and return the function that fetches its sums.

        If memory runs out, the shard is run again with half the batch size.
        """
        rows, prepared, passed = self.rows(number), ready, list[int]()

        def attempt() -> Fetch:
            shard = prepared.result() if prepared else self._batch(rows, full_shard=True)
            return self._run_shard(rows, shard, passed, forward)

        def reset() -> None:
            nonlocal prepared
            prepared = None  # frees the images and what was computed from them
            forward(-sum(passed))  # moves the progress bar back
            passed.clear()

        return halving(self, len(rows), attempt, reset)

    @torch.no_grad()
    def _run_shard(self, rows: Tensor, shard: Batch, passed: list[int], forward: Forward) -> Fetch:
        sums: Sums = {}
        for probe in self.probes:
            probe.start_shard()
        for part in rows.split(self.batch):
            batch = shard if len(part) == len(rows) else self._batch(part, full_shard=False)
            for subject in self.setting.subjects:
                self._pass(subject, batch, sums)
                passed.append(len(part))
                forward(len(part))
        for probe in self.probes:
            _add(sums, probe, probe.end_shard(shard), {})
        wait_for_sums = start_transfer(sums)

        def fetch() -> Sums:
            on_cpu = wait_for_sums()
            for subject in self.setting.subjects:
                if bool(on_cpu.pop(f"{BROKEN}:{subject.name}")):
                    batches = (self._batch(part, False) for part in rows.split(self.batch))
                    raise VitreousError(describe_broken(subject, batches))
            return on_cpu

        return fetch

    @cached_property
    def device(self) -> torch.device | None:
        """The GPU that models are on, if any."""
        devices = (subject.device for subject in self.setting.subjects)
        return next((device for device in devices if device.type == "cuda"), None)

    def _batch(self, rows: Tensor, full_shard: bool) -> Batch:
        data, part = self.setting.data, slice(int(rows[0]), int(rows[-1]) + 1)
        views = {framing: images[part] for framing, images in data.views.items()}
        images, labels = data.images[part], data.labels[part]
        return Batch(rows, images, labels, self.setting.seed, full_shard, self.device, views)

    def _pass(self, subject: Subject, batch: Batch, sums: Sums) -> None:
        """Run a batch through one model, and add what the probes return to the sums."""
        probes_of = self.probes_of[subject.name]
        per_image: dict[str, Tensor] = {}
        sites = [site for probes in probes_of.values() for probe in probes for site in probe.sites]

        def update(unit: Unit, observed: Sites) -> None:
            for probe in probes_of.get(unit.name, ()):
                _add(sums, probe, probe.update(subject, unit, observed, batch), per_image)

        images = batch.prepared(subject)
        if probes_of:
            distinct, units = tuple(dict.fromkeys(sites)), list(probes_of)
            output = subject.specimen.observe(images, distinct, units, each=update).output
        else:
            output = subject.specimen(images)
        for probe in self.probes:
            if self.suits(probe, subject):
                _add(sums, probe, probe.update_output(subject, output, batch), per_image)
        for name, value in sum_over_images(batch, per_image).items():
            _add_to(sums, name, value)
        _add_to(sums, f"{BROKEN}:{subject.name}", _not_finite(output))


def _add(sums: Sums, probe: Probe, updates: Updates, per_image: dict[str, Tensor]) -> None:
    """Add the updates of a probe to the sums; per-image values are collected in `per_image`.

    These are summed all together when the model has computed.
    """
    for name, value in updates.items():
        if isinstance(value, PerImageValues):
            per_image[f"{probe.name}:{name}"] = value.values
        else:
            _add_to(sums, f"{probe.name}:{name}", value.detach().double())


def _add_to(sums: Sums, name: str, value: Tensor) -> None:
    sums[name] = sums[name] + value.to(sums[name].device) if name in sums else value


def start_transfer(sums: Sums) -> Fetch:
    """Start the transfer of sums to main memory; return a function that waits for it.

    All sums of a GPU are sent as one tensor: hundreds of small transfers take longer than the
    forward pass of a model.
    """
    shapes = {name: value.shape for name, value in sums.items() if value.device.type != "cpu"}
    if not shapes:
        return lambda: sums
    wait_for_flat = to_memory(torch.cat([sums[name].flatten() for name in shapes]))
    on_cpu = {name: value for name, value in sums.items() if name not in shapes}
    names = list(sums)

    def fetch() -> Sums:
        parts = wait_for_flat().split([shape.numel() for shape in shapes.values()])
        for (name, shape), part in zip(shapes.items(), parts, strict=True):
            on_cpu[name] = part.reshape(shape).clone()
        return {name: on_cpu[name] for name in names}

    return fetch


def _not_finite(output: Any) -> Tensor:
    """1 if the output is not finite. A NaN anywhere in a model spreads to its output."""
    leaves = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    finite = [leaf.isfinite().all() for leaf in leaves if leaf.is_floating_point()]
    return (~torch.stack(finite).all()).double() if finite else torch.zeros((), dtype=torch.float64)


@torch.no_grad()
def describe_broken(subject: Subject, batches: Iterable[Batch]) -> str:
    """The error message for a model whose output is not finite.

    It names the first unit with such numbers, which takes a second pass.
    """
    broken: list[str] = []

    def check(unit: Unit, observed: Sites) -> None:
        after = observed.after
        if not broken and after is not None and not bool(after.raw.isfinite().all()):
            broken.append(unit.name)

    for batch in batches:
        if not broken:
            subject.specimen.observe(batch.prepared(subject), ("after",), each=check)
    unit = broken[0] if broken else "head"
    return (
        f"{subject.name} gives NaN or infinite numbers, first after its unit {unit!r}; nothing "
        "measured on it would mean anything. In half precision numbers overflow early: try "
        "model.float()."
    )
