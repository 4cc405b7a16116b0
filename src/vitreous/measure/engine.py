"""The engine: `inspect` runs probes, all in one pass over the images; `analyse` runs analyses, which need many.

Both work piece by piece (a shard of the images; whatever an analysis divides itself into) and share how pieces are
stored and resumed (`partial.py`), how Ctrl-C stops between two pieces, what happens when memory runs out (`memory.py`),
the progress bar, and the record of where a result comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeVar

import torch

from vitreous import __version__
from vitreous.data.dataset import Dataset
from vitreous.devices import choose_device
from vitreous.distributed import Processes, join_processes
from vitreous.errors import UnknownName, VitreousError
from vitreous.image_size import ImageSize
from vitreous.interrupts import defer_interrupts
from vitreous.measure.analysis import Analysis, Bench, Work
from vitreous.measure.choosing import (
    Chosen,
    choose_analyses,
    choose_images,
    choose_probes,
    options_of,
)
from vitreous.measure.inspection import Inspection, provenance
from vitreous.measure.memory import halving
from vitreous.measure.partial import Interrupted, Numbers, Partial, Shards
from vitreous.measure.probe import Probe, Setting
from vitreous.measure.steadiness import check_steady
from vitreous.measure.streaming import Forward, Pass
from vitreous.measure.subject import Model, Subject, subjects
from vitreous.progress import progress
from vitreous.results import Result
from vitreous.validation import check_ranges

SHARD = {"cpu": 128, "cuda": 1024}
"""Images per shard, by device; no result depends on it. A GPU has room for more, and computes while the next shard is
prepared."""
Key = TypeVar("Key")
Stop = Callable[[], bool]
"""Whether somebody has pressed Ctrl-C."""


def inspect(
    models: Model | Iterable[Model] | Mapping[str, Model],
    data: Dataset | str = "world:shapes",
    probes: Chosen[Probe] | None = None,
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
    """Run probes on models, all in one pass over the images.

    Parameters
    ----------
    models
        Names, modules or specimens: one, several, or a dict that names them.
    data
        A data set or its name.
    probes
        Names, or a dict of names and options (default: all).
    limit
        Maximum number of images, class-balanced; "all" or None for all of them.
    split
        Default: test, or all images of data without splits.
    shard
        Images per shard (default: 128 on a CPU, 1024 on a GPU).
    batch
        Images per forward pass (default: a whole shard, less if memory is short).
    keep
        A folder for what is done, so that an interrupted inspection resumes.

    Under `torchrun` the processes share the shards.

    Examples
    --------
    >>> found = vitreous.inspect("nano:vit", "world:shapes", ["variance"], limit=64)
    >>> found["variance"].table
    """
    most = None if limit == "all" else limit
    check_ranges(limit=most, shard=shard, batch=batch, seed=seed)
    home = _with_double_precision(device)
    team = join_processes(home)
    chosen = choose_probes(probes)
    opened = subjects(models, image=image, pretrained=pretrained, device=home, seed=seed)
    shown = choose_images(data, split, most, opened, seed, skip_corrupt)
    size = shard or SHARD.get(home.type, SHARD["cpu"])
    pass_ = Pass(chosen, Setting(opened, shown, seed), size, batch or size)
    began = perf_counter()
    with Partial(keep, pass_.identity, reads=team.first) as partial:
        shards = Shards(partial, team)
        try:
            _stream(pass_, shards)
        except KeyboardInterrupt:
            so_far = _answer_probes(pass_, shards, perf_counter() - began) if shards.done else None
            done = len(shards.done)
            raise Interrupted(
                "shards of the images", done, pass_.shards, keep is not None, so_far
            ) from None
    return _answer_probes(pass_, shards.together(), perf_counter() - began)


def analyse(
    models: Model | Iterable[Model] | Mapping[str, Model],
    data: Dataset | str | Mapping[str, Dataset] = "world:shapes",
    analyses: Chosen[Analysis] | None = None,
    *,
    limit: int | Literal["all"] | None = None,
    split: str | None = None,
    skip_corrupt: bool = False,
    image: ImageSize | None = None,
    pretrained: bool = False,
    batch: int = 128,
    device: str | torch.device = "auto",
    seed: int = 0,
    keep: Path | str | None = None,
) -> Inspection:
    """Run analyses on models, one after the other.

    Parameters
    ----------
    models
        Names, modules or specimens: one, several, or a dict that names them.
    data
        A data set or its name, or a dict of data sets by split.
    analyses
        Names, or a dict of names and options (default: all).
    limit, split
        Default: those of each analysis; a limit of "all" takes all images.
    keep
        A folder for what is done, so that an interrupted analysis resumes.

    Examples
    --------
    >>> found = vitreous.analyse("nano:vit", "world:shapes", "lesion", limit=64)
    >>> found["lesion"].table
    """
    most = 0 if limit == "all" else limit
    check_ranges(limit=None if limit == "all" else limit, batch=batch, seed=seed)
    chosen = choose_analyses(analyses)
    opened = subjects(
        models, image=image, pretrained=pretrained, device=choose_device(device), seed=seed
    )
    anatomies = {each.name: each.specimen.anatomy for each in opened}
    found = Inspection({}, {}, anatomies)
    for analysis in chosen:
        bench = _bench(analysis, opened, data, split, most, seed, skip_corrupt, batch)
        reasons = {
            each.name: why
            for each in bench.setting.subjects
            if (why := analysis.unsuited(each, bench))
        }
        if len(reasons) == len(opened):
            found |= Inspection({}, {analysis.name: reasons})
            continue
        folder = None if keep is None else Path(keep).expanduser() / analysis.name
        with Partial(folder, _identity(analysis, bench)) as partial:
            try:
                found |= Inspection({analysis.name: _analyse(analysis, bench, partial, reasons)})
            except Interrupted as stop:
                stop.inspection = found
                raise
    return found


def do_pieces(
    title: str,
    total: int,
    ahead: int,
    each: Callable[[Forward, Stop], Iterable[tuple[Key, Numbers]]],
    add: Callable[[Key, Numbers], None],
    team: Processes | None = None,
) -> None:
    """Do the pieces that are left, with a progress bar over `total` steps of which `ahead` are done.

    Ctrl-C is noted, and `each` is expected to end after the piece at hand; a second Ctrl-C ends everything at once.
    """
    team = team or Processes()
    bar = progress(title, total) if team.first else nullcontext(lambda count: None)
    with defer_interrupts(team.world) as caught, bar as forward:
        forward(ahead)
        for key, numbers in each(forward, lambda: bool(caught)):
            add(key, numbers)


def _stream(pass_: Pass, shards: Shards) -> None:
    """This process's shards."""
    left = shards.left(pass_.shards)
    own = {*left, *shards.done}
    models = len(pass_.setting.subjects)
    total, ahead = (models * sum(map(pass_.images, numbers)) for numbers in (own, shards.done))
    do_pieces(
        "Inspecting", total, ahead, lambda *how: pass_.each(left, *how), shards.add, shards.team
    )
    if not shards.done.issuperset(own):
        raise KeyboardInterrupt


def _answer_probes(pass_: Pass, shards: Shards, seconds: float) -> Inspection:
    results, left_out, sums = {}, {}, shards.sums
    images = sum(map(pass_.images, shards.done))
    for probe in pass_.probes:
        reasons = {name: why for name, why in pass_.left_out[probe.name].items() if why}
        suited = pass_.asked(probe)
        if not suited:
            left_out[probe.name] = {str(name): str(why) for name, why in reasons.items()}
            continue
        own = {
            name.partition(":")[2]: sum_
            for name, sum_ in sums.items()
            if name.startswith(f"{probe.name}:")
        }
        result = probe.answer(own, suited)
        results[probe.name] = _recorded(
            probe, result, pass_.setting, suited, images, seconds, reasons
        )
    anatomies = {each.name: each.specimen.anatomy for each in pass_.setting.subjects}
    return Inspection(results, left_out, anatomies)


def _analyse(
    analysis: Analysis, bench: Bench, partial: Partial, reasons: Mapping[str, str]
) -> Result:
    """One analysis of the models that it suits."""
    began = perf_counter()
    suited = tuple(each for each in bench.setting.subjects if each.name not in reasons)
    wanted = {each.name: list(analysis.pieces(each, bench)) for each in suited}
    keys = [_key(model, piece) for model, pieces in wanted.items() for piece in pieces]
    ahead = sum(key in partial.pieces for key in keys)

    def each(forward: Forward, stop: Stop) -> Iterator[tuple[str, Numbers]]:
        for subject in suited:
            left = [
                piece
                for piece in wanted[subject.name]
                if _key(subject.name, piece) not in partial.pieces
            ]
            if not left or stop():
                continue
            check_steady(subject, bench)
            with analysis.work(subject, bench) as work:
                for piece in left:
                    if stop():
                        break
                    yield _key(subject.name, piece), _one(work, piece, bench)
                    forward(1)

    def stopped() -> Interrupted:
        done = sum(key in partial.pieces for key in keys)
        return Interrupted(f"pieces of {analysis.name}", done, len(keys), partial.run is not None)

    try:
        do_pieces(analysis.name.capitalize(), len(keys), ahead, each, partial.add)
    except KeyboardInterrupt:
        raise stopped() from None
    if not all(key in partial.pieces for key in keys):
        raise stopped()
    found = {
        model: {piece: partial.pieces[_key(model, piece)] for piece in own}
        for model, own in wanted.items()
    }
    result = analysis.answer(found, suited, bench)
    seconds = perf_counter() - began
    return _recorded(analysis, result, bench.setting, suited, len(bench.data), seconds, reasons)


def _key(model: str, piece: str) -> str:
    return f"{model}\n{piece}"


def _one(work: Work, piece: str, bench: Bench) -> Numbers:
    return halving(bench, len(bench.data), lambda: work(piece))


def _recorded(
    measurement: Probe | Analysis, result: Result, setting: Setting, suited: Sequence[Subject], images: int,
    seconds: float, reasons: Mapping[str, Any],
) -> Result:  # fmt: skip
    """The result, and where it comes from."""
    about = {
        **provenance(setting, suited, images),
        "ids": list(measurement.ids),
        "options": options_of(measurement),
        **result.about,
        "seconds": round(seconds, 2),
        "left_out": {**result.about.get("left_out", {}), **reasons},
    }
    return replace(result, about=about)


def _bench(
    analysis: Analysis, opened: tuple[Subject, ...], data: Dataset | str | Mapping[str, Dataset], split: str | None,
    limit: int | None, seed: int, skip_corrupt: bool, batch: int,
) -> Bench:  # fmt: skip
    """The models and images of one analysis."""
    most = analysis.limit if limit is None else limit or None

    def images(split: str, asked: bool) -> Dataset:
        if isinstance(data, Mapping) and split not in data:
            raise UnknownName(
                "split", split, data, f"{analysis.name} was given {', '.join(data) or 'no images'}."
            )
        given = data[split] if isinstance(data, Mapping) else data
        return choose_images(
            given, split if asked else None, most, opened, seed, skip_corrupt, usual=split
        )

    fits = bool(analysis.fitted) and not isinstance(
        data, Dataset
    )  # on one split, and asked on another
    chosen = images(split or analysis.split, asked=split is not None or fits)
    others: dict[str, Dataset] = {}
    if analysis.fitted and fits:
        others[analysis.fitted] = images(analysis.fitted, asked=True)
    return Bench(Setting(opened, chosen, seed), batch, others)


def _identity(analysis: Analysis, bench: Bench) -> dict[str, Any]:
    """What the numbers of a piece depend on."""
    return {
        "vitreous": __version__,
        "analysis": analysis.name,
        "options": options_of(analysis),
        "models": {each.name: each.fingerprint for each in bench.setting.subjects},
        "data": {
            bench.data.split: bench.data.fingerprint,
            **{k: v.fingerprint for k, v in bench.splits.items()},
        },
        "seed": bench.seed,
    }


def _with_double_precision(device: str | torch.device) -> torch.device:
    """The CPU and not Apple's GPU: sums are added in double precision, which that does not know."""
    home = choose_device(device)
    if home.type != "mps":
        return home
    if device == "auto":
        return torch.device("cpu")
    raise VitreousError(
        "Inspecting needs double precision, which the device 'mps' does not have; say cpu."
    )
