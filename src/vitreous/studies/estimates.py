"""How long a study will take, from measured throughput.

A training takes its images, times what an image takes. That is known from trainings of the same network that are
finished in the study's folder, and is measured otherwise: a few steps on noise, here and now. What a question takes is
known once a model has been asked in that folder, and only then. What is not known is said.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

import torch

from vitreous.claims.loading import EXHIBITS, INDEX, read_exhibit
from vitreous.config import Recipe
from vitreous.data import load
from vitreous.data.dataset import Dataset
from vitreous.devices import choose_device
from vitreous.distributed import Processes
from vitreous.errors import VitreousError
from vitreous.progress import progress
from vitreous.storage.atomic_files import read_json
from vitreous.storage.run_folder import Run
from vitreous.studies.measuring import TRAININGS, missing
from vitreous.studies.plan import Cell
from vitreous.studies.running import STACK, trained
from vitreous.studies.training import Images, Training
from vitreous.training import prepare
from vitreous.training.loop import Trainer
from vitreous.training.optim import schedule
from vitreous.training.step import steps_of

COSTS = (
    "optimiser",
    "clip",
    "ema",
    "sam",
    "objective",
    "masked_target",
    "freeze",
    "precision",
    "model",
    "augment",
)
"""What of a recipe decides how long a step takes, beside its batch."""
FORWARD = 1 / 3
"""What testing an image takes of what training on it takes: one of three passes of about the same size."""
TRIED = 16
"""Images of the first steps, which say how many can be afforded."""
BUDGET = 0.8
"""Seconds for the steps of one network."""
MOST = 5
"""Steps that are timed, if they are so fast."""


@dataclass(frozen=True)
class Speed:
    """Of training one network."""

    rate: float
    """Images a second."""
    start: float = 0.0
    """Seconds that the first epoch takes longer than the others."""
    finished: bool = False
    """Known from finished trainings, and not from a few steps."""
    seeds: int = 1
    """Trainings that shared each step; `rate` is that of one of them."""


@dataclass(frozen=True)
class Estimate:
    """Of one cell, in seconds."""

    training: float = 0.0
    asking: float = 0.0
    unknown: tuple[str, ...] = ()
    """What it leaves out."""
    speed: Speed | None = None
    why: str = ""
    """Why it cannot be done, if a few steps could not."""

    @property
    def total(self) -> float:
        return self.training + self.asking


def estimate(
    cells: Sequence[Cell], root: Path, device: str = "auto", stack: bool = False
) -> dict[str, Estimate]:
    """Of every cell by its key, done by one worker alone with one thread, as workers do.

    With `stack`, seeds of one configuration are trained in one step, and each cell has its share of that.

    Images whose number is not known are loaded to be counted, which fails where the study would.
    """
    where = choose_device(device)
    due = {
        cell.key: cell.training
        for cell in cells
        if cell.training and not trained(cell.training.key, root)
    }
    networks = {
        key: network(training, _counts(training.images)[0]) for key, training in due.items()
    }
    speeds, known = finished(root, where), asked(root)
    refused: dict[str, str] = {}
    with _one_thread(), progress("throughput", len(due)) as forward:
        for key, training in due.items():
            if networks[key] not in speeds and networks[key] not in refused:
                try:
                    speeds[networks[key]] = measured(training, where)
                except (VitreousError, torch.OutOfMemoryError) as error:
                    refused[networks[key]] = str(error)
            forward(1)
    found = {}
    for cell in cells:
        names = [
            (str(each.facts["model"]), name)
            for each in cell.sittings
            for name in missing(each, root)
        ]
        costs = [known.get(each, known.get(("", each[1]))) for each in names]
        unknown = dict.fromkeys(
            name for (_, name), cost in zip(names, costs, strict=True) if cost is None
        )
        speed = speeds.get(networks.get(cell.key, ""))
        lasting = 0.0
        if speed:
            alone = replace(due[cell.key], seed=0)
            alike = sum(replace(each, seed=0) == alone for each in due.values()) if stack else 1
            together = 1 if due[cell.key].follows else min(alike, STACK)
            lasting = duration(due[cell.key], speed, together) / together
        asking, why = sum(filter(None, costs)), refused.get(networks.get(cell.key, ""), "")
        found[cell.key] = Estimate(lasting, asking, tuple(unknown), speed, why)
    return found


def duration(training: Training, speed: Speed, seeds: int = 1) -> float:
    """Seconds of all steps and all tests of so many seeds that are trained in one step.

    More seeds than the speed was measured with take longer in proportion, fewer take no less: careful on both sides.
    """
    recipe, (count, tested) = training.recipe, _counts(training.images)
    steps, batch = steps_of(count, recipe)
    whole = schedule(recipe, steps)
    tests = 0 if recipe.objective == "masked" else 2 + (whole.epochs - 1) // recipe.test_every
    longer = max(1.0, seeds / speed.seeds)
    return speed.start + longer * (whole.steps * batch + FORWARD * tests * tested) / speed.rate


def network(training: Training, count: int) -> str:
    """What trainings have in common whose steps take the same time."""
    taught = training.teacher.model if training.teacher else None
    return _network(
        training.model, training.recipe.to_json(), count, training.images.image, taught is not None
    )


def _network(model: str, recipe: Mapping[str, Any], count: int, image: Any, taught: bool) -> str:
    said = {name: recipe[name] for name in COSTS}
    return json.dumps([model, min(count, recipe["batch"]), image, taught, said], sort_keys=True)


def finished(root: Path, device: torch.device) -> dict[str, Speed]:
    """Of every network that has been trained in this folder, on such a device."""
    here = prepare.environment(device)["device"]
    found: dict[str, list[Speed]] = {}
    for folder in sorted((root / TRAININGS).glob("*")):
        try:
            run = Run(folder)
            epochs = [each for each in run.records() if "images_per_second" in each]
            environment = read_json(folder / "environment.json")
            if not epochs or environment["device"] != here:
                continue
            together = len(environment.get("stacked_seeds", [0]))
            said = run.identity
            model = next(
                said["model"][how]["name"] for how in ("build", "load") if how in said["model"]
            )
            image = said["data"]["image"][0]
            name = _network(
                model, said["recipe"], said["data"]["images"], image, said["teacher"] is not None
            )
        except (OSError, ValueError, KeyError, StopIteration, VitreousError):
            continue  # half deleted, or being written
        found.setdefault(name, []).append(replace(_recorded(epochs), seeds=together))
    return {name: _mean(speeds) for name, speeds in found.items()}


def _mean(speeds: Sequence[Speed]) -> Speed:
    """The mean speed of those finished trainings that shared their steps with the most others."""
    most = max(each.seeds for each in speeds)
    same = [each for each in speeds if each.seeds == most]
    rate = 1 / fmean(1 / each.rate for each in same)
    return Speed(rate, fmean(each.start for each in same), finished=True, seeds=most)


def _recorded(epochs: Sequence[Mapping[str, Any]]) -> Speed:
    """The first epoch may have had to compile."""
    first, *rest = epochs
    rate = median(each["images_per_second"] for each in rest or epochs)
    return Speed(rate, max(0.0, first["seconds"] * (1 - first["images_per_second"] / rate)))


def measured(training: Training, device: torch.device) -> Speed:
    """A few steps after one that does not count; of a smaller batch where a whole one would take too long."""
    whole = min(_counts(training.images)[0], training.recipe.batch)
    step = _Steps(training, min(TRIED, whole), device)
    step.seconds()
    affordable = int(BUDGET / 4 / step.seconds() * step.batch)
    if (batch := min(whole, max(TRIED, affordable))) != step.batch:
        step = _Steps(training, batch, device)
        step.seconds()
    began, taken = perf_counter(), [step.seconds()]
    while len(taken) < MOST and perf_counter() - began < BUDGET / 2:
        taken.append(step.seconds())
    return Speed(step.batch / median(taken))


class _Steps:
    """Steps of a training on noise; not compiled, because that takes longer than they do."""

    def __init__(self, training: Training, batch: int, device: torch.device) -> None:
        side, self.batch, self.device = training.images.image or 32, batch, device
        noise = torch.randint(
            256, (batch, 3, side, side), generator=torch.Generator().manual_seed(0)
        ).to(torch.uint8)
        labels, classes = torch.arange(batch) % 10, tuple("0123456789")
        data = Dataset(noise, labels, classes, training.images.name)
        recipe = training.recipe.but(head="keep", batch=batch)
        with torch.random.fork_rng(devices=[]):
            model = _built(training.model, data, recipe)
            taught = training.teacher
            teacher = _built(taught.model, data, taught.recipe.but(head="keep")) if taught else None
        self.trainer = Trainer(model, data, data, recipe, teacher, 0, device, False, Processes())
        self.trainer.objective.train()
        self.rows = torch.arange(batch, device=self.trainer.data.images.device)
        self.number = 0

    def seconds(self) -> float:
        """Of the next step."""
        began = perf_counter()
        with torch.random.fork_rng(devices=[]):
            self.trainer.step(self.number, self.rows, 0.0)
        float(self.trainer.step.sums[0])  # waits for a GPU
        self.number += 1
        return perf_counter() - began


def _built(name: str, data: Dataset, recipe: Recipe) -> torch.nn.Module:
    return prepare.prepare_model(name, data, recipe, 0, pretrained=False)[0]


def asked(root: Path) -> dict[tuple[str, str], float]:
    """Seconds of every question, by model and, under '', of all models together."""
    found: dict[tuple[str, str], list[float]] = {}
    for path in sorted((root / EXHIBITS).glob(f"*/{INDEX}")):
        try:
            index = read_exhibit(path.parent)
            model, seconds = str(index["facts"]["model"]), dict(index["seconds"])
        except (VitreousError, ValueError, KeyError, TypeError):
            continue  # half deleted, or damaged
        for name, value in seconds.items():
            for whose in (model, ""):
                found.setdefault((whose, name), []).append(float(value))
    return {key: fmean(values) for key, values in found.items()}


def makespan(cells: Sequence[Cell], seconds: Mapping[str, float], workers: int) -> float:
    """When the last cell is done, if each worker always takes the first that waits for nothing."""
    waiting = [cell for cell in cells if cell.key in seconds]
    busy: list[tuple[float, str]] = []
    now = 0.0
    running: set[str] = set()
    while waiting or busy:
        open_ = {cell.key for cell in waiting} | running
        for cell in [cell for cell in waiting if not open_ & set(cell.follows)][
            : workers - len(busy)
        ]:
            heapq.heappush(busy, (now + seconds[cell.key], cell.key))
            running.add(cell.key)
            waiting.remove(cell)
        now, key = heapq.heappop(busy)
        running.remove(key)
    return now


@cache
def _counts(images: Images) -> tuple[int, int]:
    """Training and test images."""
    train = images.size or _loaded(images.name, "train", images.image)
    test = images.test_size or _loaded(images.name, "test", images.image)
    share = (1 - images.held_out) * (1 - images.fraction if images.rest else images.fraction)
    return max(1, round(train * share)), test


@cache
def _loaded(name: str, split: str, image: int | None) -> int:
    return len(load(name, split=split, image=image))


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
