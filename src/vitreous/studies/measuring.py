"""Results of a trained model for claims to read: what a claim asks for by name is measured by the probe or analysis of
that name, and put into a folder with an index that is written last. Results that are there are not measured again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pandas as pd
import torch
from torch import nn

from vitreous.claims.evidence import marks
from vitreous.claims.facts import describe_facts
from vitreous.claims.loading import EXHIBITS, INDEX, read_exhibit
from vitreous.data import load as load_images
from vitreous.data.dataset import Dataset
from vitreous.data.subsets import fraction, split_off
from vitreous.errors import VitreousError
from vitreous.measure import analyses, probes
from vitreous.measure.engine import analyse, inspect
from vitreous.measure.inspection import Inspection, versions
from vitreous.models.loading import model_of_run
from vitreous.models.positions import Learned1d
from vitreous.results import Column, Result
from vitreous.results.files import is_intact
from vitreous.storage.atomic_files import explain_write_errors, read_json, write_json
from vitreous.storage.fingerprints import checksum
from vitreous.storage.locks import Busy, hold_lock
from vitreous.storage.run_folder import Run
from vitreous.studies.identities import identities
from vitreous.studies.plan import Sitting
from vitreous.studies.scales import Scale
from vitreous.studies.training import Images, Training
from vitreous.training.adapt import adapt

TRAININGS, STUDY = "trainings", "study.json"
PASS = 2560
"""Test images of a pass, unless a scale says otherwise: as many as the papers compare representations on."""
EVERY = ("accuracy", "calibration")
"""Asked on all test images."""


def folder(sitting: Sitting, root: Path) -> Path:
    """Where its results are: named after what they depend on."""
    trained = [
        each.training.key
        for each in (sitting, sitting.beside)
        if each is not None and each.training
    ]
    return root / EXHIBITS / checksum([describe_facts(sitting.facts), trained])[:12]


def missing(sitting: Sitting, root: Path) -> list[str]:
    """What is still to be measured: a result counts from when the index names it, which is written after it."""
    home = folder(sitting, root)
    index = _index(home)
    sums = index.get("checksums", {})
    there = {
        name
        for name in index.get("results", {})
        if is_intact(home / f"{name}.json", sums.get(name))
    }
    return [
        name
        for name in sitting.results
        if name not in there and name not in index.get("left_out", {})
    ]


def _index(home: Path) -> dict[str, Any]:
    """What was written of it; nothing, if that is damaged."""
    try:
        return read_exhibit(home)
    except VitreousError:
        return {}


def measure(sitting: Sitting, root: Path, scale: Scale, device: str = "auto") -> Path:
    """Measure what is missing, and return the folder that holds the results and their index."""
    for names in groups(missing(sitting, root), scale):
        measure_group(sitting, names, root, scale, device)
    return folder(sitting, root)


def groups(names: Sequence[str], scale: Scale) -> list[tuple[str, ...]]:
    """Split results into those measured together: the record of the training, the probes of one
    pass over as many images, and each analysis by itself."""
    found: list[tuple[str, ...]] = [
        (name,) for name in ("identities", "training", "trajectory") if name in names
    ]
    passes: dict[int | None, list[str]] = {}
    for name in names:
        if name in probes.names():
            passes.setdefault(_limit(name, scale), []).append(name)
    found += [tuple(each) for each in passes.values()]
    many = [name for name in names if name in analyses.names() and name != "trajectory"]
    return [*found, *((name,) for name in many)]


def _limit(name: str, scale: Scale) -> int | None:
    """Return the number of images of a probe's pass; None for all."""
    return None if name in EVERY else scale.counts.get(name, PASS)


def measure_group(
    sitting: Sitting, names: Sequence[str], root: Path, scale: Scale, device: str = "auto"
) -> None:
    """Measure results of one group (see `groups`), save them, and enter them into the index."""
    began = perf_counter()
    inspection = _measured(sitting, names, root, scale, device)
    home = folder(sitting, root)
    for result in inspection.values():
        result.save(home)
    taken = (perf_counter() - began) / max(1, len(inspection))
    with explain_write_errors(home):
        home.mkdir(parents=True, exist_ok=True)
    with _index_lock(home, root):
        known = _index(home)
        sums = known.get("checksums", {})
        kept = {
            name: mark
            for name, mark in known.get("results", {}).items()
            if name not in inspection and is_intact(home / f"{name}.json", sums.get(name))
        }
        new = {name: list(marks(result)) for name, result in inspection.items()}
        classes = [
            int(each.about.get("data", {}).get("classes", 0)) for each in inspection.values()
        ]
        left_out = {name: "; ".join(why.values()) for name, why in inspection.left_out.items()}
        index = {
            "key": home.name,
            "study": _study(root),
            "training": "" if sitting.training is None else sitting.training.key,
            "facts": dict(sitting.facts),
            "name": "" if sitting.training is None else sitting.name,
            "other": sitting.beside.name if sitting.beside else "",
            "classes": max(known.get("classes", 0), *classes, 0),
            "results": kept | new,
            "checksums": {name: sums[name] for name in kept if name in sums}
            | {name: checksum(read_json(home / f"{name}.json")) for name in new},
            "left_out": known.get("left_out", {}) | left_out,
            "seconds": known.get("seconds", {}) | dict.fromkeys(new, round(taken, 3)),
        }
        write_json(home / INDEX, index)


@contextlib.contextmanager
def _index_lock(home: Path, root: Path) -> Iterator[None]:
    """Hold the lock of an index, waiting for another process that is writing it."""
    while True:
        try:
            with hold_lock(root / "locks" / f"{home.name}.index.lock", "writing an index"):
                yield
            return
        except Busy:
            sleep(0.05)


def _study(root: Path) -> dict[str, Any]:
    """What all studies in the folder have in common, so that it can be told without `study.json`."""
    try:
        return read_json(root / STUDY)
    except VitreousError:
        return {}


def _measured(
    sitting: Sitting, names: Sequence[str], root: Path, scale: Scale, device: str
) -> Inspection:
    """Measure the results of one group."""
    if sitting.training is None:
        return Inspection({"identities": identities()})
    run = Run(root / TRAININGS / sitting.training.key)
    if "training" in names:
        return Inspection({"training": record(run, sitting.name)})
    given, side = sitting.training.images, sitting.facts.get("resolution")
    held_out = sitting.facts.get("measured") == "held_out"
    test = images(given, "held_out" if held_out else "test", side)
    if "trajectory" in names:
        way = analyse(f"run:{run.folder}", test, "trajectory", device=device)["trajectory"]
        return Inspection({"trajectory": replace(way, table=way.table.assign(model=sitting.name))})
    both = [each for each in (sitting, sitting.beside) if each is not None]
    models = {each.name: _model(each, root, test) for each in both}
    if names[0] in probes.names():
        asked = {name: scale.asks.get(name, {}) for name in names}
        return inspect(models, test, asked, limit=_limit(names[0], scale), device=device)
    (name,) = names
    shown = {
        "train": images(given, "train", side),
        "test": _conflicting(sitting) if name == "cue_conflict" else test,
    }
    limit = scale.counts.get(name)
    ways = [
        analyse(models, shown, {name: options}, limit=limit, device=device)
        for options in _ways(sitting, name, scale)
    ]
    return _joined(name, ways)


def _ways(sitting: Sitting, name: str, scale: Scale) -> list[dict[str, Any]]:
    """Options of an analysis; several, where one model is asked in several ways."""
    model = str(sitting.facts["model"])
    given = dict(scale.asks.get(name, {}))
    if name == "lesion":
        return [{"what": what} for what in given.get(model, ("units",))]
    if name == "linear_probe" and model in scale.last and "size" not in sitting.facts:
        given["positions"] = (scale.last[model],)
    if name == "similarity_to" and sitting.beside is not None:
        given["to"] = sitting.beside.name
    if name == "hessian" and (
        sitting.facts.get("measured") == "clean" or sitting.facts.get("augment") == "none"
    ):
        given |= {"stream": "clean"}
    return [given]


def _joined(name: str, ways: Sequence[Inspection]) -> Inspection:
    """Several answers to one question as one, without doubled rows."""
    answers = [each[name] for each in ways if name in each]
    if len(ways) == 1 or not answers:
        return ways[0]
    table = pd.concat([each.table for each in answers], ignore_index=True).drop_duplicates(
        ignore_index=True
    )
    return Inspection({name: replace(answers[0], table=table, views=())})


def _model(sitting: Sitting, root: Path, test: Dataset) -> nn.Module:
    """At its moment; at another resolution than it was trained at, if that is what is asked."""
    assert sitting.training is not None
    run = Run(root / TRAININGS / sitting.training.key)
    model = model_of_run(run, sitting.moment)
    side = sitting.facts.get("resolution")
    if side is None or side == sitting.training.images.image:
        return model
    larger = adapt(model, classes=len(test.classes), image=int(side), head="keep")
    if "embedding" in sitting.facts:
        _displace(larger, model, str(sitting.facts["embedding"]))
    return larger


@torch.no_grad()
def _displace(larger: nn.Module, model: nn.Module, how: str) -> None:
    """Positions that were not interpolated: the old ones in the order of tokens and none for the rest ('truncated'), or
    drawn as for a new model ('random'); the class token keeps its own."""
    generator = torch.Generator().manual_seed(0)
    olds = (each for each in model.modules() if isinstance(each, Learned1d))
    for new, old in zip(
        (each for each in larger.modules() if isinstance(each, Learned1d)), olds, strict=True
    ):
        rows = torch.randn(new.table.shape, generator=generator) * 0.02
        if how == "truncated":
            rows.zero_()
            count = min(rows.shape[1], old.table.shape[1])
            rows[:, :count] = old.table[:, :count]
        rows[:, : old.prefix] = old.table[:, : old.prefix]
        new.table.copy_(rows)


@lru_cache(maxsize=2)
def images(given: Images, split: str, side: int | None = None) -> Dataset:
    """Of a training: its share of the training images, those `held_out` of them, or the test images; at another
    resolution if one is given."""
    if split == "test":
        return load_images(
            given.name, split="test", size=given.test_size, image=side or given.image
        )
    data = load_images(given.name, split="train", size=given.size, image=side or given.image)
    if given.held_out:
        data, held = split_off(data, given.held_out)
        if split == "held_out":
            return held
    if given.fraction == 1:
        return data
    return split_off(data, given.fraction)[0] if given.rest else fraction(data, given.fraction)


def _conflicting(sitting: Sitting) -> Dataset:
    """Test images on which the cues disagree that agreed in training."""
    assert sitting.training is not None
    given = sitting.training.images
    return images(replace(given, name=given.name.replace("cues", "conflict")), "test")


def record(run: Run, name: str) -> Result:
    """The record of a training in long form: one row for each number of each epoch (A4.01, A4.19, A4.20)."""
    epochs = list(run.records())
    rows = [row for epoch in epochs for row in _rows(epoch)]
    rows += list(_amounts(epochs))
    blank = {"reading": "", "layer": -1, "head": -1}
    table = pd.DataFrame([{"model": name, **blank, **row} for row in rows])
    columns = (
        Column("model", "category", "The model."),
        Column("measure", "category", "What was recorded."),
        Column("epoch", "quantity", "Epochs trained; 0 is before."),
        Column(
            "reading",
            "category",
            "Of nonlocality: on the activations (true), or on the embedding (official).",
        ),
        Column("layer", "quantity", "The attention layer, from 0; -1 for what has none."),
        Column("head", "quantity", "The head, from 0; -1 for what has none."),
        Column("value", "quantity", "The number."),
    )
    about = {
        "versions": versions(),
        "data": {"fingerprint": run.identity["test"]["fingerprint"]},
        "recipe": run.identity["recipe"],
    }
    return Result("training", table, columns, about=about)


def _amounts(epochs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Steps so far, and the sum of their learning rates, after every epoch.

    The rate of an epoch is the one it is recorded with, which is that of its last step.
    """
    steps, rate_sum = 0, 0.0
    for epoch in epochs:
        if "step" not in epoch:
            continue
        done = int(epoch["step"])
        rate_sum += (done - steps) * float(epoch.get("lr") or 0.0)
        steps = done
        for measure, value in (("steps", float(steps)), ("rate_sum", rate_sum)):
            yield {"measure": measure, "epoch": epoch["epoch"], "value": value}


def _rows(epoch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for measure, value in epoch.items():
        if measure in ("epoch", "step", "seconds"):
            continue
        where = {"measure": {"gates": "gate"}.get(measure, measure), "epoch": epoch["epoch"]}
        if (
            measure == "gates"
        ):  # by the paths of the layers that have them, which are the first ones
            value = list(value.values())
        for reading, found in value.items() if isinstance(value, Mapping) else (("", value),):
            for layer, heads in enumerate(found) if isinstance(found, list) else ((-1, found),):
                for head, number in enumerate(heads) if isinstance(heads, list) else ((-1, heads),):
                    if isinstance(number, (int, float)):
                        yield {
                            **where,
                            "reading": reading,
                            "layer": layer,
                            "head": head,
                            "value": float(number),
                        }


def teacher(training: Training, root: Path) -> nn.Module:
    """The trained model of another cell."""
    run = Run(root / TRAININGS / training.key)
    return model_of_run(run)
