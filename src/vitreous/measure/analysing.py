"""`vitreous.analyse`: questions that need many passes, asked of models one after the other, piece by piece."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch

from vitreous import __version__
from vitreous.data.dataset import Dataset
from vitreous.data.progress import progress
from vitreous.errors import UnknownName, VitreousError
from vitreous.image_size import ImageSize
from vitreous.measure import analyses as questions
from vitreous.measure.analysis import Analysis, Bench, Numbers, Work
from vitreous.measure.choosing import check_options, choose_images, options_of
from vitreous.measure.inspection import Inspection, provenance
from vitreous.measure.pieces import Interrupted, Pieces
from vitreous.measure.probe import Setting
from vitreous.measure.steadiness import check_steady
from vitreous.measure.streaming import out_of_memory
from vitreous.measure.subject import Model, Subject, subjects
from vitreous.processes import Processes, interruptible, place
from vitreous.ranges import check_ranges
from vitreous.results import Result

log = logging.getLogger("vitreous")
Named = str | Sequence[str | Analysis] | Mapping[str, Mapping[str, Any]]


def analyse(
    models: Model | Iterable[Model] | Mapping[str, Model],
    data: Dataset | str | Mapping[str, Dataset] = "world:shapes",
    analyses: Named | None = None,
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
    """Ask `analyses` (all, if not given) of `models`.

    Models are names, modules or specimens; one, several, or a dict that names them. Data are a name, a `Dataset`, or a
    dict of those by split. Analyses are names, or a dict of names and options. `limit` and `split` default to
    those of each analysis; a limit of "all" takes all images. With a folder `keep` an interrupted analysis resumes.
    """
    most = 0 if limit == "all" else limit
    check_ranges(limit=None if limit == "all" else limit, batch=batch, seed=seed)
    asked = choose_analyses(analyses)
    home = place(device)
    opened = subjects(models, image=image, pretrained=pretrained, device=home, seed=seed)
    anatomies = {each.name: each.specimen.anatomy for each in opened}
    results: dict[str, Result] = {}
    left_out: dict[str, dict[str, str]] = {}
    for analysis in asked:
        bench = _bench(analysis, opened, data, split, most, seed, skip_corrupt, batch)
        reasons = {each.name: why for each in bench.setting.subjects if (why := analysis.unsuited(each, bench))}
        if len(reasons) == len(opened):
            left_out[analysis.name] = reasons
            continue
        try:
            folder = None if keep is None else Path(keep).expanduser() / analysis.name
            with Pieces(folder, _identity(analysis, bench, bench.setting.subjects)) as pieces:
                results[analysis.name] = _answer(analysis, bench, pieces, reasons)
        except Interrupted as stop:
            stop.inspection = Inspection(results, left_out, anatomies)
            raise
    return Inspection(results, left_out, anatomies)


def _answer(analysis: Analysis, bench: Bench, pieces: Pieces, reasons: Mapping[str, str]) -> Result:
    """One question to the models that can be asked."""
    suited = tuple(each for each in bench.setting.subjects if each.name not in reasons)
    began = perf_counter()
    wanted = _do(analysis, suited, bench, pieces)
    found = {name: {piece: pieces.found[name, piece] for piece in own} for name, own in wanted.items()}
    result = analysis.answer(found, suited, bench)
    about = {"ids": list(analysis.ids), "options": options_of(analysis), **result.about}
    about["seconds"] = round(perf_counter() - began, 2)
    about["left_out"] = {**result.about.get("left_out", {}), **reasons}
    return replace(result, about=provenance(bench.setting, suited, len(bench.data)) | about)


def _do(analysis: Analysis, suited: Sequence[Subject], bench: Bench, pieces: Pieces) -> dict[str, list[str]]:
    """What is not there yet; all pieces by model, in order. Ctrl-C lets the piece finish, a second one does not."""
    wanted = {each.name: list(analysis.pieces(each, bench)) for each in suited}
    total = sum(map(len, wanted.values()))
    with interruptible(Processes()) as caught, progress(analysis.name.capitalize(), total) as forward:
        for subject in suited:
            left = [piece for piece in wanted[subject.name] if (subject.name, piece) not in pieces.found]
            forward(len(wanted[subject.name]) - len(left))
            if not left:
                continue
            check_steady(subject, bench)
            with analysis.work(subject, bench) as work:
                for piece in left:
                    pieces.add(subject.name, piece, _one(work, piece, bench))
                    forward(1)
                    if caught:
                        raise Interrupted(analysis.name, len(pieces.found), total, pieces.run is not None)
    return wanted


def _one(work: Work, piece: str, bench: Bench) -> Numbers:
    """A piece, begun again with smaller batches for as long as memory does not suffice."""
    while True:
        try:
            return work(piece)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not out_of_memory(error) or bench.batch == 1:
                raise
            bench.batch = max(1, min(bench.batch, len(bench.data)) // 2)
            log.warning("Memory does not suffice; going on with %d images at a time.", bench.batch)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _bench(
    analysis: Analysis, opened: tuple[Subject, ...], data: Dataset | str | Mapping[str, Dataset], split: str | None,
    limit: int | None, seed: int, skip_corrupt: bool, batch: int,
) -> Bench:  # fmt: skip
    """The images of one question."""
    most = analysis.limit if limit is None else limit or None

    def images(split: str, asked: bool) -> Dataset:
        if isinstance(data, Mapping) and split not in data:
            raise UnknownName("split", split, data, f"{analysis.name} was given {', '.join(data) or 'no images'}.")
        given = data[split] if isinstance(data, Mapping) else data
        return choose_images(given, split if asked else None, most, opened, seed, skip_corrupt, usual=split)

    fits = bool(analysis.fitted) and not isinstance(data, Dataset)  # on one split, and asked on another
    chosen = images(split or analysis.split, asked=split is not None or fits)
    others: dict[str, Dataset] = {}
    if analysis.fitted and fits:
        others[analysis.fitted] = images(analysis.fitted, asked=True)
    return Bench(Setting(opened, chosen, seed), batch, others)


def choose_analyses(given: Named | None) -> tuple[Analysis, ...]:
    """All, or those named, with options where a dict has them; none twice."""
    given = questions.names() if given is None else [given] if isinstance(given, str) else given
    chosen: list[Analysis] = []
    for each in given:
        if isinstance(each, Analysis):
            chosen.append(each)
            continue
        kind = questions.named(each)
        options = given[each] if isinstance(given, Mapping) else {}
        check_options(each, kind, options)
        chosen.append(kind(**options))
    names = [each.name for each in chosen]
    if not names:
        raise VitreousError("There is nothing to analyse: name at least one analysis, or leave them out for all.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise VitreousError(f"The analysis {twice[0]!r} was named twice; ask each question once.")
    return tuple(chosen)


def _identity(analysis: Analysis, bench: Bench, opened: Sequence[Subject]) -> dict[str, Any]:
    """What the numbers of a piece depend on."""
    return {
        "vitreous": __version__,
        "analysis": analysis.name,
        "options": options_of(analysis),
        "models": {each.name: each.fingerprint for each in opened},
        "data": {bench.data.split: bench.data.fingerprint, **{k: v.fingerprint for k, v in bench.splits.items()}},
        "seed": bench.seed,
    }
