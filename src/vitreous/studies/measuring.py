"""Measure the results that claims read off trained networks.

A result is measured by the probe or the analysis of its name, and saved in the folder of its
evidence item. It is entered into the folder's index after it has been saved; a result in the index
is not measured again.
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

from vitreous.claims.evidence_item import marks
from vitreous.claims.facts import describe_facts, write_older_words
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
from vitreous.results.replicates import Replicates
from vitreous.storage.atomic_files import explain_write_errors, read_json, write_json
from vitreous.storage.fingerprints import checksum
from vitreous.storage.locks import Busy, hold_lock
from vitreous.storage.run_folder import Run
from vitreous.studies.identities import identities
from vitreous.studies.plan import PlannedItem
from vitreous.studies.scales import Scale
from vitreous.studies.training import Images, Training
from vitreous.training.adapt import adapt

TRAININGS, STUDY = "trainings", "study.json"
PROBE_IMAGES = 2560
"""Default number of test images of a probe, as in Raghu et al. 2021; scales can override it."""
ALL_IMAGES = ("accuracy", "calibration")
"""Probes that run on all test images."""


def evidence_folder(item: PlannedItem, root: Path) -> Path:
    """The folder of an item's results, named after the facts and trainings they depend on."""
    both = [each for each in (item, item.beside) if each is not None]
    keys = [each.training.key for each in both if each.training]
    facts = write_older_words(describe_facts(item.facts))  # so that older studies resume
    return root / EXHIBITS / checksum([facts, keys])[:12]


def missing_results(item: PlannedItem, root: Path) -> list[str]:
    """The results of an item that are not in the index of its folder, or are damaged."""
    home = evidence_folder(item, root)
    index = _index(home)
    sums = index.get("checksums", {})
    measured = index.get("results", {})
    known = {name for name in measured if is_intact(home / f"{name}.json", sums.get(name))}
    known |= index.get("left_out", {}).keys()
    return [name for name in item.results if name not in known]


def _index(home: Path) -> dict[str, Any]:
    """The index of a folder; empty if there is none or it is damaged."""
    try:
        return read_exhibit(home)
    except VitreousError:
        return {}


def measure_item(item: PlannedItem, root: Path, scale: Scale, device: str = "auto") -> Path:
    """Measure the results that are missing, and return the folder that holds them."""
    for names in measured_together(missing_results(item, root), scale):
        measure_group(item, names, root, scale, device)
    return evidence_folder(item, root)


def measured_together(names: Sequence[str], scale: Scale) -> list[tuple[str, ...]]:
    """Split results into groups that are measured together.

    Probes with the same number of images share a pass; everything else is a group of its own.
    """
    first = [name for name in ("identities", "training", "trajectory") if name in names]
    passes: dict[int | None, list[str]] = {}
    for name in names:
        if name in probes.names():
            passes.setdefault(_limit(name, scale), []).append(name)
    last = [name for name in names if name in analyses.names() and name not in first]
    return [(name,) for name in first] + [*map(tuple, passes.values())] + [(n,) for n in last]


def _limit(name: str, scale: Scale) -> int | None:
    """Return the number of images of a probe's pass; None for all."""
    return None if name in ALL_IMAGES else scale.image_counts.get(name, PROBE_IMAGES)


def measure_group(
    item: PlannedItem, names: Sequence[str], root: Path, scale: Scale, device: str = "auto"
) -> None:
    """Measure one group of `measured_together`, save the results, and enter them into the index."""
    began = perf_counter()
    item = _with_stored_names(item, _index(evidence_folder(item, root)))
    inspection = _measure(item, names, root, scale, device)
    home = evidence_folder(item, root)
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
            "training": "" if item.training is None else item.training.key,
            "facts": dict(item.facts),
            "name": "" if item.training is None else item.name,
            "other": item.beside.name if item.beside else "",
            "classes": max(known.get("classes", 0), *classes, 0),
            "results": kept | new,
            "checksums": {name: sums[name] for name in kept if name in sums}
            | {name: checksum(read_json(home / f"{name}.json")) for name in new},
            "left_out": known.get("left_out", {}) | left_out,
            "seconds": known.get("seconds", {}) | dict.fromkeys(new, round(taken, 3)),
        }
        write_json(home / INDEX, index)


def _with_stored_names(item: PlannedItem, index: Mapping[str, Any]) -> PlannedItem:
    """The item with the names of the results that its folder already has.

    An older version may have described the same facts by another name, and a folder has one name.
    """
    beside = item.beside
    if beside is not None:
        beside = replace(beside, called=index.get("other", beside.called))
    return replace(item, called=index.get("name", item.called), beside=beside)


@contextlib.contextmanager
def _index_lock(home: Path, root: Path) -> Iterator[None]:
    """Hold the lock of an index; waits while another process writes it."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                path = root / "locks" / f"{home.name}.index.lock"
                stack.enter_context(hold_lock(path, "writing an index"))
                break
            except Busy:
                sleep(0.05)
        yield


def _study(root: Path) -> dict[str, Any]:
    """The settings of the studies in the folder, which each index repeats."""
    try:
        return read_json(root / STUDY)
    except VitreousError:
        return {}


def _measure(
    item: PlannedItem, names: Sequence[str], root: Path, scale: Scale, device: str
) -> Inspection:
    """Measure the results of one group."""
    if item.training is None:
        return Inspection({"identities": identities()})
    run = Run(root / TRAININGS / item.training.key)
    if "training" in names:
        return Inspection({"training": training_result(run, item.name)})
    given, side = item.training.images, item.facts.get("resolution")
    held_out = item.facts.get("measured") == "held_out"
    test = load_split(given, "held_out" if held_out else "test", side)
    if "trajectory" in names:
        path = analyse(f"run:{run.folder}", test, "trajectory", device=device)["trajectory"]
        return Inspection({"trajectory": replace(path, table=path.table.assign(model=item.name))})
    both = [each for each in (item, item.beside) if each is not None]
    models = {each.name: _model(each, root, test) for each in both}
    if names[0] in probes.names():
        options = {name: scale.measurement_options.get(name, {}) for name in names}
        return inspect(models, test, options, limit=_limit(names[0], scale), device=device)
    (name,) = names
    splits = {
        "train": load_split(given, "train", side),
        "test": _conflict_images(item) if name == "cue_conflict" else test,
    }
    limit = scale.image_counts.get(name)
    parts = [
        analyse(models, splits, {name: options}, limit=limit, device=device)
        for options in _options(item, name, scale)
    ]
    return _join(name, parts)


def _options(item: PlannedItem, name: str, scale: Scale) -> list[dict[str, Any]]:
    """The options of each run of an analysis on one network; usually there is one run."""
    model = str(item.facts["model"])
    given = dict(scale.measurement_options.get(name, {}))
    if name == "lesion":
        return [{"what": what} for what in given.get(model, ("units",))]
    if name == "linear_probe" and model in scale.last_units and "size" not in item.facts:
        given["positions"] = (scale.last_units[model],)
    if name == "similarity_to" and item.beside is not None:
        given["to"] = item.beside.name
    clean = item.facts.get("measured") == "clean" or item.facts.get("augment") == "none"
    if name == "hessian" and clean:
        given["stream"] = "clean"
    return [given]


def _join(name: str, parts: Sequence[Inspection]) -> Inspection:
    """Join the results of several runs of an analysis into one, without duplicate rows."""
    results = [each[name] for each in parts if name in each]
    if len(parts) == 1 or not results:
        return parts[0]
    table = pd.concat([each.table for each in results], ignore_index=True)
    kept = ~table.duplicated()
    replicates = {
        column: Replicates.joined([each.replicates[column] for each in results]).take(kept)
        for column in results[0].replicates
    }
    table = table[kept].reset_index(drop=True)
    return Inspection({name: replace(results[0], table=table, views=(), replicates=replicates)})


def _model(item: PlannedItem, root: Path, test: Dataset) -> nn.Module:
    """The network at its checkpoint, resized where its facts name another resolution."""
    assert item.training is not None
    run = Run(root / TRAININGS / item.training.key)
    model = model_of_run(run, item.checkpoint)
    side = item.facts.get("resolution")
    if side is None or side == item.training.images.image:
        return model
    larger = adapt(model, classes=len(test.classes), image=int(side), head="keep")
    if "embedding" in item.facts:
        _replace_positions(larger, model, str(item.facts["embedding"]))
    return larger


@torch.no_grad()
def _replace_positions(larger: nn.Module, model: nn.Module, how: str) -> None:
    """Replace interpolated positions, except that of the class token.

    'truncated' takes the old positions in the order of tokens, and zeros for the rest; 'random'
    draws all of them.
    """
    generator = torch.Generator().manual_seed(0)
    news = [each for each in larger.modules() if isinstance(each, Learned1d)]
    olds = [each for each in model.modules() if isinstance(each, Learned1d)]
    for new, old in zip(news, olds, strict=True):
        rows = torch.randn(new.table.shape, generator=generator) * 0.02
        if how == "truncated":
            rows.zero_()
            count = min(rows.shape[1], old.table.shape[1])
            rows[:, :count] = old.table[:, :count]
        rows[:, : old.prefix] = old.table[:, : old.prefix]
        new.table.copy_(rows)


@lru_cache(maxsize=2)
def load_split(given: Images, split: str, side: int | None = None) -> Dataset:
    """Load images of a training.

    `split` is 'train' (its share of the training images), 'held_out' (those held out of them) or
    'test'. `side` is the image size if it is not that of the training.
    """
    image = side or given.image
    if split == "test":
        return load_images(given.name, split="test", size=given.test_size, image=image)
    data = load_images(given.name, split="train", size=given.size, image=image)
    if given.held_out:
        data, held = split_off(data, given.held_out)
        if split == "held_out":
            return held
    if given.fraction == 1:
        return data
    return split_off(data, given.fraction)[0] if given.rest else fraction(data, given.fraction)


def _conflict_images(item: PlannedItem) -> Dataset:
    """Test images in which shape and texture disagree; they agree in the training images."""
    assert item.training is not None
    given = item.training.images
    return load_split(replace(given, name=given.name.replace("cues", "conflict")), "test")


def training_result(run: Run, name: str) -> Result:
    """The record of a training in long form: one row for each number of each epoch."""
    epochs = list(run.records())
    rows = [row for epoch in epochs for row in _record_rows(epoch)]
    rows += list(_training_amounts(epochs))
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


def _training_amounts(epochs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Steps so far, and the sum of their learning rates, after every epoch.

    The rate of an epoch is the recorded one, which is that of its last step.
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


def _record_rows(epoch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of the numbers in one epoch's record, which may be nested by reading, layer and head."""
    for name, value in epoch.items():
        if name in ("epoch", "step", "seconds"):
            continue
        measure, by_reading = name, value if isinstance(value, Mapping) else {"": value}
        if name == "gates":  # by the paths of the layers that have them, which are the first ones
            measure, by_reading = "gate", {"": list(value.values())}
        for reading, layers in by_reading.items():
            for layer, heads in _numbered(layers):
                for head, number in _numbered(heads):
                    if isinstance(number, (int, float)):
                        place = {"reading": reading, "layer": layer, "head": head}
                        row = {"measure": measure, "epoch": epoch["epoch"]}
                        yield {**row, **place, "value": float(number)}


def _numbered(value: Any) -> Iterator[tuple[int, Any]]:
    """Enumerate a list; a value that is not a list is yielded with the number -1."""
    yield from enumerate(value) if isinstance(value, list) else [(-1, value)]


def trained_model(training: Training, root: Path) -> nn.Module:
    """The final network of a training."""
    return model_of_run(Run(root / TRAININGS / training.key))
