"""Results of a trained model for claims to read: what a claim asks for by name is measured by the probe or analysis of
that name, and put into a folder with an index that is written last. Results that are there are not measured again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pandas as pd
import torch
from torch import nn

from vitreous.claims.evidence import marks
from vitreous.claims.facts import told
from vitreous.claims.reading import EXHIBITS, INDEX, read_exhibit
from vitreous.data import load as load_images
from vitreous.data.dataset import Dataset
from vitreous.data.subsets import fraction, split_off
from vitreous.errors import VitreousError
from vitreous.measure import analyses, probes
from vitreous.measure.engine import analyse, inspect
from vitreous.measure.inspection import Inspection, versions
from vitreous.models.positions import Learned1d
from vitreous.models.runs import from_run
from vitreous.results import Column, Result
from vitreous.results.files import intact
from vitreous.storage.atomic_files import explain_write_errors, read_json, write_json
from vitreous.storage.fingerprints import checksum
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
    return root / EXHIBITS / checksum([told(sitting.facts), trained])[:12]


def missing(sitting: Sitting, root: Path) -> list[str]:
    """What is still to be measured: a result counts from when the index names it, which is written after it."""
    home = folder(sitting, root)
    index = _index(home)
    sums = index.get("checksums", {})
    there = {
        name for name in index.get("results", {}) if intact(home / f"{name}.json", sums.get(name))
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
    """Whatever is missing, and the index anew."""
    home = folder(sitting, root)
    known = _index(home)
    left_out = dict(known.get("left_out", {}))
    seconds = dict(known.get("seconds", {}))
    began = perf_counter()
    wanted = missing(sitting, root)
    for found in _measured(sitting, wanted, root, scale, device):
        for result in found.values():
            result.save(home)
        left_out |= {name: "; ".join(why.values()) for name, why in found.left_out.items()}
        taken, began = perf_counter() - began, perf_counter()
        seconds |= {name: round(taken / len(found), 3) for name in found}
    names = dict.fromkeys((*known.get("results", {}), *sitting.results))
    sums = {name: sum_ for name, sum_ in known.get("checksums", {}).items() if name not in wanted}
    paths = [path for name in names if intact(path := home / f"{name}.json", sums.get(name))]
    there = [Result.load(path) for path in paths]
    counts = [int(result.about.get("data", {}).get("classes", 0)) for result in there]
    index = {
        "key": home.name,
        "study": _study(root),
        "facts": dict(sitting.facts),
        "name": "" if sitting.training is None else sitting.name,
        "other": sitting.beside.name if sitting.beside else "",
        "classes": max(counts, default=0),
        "results": {result.name: list(marks(result)) for result in there},
        "checksums": {
            result.name: checksum(read_json(path))
            for result, path in zip(there, paths, strict=True)
        },
        "left_out": left_out,
        "seconds": seconds,
    }
    with explain_write_errors(home):
        home.mkdir(parents=True, exist_ok=True)
    write_json(home / INDEX, index)
    return home


def _study(root: Path) -> dict[str, Any]:
    """What all studies in the folder have in common, so that it can be told without `study.json`."""
    try:
        return read_json(root / STUDY)
    except VitreousError:
        return {}


def _measured(
    sitting: Sitting, names: Sequence[str], root: Path, scale: Scale, device: str
) -> Iterator[Inspection]:
    """Answers, a few at a time, so that what there is can be kept."""
    if sitting.training is None:
        yield Inspection({"identities": identities()})
        return
    run = Run(root / TRAININGS / sitting.training.key)
    if "training" in names:
        yield Inspection({"training": record(run, sitting.name)})
    if not set(names) - {"training"}:
        return
    given, side = sitting.training.images, sitting.facts.get("resolution")
    train = images(given, "train", side)
    test = images(
        given, "held_out" if sitting.facts.get("measured") == "held_out" else "test", side
    )
    if "trajectory" in names:
        way = analyse(f"run:{run.folder}", test, "trajectory", device=device)["trajectory"]
        yield Inspection({"trajectory": replace(way, table=way.table.assign(model=sitting.name))})
    models = {
        each.name: _model(each, root, test)
        for each in (sitting, sitting.beside)
        if each is not None
    }
    for asked, limit in _passes([name for name in names if name in probes.names()], scale):
        yield inspect(
            models,
            test,
            {name: scale.asks.get(name, {}) for name in asked},
            limit=limit,
            device=device,
        )
    for name in names:
        if name not in analyses.names() or name == "trajectory":
            continue
        shown = {"train": train, "test": _conflicting(sitting) if name == "cue_conflict" else test}
        ways = [
            analyse(models, shown, {name: options}, limit=scale.counts.get(name), device=device)
            for options in _ways(sitting, name, scale)
        ]
        yield _joined(name, ways)


def _passes(names: Sequence[str], scale: Scale) -> Iterator[tuple[list[str], int | None]]:
    """Questions that are asked together, and on how many images."""
    for limit in dict.fromkeys(
        None if name in EVERY else scale.counts.get(name, PASS) for name in names
    ):
        yield (
            [n for n in names if (None if n in EVERY else scale.counts.get(n, PASS)) == limit],
            limit,
        )


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
    model = from_run(run, sitting.moment)
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
    rows = [row for epoch in run.records() for row in _rows(epoch)]
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
    about = {"versions": versions(), "data": {"fingerprint": run.identity["data"].get("test", "")}}
    return Result("training", table, columns, about=about)


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
    return from_run(run)
