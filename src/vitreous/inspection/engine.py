"""`vitreous.inspect`: images stream by once, and every question to every model is answered on the way.

The images are divided into shards. A shard passes through every model; the taps of a model's graph hand each unit to
the probes as soon as it has computed, and what the probes make of it is added to their sums. Shards are what processes
share, what is begun again where memory runs out, and what an interrupted inspection goes on from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from vitreous import probes as questions
from vitreous.data.dataset import Dataset
from vitreous.data.loading import load
from vitreous.data.progress import progress
from vitreous.data.sources.listing import NoSplit
from vitreous.data.subsets import spread
from vitreous.errors import VitreousError
from vitreous.inspection.inspection import Inspection, provenance
from vitreous.inspection.kept import Kept, Stopped
from vitreous.probes.probe import Batch, Probe, Setting, Sums
from vitreous.probes.subject import Model, Subject, subjects
from vitreous.processes import interruptible, place, processes
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites

log = logging.getLogger("vitreous")

SHARD = 128
"""Images of a shard; also the images of one minibatch of CKA, for which 128 are enough (SLC-02)."""


def inspect(
    models: Model | Iterable[Model] | Mapping[str, Model],
    data: Dataset | str = "world:shapes",
    probes: Sequence[str | Probe] | Mapping[str, Mapping[str, Any]] | None = None,
    *,
    limit: int | None = 512,
    split: str = "test",
    image: int | None = None,
    pretrained: bool = False,
    shard: int = SHARD,
    batch: int | None = None,
    device: str | torch.device = "auto",
    seed: int = 0,
    keep: Path | str | None = None,
) -> Inspection:
    """Ask `probes` (all, if not given) of `models` on at most `limit` images.

    Models are names, modules or specimens; one, several, or a dict that names them. Probes are names, or a dict of
    names and options. `batch` is how many images pass at a time, a whole shard unless memory is short. With a folder
    `keep` an interrupted inspection goes on where it stopped. Under `torchrun` the processes share the shards.
    """
    home = place(device)
    team = processes(home)
    asked = _probes(probes)
    opened = subjects(models, image=image, pretrained=pretrained, device=home)
    shown = _images(data, split, limit, opened, seed)
    setting = Setting(opened, shown, seed)
    pass_ = Pass(asked, setting, shard, batch or shard)
    kept = Kept(keep, pass_.identity, team)
    began = perf_counter()
    try:
        with kept, interruptible(team) as caught, progress("Inspecting", pass_.shards) as forward:
            for number in range(team.rank, pass_.shards, team.world):
                if number not in kept.done:
                    kept.add(number, pass_.shard(number))
                forward(1)
                if caught and number + team.world < pass_.shards:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        partial = _answer(pass_, kept.sums, perf_counter() - began, len(kept.done)) if kept.done else None
        raise Stopped(len(kept.done), pass_.shards, partial, keep) from None
    return _answer(pass_, kept.all(), perf_counter() - began, pass_.shards)


@dataclass
class Pass:
    """One pass over the images: what is asked, of whom, and the way through a shard."""

    probes: tuple[Probe, ...]
    setting: Setting
    size: int
    batch: int
    wanted: dict[str, dict[str, list[Probe]]] = field(default_factory=dict)
    """Model, unit: the probes that look at it."""
    left_out: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Probe, model: why it, or which of its units, could not be asked."""

    def __post_init__(self) -> None:
        for probe in self.probes:
            probe.begin(self.setting)
            for subject in self.setting.subjects:
                self._ask(probe, subject)

    def _ask(self, probe: Probe, subject: Subject) -> None:
        units = self.wanted.setdefault(subject.name, {})
        reasons = self.left_out.setdefault(probe.name, {})
        if why := probe.unsuited(subject):
            reasons[subject.name] = why
            return
        refused = {unit.name: probe.refuses(subject, unit) for unit in subject.specimen.units}
        willing = [name for name, why in refused.items() if why is None]
        if probe.sites and not willing:
            reasons[subject.name] = next((why for why in refused.values() if why), "No unit can be asked this.")
            return
        for name in willing:
            units.setdefault(name, []).append(probe)
        if said := {name: why for name, why in refused.items() if why}:
            reasons[subject.name] = said

    def asked(self, probe: Probe) -> list[Subject]:
        """The models that can be asked."""
        refused = self.left_out[probe.name]
        return [each for each in self.setting.subjects if not isinstance(refused.get(each.name), str)]

    @property
    def shards(self) -> int:
        return -(-len(self.setting.data) // self.size)

    @property
    def identity(self) -> dict[str, Any]:
        """What the sums depend on."""
        return {
            "models": {each.name: each.fingerprint for each in self.setting.subjects},
            "data": self.setting.data.fingerprint,
            "probes": {probe.name: options_of(probe) for probe in self.probes},
            "shard": self.size,
            "seed": self.setting.seed,
        }

    def shard(self, number: int) -> Sums:
        """The sums of one shard, begun again with smaller batches for as long as memory does not suffice."""
        rows = torch.arange(len(self.setting.data))[number * self.size : (number + 1) * self.size]
        while True:
            try:
                return self._shard(rows)
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not _out_of_memory(error) or min(self.batch, len(rows)) == 1:
                    raise
                self.batch = max(1, min(self.batch, len(rows)) // 2)
                log.warning("Memory does not suffice; going on with %d images at a time.", self.batch)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    @torch.no_grad()
    def _shard(self, rows: Tensor) -> Sums:
        sums: Sums = {}
        for probe in self.probes:
            probe.start_shard()
        for part in rows.split(self.batch):
            batch = self._batch(part, whole=len(part) == len(rows))
            for subject in self.setting.subjects:
                self._look(subject, batch, sums)
        shard = self._batch(rows, whole=True)
        for probe in self.probes:
            _add(sums, probe, probe.close(shard))
        return sums

    def _batch(self, rows: Tensor, whole: bool) -> Batch:
        data = self.setting.data
        return Batch(rows, data.images[rows], data.labels[rows], self.setting.seed, whole)

    def _look(self, subject: Subject, batch: Batch, sums: Sums) -> None:
        looking = self.wanted[subject.name]
        sites = tuple(dict.fromkeys(site for probes in looking.values() for probe in probes for site in probe.sites))

        def each(unit: Unit, seen: Sites) -> None:
            for probe in looking.get(unit.name, ()):
                _add(sums, probe, probe.see(subject, unit, seen, batch))

        images = subject.prepare(batch.images)
        if looking:
            output = subject.specimen.observe(images, sites, list(looking), each=each).output
        else:
            output = subject.specimen(images)
        for probe in self.probes:
            if not isinstance(self.left_out[probe.name].get(subject.name), str):
                _add(sums, probe, probe.end(subject, output, batch))


def _add(sums: Sums, probe: Probe, more: Sums) -> None:
    for name, value in more.items():
        name = f"{probe.name}:{name}"
        value = value.detach().to("cpu", torch.float64)
        sums[name] = sums[name] + value if name in sums else value


def _answer(pass_: Pass, sums: Sums, seconds: float, shards: int) -> Inspection:
    results, left_out = {}, {}
    seen = min(len(pass_.setting.data), shards * pass_.size)
    for probe in pass_.probes:
        own = {name.partition(":")[2]: value for name, value in sums.items() if name.startswith(f"{probe.name}:")}
        asked = pass_.asked(probe)
        if not asked:
            left_out[probe.name] = {str(name): str(why) for name, why in pass_.left_out[probe.name].items()}
            continue
        result = probe.answer(own, asked)
        about = {**result.about, "ids": list(probe.ids), "options": options_of(probe), "seconds": round(seconds, 2)}
        about |= provenance(pass_.setting, asked, seen)
        about["left_out"] = {k: v for k, v in pass_.left_out[probe.name].items() if v}
        results[probe.name] = replace(result, about=about)
    anatomies = {each.name: each.specimen.anatomy for each in pass_.setting.subjects}
    return Inspection(results, left_out, anatomies)


def options_of(probe: Probe) -> dict[str, Any]:
    """What the question was asked with; the fields of a probe are its options."""
    return {each.name: getattr(probe, each.name) for each in fields(probe)} if is_dataclass(probe) else {}


def _probes(given: Sequence[str | Probe] | Mapping[str, Mapping[str, Any]] | None) -> tuple[Probe, ...]:
    if given is None:
        given = questions.names()
    chosen: list[Probe] = []
    for each in [given] if isinstance(given, str) else given:
        if isinstance(each, Probe):
            chosen.append(each)
            continue
        options = dict(given[each]) if isinstance(given, Mapping) else {}
        probe = questions.named(each)(**options)
        chosen.append(probe)
    if len({probe.name for probe in chosen}) < len(chosen):
        raise VitreousError("A probe was named twice; ask each question once.")
    return tuple(chosen)


def _images(data: Dataset | str, split: str, limit: int | None, opened: Sequence[Subject], seed: int) -> Dataset:
    """At most `limit` images, the classes taking turns."""
    if limit is not None and limit < 1:
        raise VitreousError(f"An inspection of {limit} images was asked for; it takes at least one.")
    if isinstance(data, str):
        side = max(max(each.specimen.anatomy.image[1:]) for each in opened)
        data = _load(data, split, limit, seed, side if data.startswith("folder:") else None)
    if len(data) == 0:
        raise VitreousError(f"The set {data.name!r} is empty: there is no image to inspect models on.")
    rows = spread(data.labels.numpy(), seed)[: limit or len(data)]
    return data.take(torch.from_numpy(rows))


def _load(name: str, split: str, limit: int | None, seed: int, side: int | None) -> Dataset:
    """Of pictures without labels there are no splits: then all of them."""
    try:
        return load(name, split=split, size=limit, seed=seed, image=side)
    except NoSplit:
        return load(name, split="all", size=limit, seed=seed, image=side)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "not enough memory" in str(error)
