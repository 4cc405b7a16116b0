"""The engine: `inspect` runs probes in one pass over the images, `analyse` runs analyses.

Both work in pieces: shards of the images for probes, parts that an analysis defines for analyses.
They share storing and resuming of pieces (`partial.py`), interrupts between two pieces, the
handling of out-of-memory errors (`memory.py`), the progress bar, and the provenance of results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor

from vitreous import __version__
from vitreous.data.dataset import Dataset
from vitreous.devices import choose_device, choose_double_precision, ordinary_torch
from vitreous.distributed import Processes, join_processes
from vitreous.errors import UnknownName
from vitreous.image_size import ImageSize
from vitreous.interrupts import defer_interrupts
from vitreous.measure.bench import Bench, PieceNumbers, Work
from vitreous.measure.class_names import ClassNames
from vitreous.measure.determinism import check_steady
from vitreous.measure.inspection import Inspection, provenance
from vitreous.measure.labels import match_labels
from vitreous.measure.memory import halving
from vitreous.measure.partial import Interrupted, Numbers, Partial, Shards
from vitreous.measure.preprocessing import PreprocessingChoice
from vitreous.measure.probe import Probe, Setting
from vitreous.measure.selection import (
    Chosen,
    choose_analyses,
    choose_images,
    choose_probes,
    described,
)
from vitreous.measure.streaming import Forward, Pass
from vitreous.measure.subject import CheckpointFiles, Model, Subject, subjects
from vitreous.progress import progress
from vitreous.results import Result
from vitreous.validation import check_ranges, parse_limit

if TYPE_CHECKING:
    from vitreous.measure.analysis import Analysis  # which starts the engine when it is called

SHARD = {"cpu": 128, "cuda": 1024}
"""Images per shard, by device; results do not depend on it. A GPU has memory for more, and larger
shards leave more time to prepare the next one while it computes."""
Key = TypeVar("Key")
Stop = Callable[[], bool]
"""Whether Ctrl-C was pressed."""


@ordinary_torch()
def inspect(
    models: Model | Iterable[Model] | Mapping[str, Model],
    data: Dataset | Path | str = "world:shapes",
    probes: Chosen[Probe] | None = None,
    *,
    limit: int | Literal["all"] | None = 512,
    split: str | None = None,
    skip_corrupt: bool = False,
    image: ImageSize | None = None,
    pretrained: bool = False,
    weights: CheckpointFiles | None = None,
    preprocessing: Mapping[str, Any] | PreprocessingChoice | None = None,
    classes: ClassNames | None = None,
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
        A dataset, its name or its path.
    probes
        Names, or a dict of names and options (default: all).
    limit
        Maximum number of images, class-balanced; "all" or None for all of them.
    split
        Default: test, or all images of data without splits.
    weights
        Checkpoints to load into the models: one for each, in order; several for one model, to
        compare them; or a dict by name.
    preprocessing
        How images are prepared, where not as the models were trained: a dict with some of `mean`,
        `std`, `crop` (the share of the resized picture that is kept), `crop_mode` (center, squash,
        border, fit), `interpolation`, and `upright=True` to turn pictures as EXIF says.
    classes
        Names of the models' classes in the order of their scores, or a file with them.
    shard
        Images per shard (default: 128 on a CPU, 1024 on a GPU).
    batch
        Images per forward pass (default: a whole shard, less if memory is short).
    keep
        A folder for finished pieces, so that an interrupted inspection resumes. (Under `torchrun`
        the processes share the shards.)

    Examples
    --------
    >>> vitreous.inspect("nano:vit", "world:shapes", ["variance"], limit=16)
    Inspection of nano:vit: variance
    """
    most = parse_limit(limit)
    check_ranges(shard=shard, batch=batch, seed=seed)
    device = choose_double_precision(device)
    team = join_processes(device)
    chosen = choose_probes(probes)
    opened = subjects(
        models, image=image, pretrained=pretrained, weights=weights, preprocessing=preprocessing,
        classes=classes, device=device, seed=seed,
    )  # fmt: skip
    images = match_labels(choose_images(data, split, most, opened, seed, skip_corrupt), opened)
    size = shard or SHARD.get(device.type, SHARD["cpu"])
    pass_ = Pass(chosen, Setting(opened, images, seed), size, batch or size)
    began = perf_counter()
    with Partial(keep, pass_.identity, reads=team.first) as partial:
        shards = Shards(partial, team)
        try:
            if any(map(pass_.suited, chosen)):
                _stream(pass_, shards)
        except KeyboardInterrupt:
            done = len(shards.done)
            so_far = _answer_probes(pass_, shards, perf_counter() - began) if done else None
            what = "shards of the images"
            raise Interrupted(what, done, pass_.shards, keep is not None, so_far) from None
    return _answer_probes(pass_, shards.gathered(), perf_counter() - began)


@ordinary_torch()
def analyse(
    models: Model | Iterable[Model] | Mapping[str, Model],
    data: Dataset | Path | str | Mapping[str, Dataset] = "world:shapes",
    analyses: Chosen[Analysis] | None = None,
    *,
    limit: int | Literal["all"] | None = None,
    split: str | None = None,
    skip_corrupt: bool = False,
    image: ImageSize | None = None,
    pretrained: bool = False,
    weights: CheckpointFiles | None = None,
    preprocessing: Mapping[str, Any] | PreprocessingChoice | None = None,
    classes: ClassNames | None = None,
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
        A dataset, its name or its path, or a dict of datasets by split.
    analyses
        Names, or a dict of names and options (default: all).
    limit, split
        Default: those of each analysis; a limit of "all" takes all images.
    weights, preprocessing, classes
        As in `vitreous.inspect`.
    keep
        A folder for finished pieces, so that an interrupted analysis resumes.

    Examples
    --------
    >>> vitreous.analyse("nano:vit", analyses={"lesion": {"what": "positions"}}, limit=16)
    Inspection of nano:vit: lesion
    """
    most = None if limit is None else parse_limit(limit) or 0
    check_ranges(batch=batch, seed=seed)
    chosen = choose_analyses(analyses)
    opened = subjects(
        models, image=image, pretrained=pretrained, weights=weights, preprocessing=preprocessing,
        classes=classes, device=choose_device(device), seed=seed,
    )  # fmt: skip
    inspection = Inspection({}, {}, {each.name: each.specimen.anatomy for each in opened})
    for analysis in chosen:
        bench = _bench(analysis, opened, data, split, most, seed, skip_corrupt, batch)
        folder = None if keep is None else Path(keep).expanduser() / analysis.name
        try:
            inspection |= _analyse(analysis, bench, folder)
        except Interrupted as stop:
            stop.inspection = inspection
            raise
    return inspection


def do_pieces(
    title: str,
    total: int,
    done: int,
    compute: Callable[[Forward, Stop], Iterable[tuple[Key, Numbers]]],
    add: Callable[[Key, Numbers], None],
    team: Processes | None = None,
) -> None:
    """Compute the remaining pieces, with a progress bar, until done or interrupted.

    Parameters
    ----------
    title, total, done
        Title of the progress bar, its number of steps, and how many of them are already done.
    compute
        Yields key and numbers of each piece. Its arguments are a function that moves the bar, and
        one that is true after Ctrl-C: then it returns after the current piece. A second Ctrl-C
        interrupts at once.
    add
        Stores a piece.
    """
    team = team or Processes()
    bar = progress(title, total) if team.first else nullcontext(lambda count: None)
    with defer_interrupts(team.world) as caught, bar as forward:
        forward(done)
        for key, numbers in compute(forward, lambda: bool(caught)):
            add(key, numbers)


def _stream(pass_: Pass, shards: Shards) -> None:
    """Compute this process's shards; raise KeyboardInterrupt if interrupted before the end."""
    remaining = shards.remaining(pass_.shards)
    models = len(pass_.setting.subjects)
    done, left = (models * sum(map(pass_.images, part)) for part in (shards.done, remaining))

    def compute(forward: Forward, stop: Stop) -> Iterator[tuple[int, Numbers]]:
        return pass_.stream(remaining, forward, stop)

    do_pieces("Inspecting", done + left, done, compute, shards.add, shards.team)
    if not shards.done.issuperset(remaining):
        raise KeyboardInterrupt


def _answer_probes(pass_: Pass, shards: Shards, seconds: float) -> Inspection:
    """Results of all probes, computed from the sums of the finished shards."""
    results, left_out = {}, {}
    images = sum(map(pass_.images, shards.done))
    sums_of: dict[str, dict[str, Tensor]] = {probe.name: {} for probe in pass_.probes}
    for key, total in shards.sums.items():
        probe_name, _, name = key.partition(":")
        sums_of[probe_name][name] = total
    for probe in pass_.probes:
        suited = pass_.suited(probe)
        result = probe.answer(sums_of[probe.name], suited) if suited else None
        if result is None or not len(result.table):
            left_out[probe.name] = pass_.reasons(probe)
            continue
        results[probe.name] = _with_provenance(
            probe, result, pass_.setting, suited, images, seconds, pass_.left_out[probe.name]
        )
    anatomies = {subject.name: subject.specimen.anatomy for subject in pass_.setting.subjects}
    return Inspection(results, left_out, anatomies)


def _analyse(analysis: Analysis, bench: Bench, folder: Path | None) -> Inspection:
    """Run one analysis on the models that it suits."""
    further = analysis.further_models(bench)
    candidates = [s for s in bench.setting.subjects if s not in further]
    reasons = {s.name: why for s in candidates if (why := analysis.unsuited(s, bench))}
    suited = [s for s in candidates if s.name not in reasons]
    if not suited:
        return Inspection({}, {analysis.name: reasons})
    began = perf_counter()
    for subject in further:
        check_steady(subject, bench.framed_for(subject))
    with Partial(folder, _identity(analysis, bench, further)) as partial:
        numbers = _numbers(analysis, bench, suited, partial)
        result = analysis.answer(numbers, suited, bench)
    seconds = perf_counter() - began
    complete = _with_provenance(
        analysis, result, bench.setting, suited, len(bench.data), seconds, reasons, further
    )
    return Inspection({analysis.name: complete})


def _numbers(
    analysis: Analysis, bench: Bench, suited: Sequence[Subject], partial: Partial
) -> PieceNumbers:
    """Compute the pieces that are missing; return all."""
    pieces_of = {subject.name: list(analysis.pieces(subject, bench)) for subject in suited}
    keys = [_key(model, piece) for model, pieces in pieces_of.items() for piece in pieces]
    done = sum(key in partial.pieces for key in keys)

    def compute(forward: Forward, stop: Stop) -> Iterator[tuple[str, Numbers]]:
        for subject in suited:
            pieces = pieces_of[subject.name]
            missing = [p for p in pieces if _key(subject.name, p) not in partial.pieces]
            if missing and not stop():
                yield from _analyse_model(analysis, subject, bench, missing, forward, stop)

    finished = False
    with suppress(KeyboardInterrupt):
        do_pieces(analysis.name.capitalize(), len(keys), done, compute, partial.add)
        finished = all(key in partial.pieces for key in keys)
    if not finished:
        what, done = f"pieces of {analysis.name}", sum(key in partial.pieces for key in keys)
        raise Interrupted(what, done, len(keys), partial.run is not None)
    return {
        model: {piece: partial.pieces[_key(model, piece)] for piece in pieces}
        for model, pieces in pieces_of.items()
    }


def _analyse_model(
    analysis: Analysis,
    subject: Subject,
    bench: Bench,
    pieces: Sequence[str],
    forward: Forward,
    stop: Stop,
) -> Iterator[tuple[str, Numbers]]:
    """Compute some pieces of one model, until `stop()`; yield key and numbers of each."""
    bench = bench.framed_for(subject)
    check_steady(subject, bench)
    with analysis.work(subject, bench) as work:
        for piece in pieces:
            if stop():
                return
            yield _key(subject.name, piece), _compute_piece(work, piece, bench)
            forward(1)


def _key(model: str, piece: str) -> str:
    return f"{model}\n{piece}"


def _compute_piece(work: Work, piece: str, bench: Bench) -> Numbers:
    return halving(bench, len(bench.data), lambda: work(piece))


def _with_provenance(
    measurement: Probe | Analysis,
    result: Result,
    setting: Setting,
    suited: Sequence[Subject],
    images: int,
    seconds: float,
    reasons: Mapping[str, Any],
    further: Sequence[Subject] = (),
) -> Result:
    """The result, with its provenance in `about`."""
    about = {
        **provenance(setting, suited, images, further),
        **described(measurement),
        **result.about,
        "seconds": round(seconds, 2),
        "left_out": {**result.about.get("left_out", {}), **reasons},
    }
    return replace(result, about=about)


def _bench(
    analysis: Analysis,
    opened: tuple[Subject, ...],
    data: Dataset | Path | str | Mapping[str, Dataset],
    split: str | None,
    limit: int | None,
    seed: int,
    skip_corrupt: bool,
    batch: int,
) -> Bench:
    """The models and images of one analysis."""
    most = analysis.limit if limit is None else limit or None

    def images(split: str, required: bool) -> Dataset:
        if isinstance(data, Mapping) and split not in data:
            given = ", ".join(data) or "no images"
            raise UnknownName("split", split, data, f"{analysis.name} was given {given}.")
        source = data[split] if isinstance(data, Mapping) else data
        name = split if required else None
        chosen = choose_images(source, name, most, opened, seed, skip_corrupt, usual=split)
        return match_labels(chosen, opened) if analysis.marked else chosen

    # an analysis that fits something needs two splits; a single `Dataset` is divided later
    fits = bool(analysis.fitted) and not isinstance(data, Dataset)
    chosen = images(split or analysis.split, required=split is not None or fits)
    others = {analysis.fitted: images(analysis.fitted, required=True)} if fits else {}
    return Bench(Setting(opened, chosen, seed), batch, others)


def _identity(analysis: Analysis, bench: Bench, further: Sequence[Subject]) -> dict[str, Any]:
    """Everything that the numbers of a piece depend on."""
    return {
        "vitreous": __version__,
        "analysis": analysis.name,
        **described(analysis),
        **bench.identity(further),
    }
