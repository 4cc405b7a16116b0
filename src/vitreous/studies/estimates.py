"""How long a study takes, from measured throughput.

The time of a training is its number of images divided by the throughput. The throughput is taken
from finished trainings of the same network in the study's folder; if there is none, it is measured
in a few steps on noise. The time of a measurement is taken from earlier ones in that folder; if
there is none, it is left out.
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
from vitreous.random_numbers import kept_random_state
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

STEP_OPTIONS = (
    "optimiser", "clip", "ema", "sam", "objective", "masked_target", "freeze", "precision", "model",
    "augment",
)  # fmt: skip
"""Options of a recipe, besides its batch size, on which the time of a step depends."""
TEST_COST = 1 / 3
"""Time of testing an image relative to training on it: one forward pass, against a forward pass and
a backward pass of twice the size."""
FIRST_BATCH = 16
"""Batch size of the first steps, from whose time the batch size of the measurement is chosen."""
BUDGET = 0.8
"""Seconds for measuring the throughput of one network."""
MAX_STEPS = 5
"""Maximum number of timed steps."""


@dataclass(frozen=True)
class Speed:
    """The throughput of training one network."""

    rate: float
    """Images a second."""
    start: float = 0.0
    """Additional seconds of the first epoch, for example to compile."""
    finished: bool = False
    """Whether it was measured on finished trainings, and not in a few steps."""
    seeds: int = 1
    """Trainings that shared a step; `rate` is that of one of them."""


@dataclass(frozen=True)
class TimeEstimate:
    """The seconds that one cell takes."""

    training: float = 0.0
    measuring: float = 0.0
    unknown: tuple[str, ...] = ()
    """Results whose time is not known, and not included."""
    speed: Speed | None = None
    why: str = ""
    """Why its throughput could not be measured; empty if it could."""

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
    speeds, errors = _speeds(due, networks, root, where)
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
            seeds = _stack_size(due[cell.key], list(due.values())) if stack else 1
            seconds = training_time(due[cell.key], speed, seeds) / seeds
        measuring = sum(costs[each] or 0.0 for each in results)
        why = errors.get(network, "")
        estimates[cell.key] = TimeEstimate(seconds, measuring, tuple(unknown), speed, why)
    return estimates


def _speeds(
    due: Mapping[str, Training], networks: Mapping[str, str], root: Path, device: torch.device
) -> tuple[dict[str, Speed], dict[str, str]]:
    """The throughput of every network, and the error for each where it cannot be measured."""
    speeds, errors = finished_speeds(root, device), dict[str, str]()
    with one_thread(), progress("throughput", len(due)) as advance:
        for key, training in due.items():
            network = networks[key]
            if network not in speeds and network not in errors:
                try:
                    speeds[network] = measure_speed(training, device)
                except (VitreousError, torch.OutOfMemoryError) as error:
                    errors[network] = str(error)
            advance(1)
    return speeds, errors


def _stack_size(training: Training, trainings: Sequence[Training]) -> int:
    """Number of trainings that share their steps with this one, itself included."""
    if training.follows:
        return 1
    alone = replace(training, seed=0)
    return min(STACK, sum(replace(each, seed=0) == alone for each in trainings))


def training_time(training: Training, speed: Speed, seeds: int = 1) -> float:
    """Seconds of all steps and tests of `seeds` trainings that share their steps.

    More seeds than the speed was measured with take proportionally longer; fewer take as long.
    """
    recipe, (count, tested) = training.recipe, _counts(training.images)
    steps, batch = steps_of(count, recipe)
    course = schedule(recipe, steps)
    tests = 0 if recipe.objective == "masked" else 2 + (course.epochs - 1) // recipe.test_every
    longer = max(1.0, seeds / speed.seeds)
    return speed.start + longer * (course.steps * batch + TEST_COST * tests * tested) / speed.rate


def network_key(training: Training, count: int) -> str:
    """A text that is equal for trainings whose steps take the same time."""
    recipe, taught = training.recipe.to_json(), training.teacher is not None
    return _network_key(training.model, recipe, count, training.images.image, taught)


def _network_key(
    model: str, recipe: Mapping[str, Any], count: int, image: Any, taught: bool
) -> str:
    options = {name: recipe[name] for name in STEP_OPTIONS}
    return json.dumps([model, min(count, recipe["batch"]), image, taught, options], sort_keys=True)


def finished_speeds(root: Path, device: torch.device) -> dict[str, Speed]:
    """The throughput of every network that was trained in this folder on such a device."""
    device_name = prepare.environment(device)["device"]
    speeds: dict[str, list[Speed]] = {}
    for folder in sorted((root / TRAININGS).glob("*")):
        try:
            run = Run(folder)
            epochs = [each for each in run.records() if "images_per_second" in each]
            environment = read_json(folder / "environment.json")
            if not epochs or environment["device"] != device_name:
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
    """The mean speed of the finished trainings that shared their steps with most other seeds."""
    seeds = max(each.seeds for each in speeds)
    stacked = [each for each in speeds if each.seeds == seeds]
    rate = 1 / fmean(1 / each.rate for each in stacked)
    return Speed(rate, fmean(each.start for each in stacked), finished=True, seeds=seeds)


def _recorded_speed(epochs: Sequence[Mapping[str, Any]]) -> Speed:
    """The speed of a training from its records. Its first epoch may include compiling."""
    first, *rest = epochs
    rate = median(each["images_per_second"] for each in rest or epochs)
    return Speed(rate, max(0.0, first["seconds"] * (1 - first["images_per_second"] / rate)))


def measure_speed(training: Training, device: torch.device) -> Speed:
    """Time a few steps after a warm-up step, with a smaller batch if the recipe's is too slow."""
    full = min(_counts(training.images)[0], training.recipe.batch)
    step = _Steps(training, min(FIRST_BATCH, full), device)
    step.seconds()
    affordable = int(BUDGET / 4 / step.seconds() * step.batch)
    if (batch := min(full, max(FIRST_BATCH, affordable))) != step.batch:
        step = _Steps(training, batch, device)
        step.seconds()
    began, seconds = perf_counter(), [step.seconds()]
    while len(seconds) < MAX_STEPS and perf_counter() - began < BUDGET / 2:
        seconds.append(step.seconds())
    return Speed(step.batch / median(seconds))


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
            model = _build_model(training.model, data, recipe)
            taught = training.teacher
            teacher = (
                _build_model(taught.model, data, taught.recipe.but(head="keep")) if taught else None
            )
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


def _build_model(name: str, data: Dataset, recipe: Recipe) -> torch.nn.Module:
    with kept_random_state():
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
            for key_model in (model, ""):
                times.setdefault((key_model, name), []).append(float(value))
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
    """The number of classes of a dataset."""
    return len(_load(name, "test", None).classes)


@lru_cache(maxsize=2)
def _load(name: str, split: str, image: int | None) -> Dataset:
    return load(name, split=split, image=image)
