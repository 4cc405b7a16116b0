"""`vitreous.inspect`: images stream by once, and every question to every model is answered on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch

from vitreous.data.dataset import Dataset
from vitreous.data.progress import progress
from vitreous.errors import VitreousError
from vitreous.image_size import ImageSize
from vitreous.measure.choosing import choose_images, choose_probes, options_of
from vitreous.measure.inspection import Inspection, provenance
from vitreous.measure.kept import Kept, Stopped
from vitreous.measure.probe import Probe, Setting
from vitreous.measure.streaming import Pass
from vitreous.measure.subject import Model, subjects
from vitreous.processes import Processes, interruptible, place, processes
from vitreous.ranges import check_ranges

SHARD = {"cpu": 128, "cuda": 1024}
"""Images of a shard, by device; no result depends on it. A GPU has room for more, and something to do while the next
is made ready."""


def inspect(
    models: Model | Iterable[Model] | Mapping[str, Model],
    data: Dataset | str = "world:shapes",
    probes: str | Sequence[str | Probe] | Mapping[str, Mapping[str, Any]] | None = None,
    *,
    limit: int | Literal["all"] | None = 512,
    split: str | None = None,
    skip_corrupt: bool = False,
    image: ImageSize | None = None,
    pretrained: bool = False,
    shard: int | None = None,
    batch: int | None = None,
    device: str | torch.device = "auto",
    seed: int = 0,
    keep: Path | str | None = None,
) -> Inspection:
    """Ask `probes` (all, if not given) of `models` on at most `limit` images ("all" or None for all of them).

    Models are names, modules or specimens; one, several, or a dict that names them. Probes are names, or a dict of
    names and options. Without a `split` it takes the test split, or all images of data that have no splits of their
    own. `shard` is how many images are taken together, 128 on a CPU and 1024 on a GPU, and `batch` how many of them
    pass at a time, all unless memory is short. With a folder `keep` an interrupted inspection resumes. Under `torchrun`
    the processes share the shards.
    """
    most = None if limit == "all" else limit
    check_ranges(limit=most, shard=shard, batch=batch, seed=seed)
    home = _home(device)
    team = processes(home)
    asked = choose_probes(probes)
    opened = subjects(models, image=image, pretrained=pretrained, device=home, seed=seed)
    shown = choose_images(data, split, most, opened, seed, skip_corrupt)
    size = shard or SHARD.get(home.type, SHARD["cpu"])
    pass_ = Pass(asked, Setting(opened, shown, seed), size, batch or size)
    kept = Kept(keep, pass_.identity, team)
    began = perf_counter()
    try:
        with kept:
            _stream(pass_, kept, team)
    except KeyboardInterrupt:
        partial = _answer(pass_, kept, perf_counter() - began) if kept.done else None
        raise Stopped(len(kept.done), pass_.shards, partial, keep) from None
    return _answer(pass_, kept.together(), perf_counter() - began)


def _stream(pass_: Pass, kept: Kept, team: Processes) -> None:
    """This process's shards, one after the other. Ctrl-C lets the shard finish, a second one does not."""
    left = kept.left(pass_.shards)
    own = {*left, *kept.done}
    total = len(pass_.setting.subjects) * sum(pass_.images(number) for number in own)
    bar = progress("Inspecting", total) if team.first else nullcontext(lambda count: None)
    with interruptible(team) as caught, bar as forward:
        forward(len(pass_.setting.subjects) * sum(map(pass_.images, kept.done)))
        for number, sums in pass_.each(left, forward, stop=lambda: bool(caught)):
            kept.add(number, sums)
        if not kept.done.issuperset(own):
            raise KeyboardInterrupt


def _answer(pass_: Pass, kept: Kept, seconds: float) -> Inspection:
    results, left_out, sums = {}, {}, kept.sums
    seen = sum(map(pass_.images, kept.done))
    for probe in pass_.probes:
        own = {name.partition(":")[2]: sum_ for name, sum_ in sums.items() if name.startswith(f"{probe.name}:")}
        asked = pass_.asked(probe)
        if not asked:
            left_out[probe.name] = {str(name): str(why) for name, why in pass_.left_out[probe.name].items()}
            continue
        result = probe.answer(own, asked)
        about = {**result.about, "ids": list(probe.ids), "options": options_of(probe), "seconds": round(seconds, 2)}
        about |= provenance(pass_.setting, asked, seen)
        about["left_out"] = {name: why for name, why in pass_.left_out[probe.name].items() if why}
        results[probe.name] = replace(result, about=about)
    anatomies = {each.name: each.specimen.anatomy for each in pass_.setting.subjects}
    return Inspection(results, left_out, anatomies)


def _home(device: str | torch.device) -> torch.device:
    """The CPU and not Apple's GPU: sums are added in double precision, which that does not know."""
    home = place(device)
    if home.type != "mps":
        return home
    if device == "auto":
        return torch.device("cpu")
    raise VitreousError("Inspecting needs double precision, which the device 'mps' does not have; say cpu.")
