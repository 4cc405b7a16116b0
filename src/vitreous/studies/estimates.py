"""How long a study takes, from measured throughput.

The time of a training is its number of images over the throughput. That is known from finished
trainings of the same network in the study's folder; otherwise it is measured in a few steps on
noise. The time of a measurement is known once it has been made in that folder; otherwise it is left
out.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

import torch

from vitreous.claims.loading import EXHIBITS, INDEX, read_exhibit
from vitreous.config import Recipe
from vitreous.data import load
from vitreous.data.dataset import Dataset
from vitreous.devices import choose_device, one_thread
from vitreous.distributed import Processes
from vitreous.errors import VitreousError
from vitreous.progress import progress
from vitreous.storage.atomic_files import read_json
from vitreous.storage.run_folder import Run
from vitreous.studies.measuring import TRAININGS, missing_results
from vitreous.studies.plan import Cell
from vitreous.studies.run_cells import STACK, is_trained
from vitreous.studies.training import Images, Training
from vitreous.training import prepare
from vitreous.training.loop import Trainer
from vitreous.training.optim import schedule
from vitreous.training.step import steps_of

COSTS = (
    "optimiser", "clip", "ema", "sam", "objective", "masked_target", "freeze", "precision", "model",
    "augment",
)  # fmt: skip
"""Options of a recipe on which the time of a step depends, beside its batch."""
FORWARD = 1 / 3
"""Time of testing an image over that of training on it: one of three passes of the same size."""
TRIED = 16
"""Images of the first steps, from which an affordable batch is chosen."""
BUDGET = 0.8
"""Seconds for the steps of one network."""
MOST = 5
"""Most steps that are timed."""


@dataclass(frozen=True)
class Speed:
    """The throughput of training one network."""

    rate: float
    """Images a second."""
    start: float = 0.0
    """Seconds that the first epoch takes longer than the others."""
    finished: bool = False
    """Whether it is from finished trainings, and not from a few steps."""
    seeds: int = 1
    """Trainings that shared a step; `rate` is that of one of them."""


@dataclass(frozen=True)
class TimeEstimate:
    """The seconds that one cell takes."""

    training: float = 0.0
    measuring: float = 0.0
    unknown: tuple[str, ...] = ()
    """Results that are not included."""
    speed: Speed | None = None
    why: str = ""
    """Why a few steps of it failed."""

    @property
    def total(self) -> float:
        return self.training + self.measuring


def estimate_times(
    cells: Sequence[Cell], root: Path, device: str = "auto", stack: bool = False
) -> dict[str, TimeEstimate]:
    """Estimate the time of every cell, by key, for one worker with one thread.

    With `stack`, the seeds of one configuration share their steps, and each cell has its share of
    the time. Images are loaded to be counted where their number is not known.
    """
    where = choose_device(device)
    due = {
        cell.key: cell.training
        for cell in cells
        if cell.training and not is_trained(cell.training.key, root)
    }
    networks = {
        key: network_key(training, _counts(training.images)[0]) for key, training in due.items()
    }
    speeds, refused = _speeds(due, networks, root, where)
    known = measuring_times(root)
    estimates = {}
    for cell in cells:
        results = [
            (str(item.facts["model"]), name)
            for item in cell.items
            for name in missing_results(item, root)
        ]
        costs = {each: known.get(each, known.get(("", each[1]))) for each in results}
        unknown = dict.fromkeys(name for (_, name), cost in costs.items() if cost is None)
        network = networks.get(cell.key, "")
        speed = speeds.get(network)
        seconds = 0.0
        if speed:
            seeds = _stacked(due[cell.key], list(due.values())) if stack else 1
            seconds = training_time(due[cell.key], speed, seeds) / seeds
        measuring = sum(costs[each] or 0.0 for each in results)
        why = refused.get(network, "")
        estimates[cell.key] = TimeEstimate(seconds, measuring, tuple(unknown), speed, why)
    return estimates


def _speeds(
    due: Mapping[str, Training], networks: Mapping[str, str], root: Path, device: torch.device
) -> tuple[dict[str, Speed], dict[str, str]]:
    """The throughput of every network, and the errors of those of which no step could be made."""
    speeds, refused = finished_speeds(root, device), dict[str, str]()
    with one_thread(), progress("throughput", len(due)) as forward:
        for key, training in due.items():
            network = networks[key]
            if network not in speeds and network not in refused:
                try:
                    speeds[network] = measure_speed(training, device)
                except (VitreousError, torch.OutOfMemoryError) as error:
                    refused[network] = str(error)
            forward(1)
    return speeds, refused


def _stacked(training: Training, trainings: Sequence[Training]) -> int:
    """How many trainings share their steps with this one, which is among them."""
    if training.follows:
        return 1
    alone = replace(training, seed=0)
    return min(STACK, sum(replace(each, seed=0) == alone for each in trainings))


def training_time(training: Training, speed: Speed, seeds: int = 1) -> float:
    """Seconds of all steps and tests of so many seeds that share their steps.

    More seeds than the speed was measured with take longer in proportion; fewer take no less.
    """
    recipe, (count, tested) = training.recipe, _counts(training.images)
    steps, batch = steps_of(count, recipe)
    course = schedule(recipe, steps)
    tests = 0 if recipe.objective == "masked" else 2 + (course.epochs - 1) // recipe.test_every
    longer = max(1.0, seeds / speed.seeds)
    return speed.start + longer * (course.steps * batch + FORWARD * tests * tested) / speed.rate


def network_key(training: Training, count: int) -> str:
    """Text that trainings share whose steps take the same time."""
    recipe, taught = training.recipe.to_json(), training.teacher is not None
    return _network_key(training.model, recipe, count, training.images.image, taught)


def _network_key(
    model: str, recipe: Mapping[str, Any], count: int, image: Any, taught: bool
) -> str:
    options = {name: recipe[name] for name in COSTS}
    return json.dumps([model, min(count, recipe["batch"]), image, taught, options], sort_keys=True)


def finished_speeds(root: Path, device: torch.device) -> dict[str, Speed]:
    """The throughput of every network that was trained in this folder on such a device."""
    here = prepare.environment(device)["device"]
    speeds: dict[str, list[Speed]] = {}
    for folder in sorted((root / TRAININGS).glob("*")):
        try:
            run = Run(folder)
            epochs = [each for each in run.records() if "images_per_second" in each]
            environment = read_json(folder / "environment.json")
            if not epochs or environment["device"] != here:
                continue
            seeds = len(environment.get("stacked_seeds", [0]))
            model, data = run.identity["model"], run.identity["data"]
            name = next(model[how]["name"] for how in ("build", "load") if how in model)
            taught = run.identity["teacher"] is not None
            recipe, side = run.identity["recipe"], data["image"][0]
            network = _network_key(name, recipe, data["images"], side, taught)
        except (OSError, ValueError, KeyError, StopIteration, VitreousError):
            continue  # half deleted, or being written
        speeds.setdefault(network, []).append(replace(_recorded_speed(epochs), seeds=seeds))
    return {network: _mean_speed(each) for network, each in speeds.items()}


def _mean_speed(speeds: Sequence[Speed]) -> Speed:
    """The mean speed of those finished trainings that shared their steps with the most others."""
    most = max(each.seeds for each in speeds)
    same = [each for each in speeds if each.seeds == most]
    rate = 1 / fmean(1 / each.rate for each in same)
    return Speed(rate, fmean(each.start for each in same), finished=True, seeds=most)


def _recorded_speed(epochs: Sequence[Mapping[str, Any]]) -> Speed:
    """The speed of a training from its records. Its first epoch may include compiling."""
    first, *rest = epochs
    rate = median(each["images_per_second"] for each in rest or epochs)
    return Speed(rate, max(0.0, first["seconds"] * (1 - first["images_per_second"] / rate)))


def measure_speed(training: Training, device: torch.device) -> Speed:
    """Time a few steps after a first one; of a smaller batch where the recipe's takes too long."""
    full = min(_counts(training.images)[0], training.recipe.batch)
    step = _Steps(training, min(TRIED, full), device)
    step.seconds()
    affordable = int(BUDGET / 4 / step.seconds() * step.batch)
    if (batch := min(full, max(TRIED, affordable))) != step.batch:
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
        generator = torch.Generator().manual_seed(0)
        noise = torch.randint(256, (batch, 3, side, side), generator=generator).to(torch.uint8)
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
        """Make the next step, and return its seconds."""
        began = perf_counter()
        with torch.random.fork_rng(devices=[]):
            self.trainer.step(self.number, self.rows, 0.0)
        float(self.trainer.step.sums[0])  # waits for a GPU
        self.number += 1
        return perf_counter() - began


def _built(name: str, data: Dataset, recipe: Recipe) -> torch.nn.Module:
    return prepare.prepare_model(name, data, recipe, 0, pretrained=False)[0]


def measuring_times(root: Path) -> dict[tuple[str, str], float]:
    """Mean seconds of every result, by model and result; under the model '', of all models."""
    times: dict[tuple[str, str], list[float]] = {}
    for path in sorted((root / EXHIBITS).glob(f"*/{INDEX}")):
        try:
            index = read_exhibit(path.parent)
            model, seconds = str(index["facts"]["model"]), dict(index["seconds"])
        except (VitreousError, ValueError, KeyError, TypeError):
            continue  # half deleted, or damaged
        for name, value in seconds.items():
            for whose in (model, ""):
                times.setdefault((whose, name), []).append(float(value))
    return {key: fmean(values) for key, values in times.items()}


def makespan(cells: Sequence[Cell], seconds: Mapping[str, float], workers: int) -> float:
    """Seconds until the last cell is done, if a free worker takes the first cell that can run."""
    waiting = [cell for cell in cells if cell.key in seconds]
    busy: list[tuple[float, str]] = []
    now = 0.0
    running: set[str] = set()
    while waiting or busy:
        undone = {cell.key for cell in waiting} | running
        ready = [cell for cell in waiting if not undone & set(cell.follows)]
        for cell in ready[: workers - len(busy)]:
            heapq.heappush(busy, (now + seconds[cell.key], cell.key))
            running.add(cell.key)
            waiting.remove(cell)
        now, key = heapq.heappop(busy)
        running.remove(key)
    return now


@cache
def _counts(images: Images) -> tuple[int, int]:
    """The numbers of training and of test images."""
    train = images.size or len(_load(images.name, "train", images.image))
    test = images.test_size or len(_load(images.name, "test", images.image))
    share = (1 - images.held_out) * (1 - images.fraction if images.rest else images.fraction)
    return max(1, round(train * share)), test


def count_classes(name: str) -> int:
    """The number of classes of a data set."""
    return len(_load(name, "test", None).classes)


@lru_cache(maxsize=2)
def _load(name: str, split: str, image: int | None) -> Dataset:
    return load(name, split=split, image=image)
