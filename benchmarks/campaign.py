"""The reproduction on real images, in parts that each fit one GPU for half an hour.

    python benchmarks/campaign.py run --part 1 --minutes 25 --data data/cifar10 --out campaign
    python benchmarks/campaign.py run --slice 2 --part 1 --part 2:1 --part 2:2 --at-once 2 \\
        --minutes 25 --data data/cifar10
    python benchmarks/campaign.py pack --part 1 --data data/cifar10 --out campaign --to packed

`run` trains the seeds of one network in one step and measures what the claims of its slice read.
`2:1,2` is part 2 with seeds 1 and 2 only. Parts wait in a queue: `--at-once` of them train side by
side, a process each (on an H200 three networks at once have 1.5 times the throughput of one, or as
three stacked ViTs have), and when one ends or fails, the next begins, unless too little time is
left for it. One process measures checkpoints while others are still to come, as long as training
ends in time; the others begin when training is over. What matters most is measured first, and
nothing is begun that would end after `--minutes`. It ends with `pack`: evidence without weights,
and the final weights of every seed in half precision. Interrupted? Run the same command again: it
resumes.

`--data` is how the names of the numpy files begin, as in `npz:data/cifar10`. The name that results
carry is without the folder, so that parts from different machines can be put together.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch
from campaign_gpu import end_of, late, mps, remaining, time_to_train, training_progress
from campaign_slices import MORE, SLICES, cells_of, network_of
from campaign_toy import toy
from safetensors.torch import save

from vitreous.claims.facts import describe_facts
from vitreous.storage.run_folder import Run
from vitreous.studies import run_cells
from vitreous.studies.cell_records import try_lock
from vitreous.studies.estimates import measuring_times
from vitreous.studies.measuring import (
    TRAININGS,
    evidence_folder,
    load_split,
    measure_group,
    measured_together,
    missing_results,
)
from vitreous.studies.packing import pack_evidence
from vitreous.studies.plan import Cell, PlannedItem
from vitreous.studies.run_cells import Limits, is_trained, reproducible
from vitreous.studies.run_study import check_settings
from vitreous.studies.scales import Scale, scale_named
from vitreous.training import loop

Job = tuple[PlannedItem, tuple[str, ...]]
RANKS = (
    ("final", "training"),
    ("final", "probes"),
    ("final", "hessian"),
    ("warmup", "hessian"),
    ("final", "linear_probe"),
    ("final", "lesion"),
    ("final", "erf"),
    ("final", "landscape"),
    ("final", "corruption"),
    ("final", "adversarial"),
    ("final", "occlusion"),
    ("initial", "probes"),
    ("clean", "hessian"),
    ("66", "hessian"),
    ("33", "hessian"),
    ("initial", "linear_probe"),
    ("initial", "lesion"),
    ("initial", "erf"),
    ("initial", "occlusion"),
)
"""Checkpoint and measurement, what matters most first. Weights at the start can be made again from
the seed, so what is measured on them comes last where nothing else is to be had."""
SECONDS = {"hessian": 60.0, "probes": 30.0, "training": 1.0}
"""How long a measurement takes before one has been measured; 30 s for the others."""
HALVES = 15 << 20
"""Bytes of one file of weights."""
ZOO = ("vit", "vit pool=gap", "resnet", "convit", "deit")
"""Networks whose final weights are kept."""
TRAINING = "training"
"""A file that is there as long as something trains, or waits to."""


# --- training and measuring ---


def train(cells: Sequence[Cell], root: Path, scale: Scale, device: str) -> None:
    """Train all seeds of a network in one step, and nothing else."""
    loop.SAVE_EVERY = 120.0  # a state of 64 MB a seed; a part that is killed loses two minutes
    only = [replace(cell, items=()) for cell in cells]
    report = run_cells.run_cells(only, root, scale, device, limits=Limits(stack=True))
    for key, why in report.failed.items():
        print(f"training {key} failed: {why}", flush=True)


def pending_jobs(cells: Sequence[Cell], root: Path, scale: Scale) -> list[tuple[int, Job]]:
    """What is still to be measured, what matters most first, all seeds before the next kind."""
    found: list[tuple[int, Job]] = []
    for cell in cells:
        for item in cell.items:
            due = measured_together(missing_results(item, root), scale)
            found += [(_rank(item, names), (item, names)) for names in due]
    return sorted(found, key=lambda each: (each[0], each[1][0].facts["seed"]))


def _rank(item: PlannedItem, names: Sequence[str]) -> int:
    checkpoint = str(item.facts.get("measured") or item.checkpoint)
    kind = (checkpoint, _kind(names))
    return RANKS.index(kind) if kind in RANKS else len(RANKS)


def _kind(names: Sequence[str]) -> str:
    if len(names) > 1 or names[0] in ("accuracy", "calibration", *MORE):
        return "probes"
    return names[0]


def ready(item: PlannedItem, root: Path, names: Sequence[str]) -> bool:
    """Whether its checkpoint is there; the record of a training is complete at its end."""
    assert item.training is not None
    run = Run(root / TRAININGS / item.training.key)
    if "training" in names:
        return is_trained(item.training.key, root)
    return (run.folder / "weights" / f"{item.checkpoint}.safetensors").is_file()


def measure(
    cells: Sequence[Cell], root: Path, scale: Scale, device: str, deadline: float, early: bool
) -> None:
    """Measure what is there and nobody else is at, until all is done or time is up."""
    failed: set[tuple[Path, tuple[str, ...]]] = set()
    planned = deadline
    for given in {cell.training.images for cell in cells if cell.training}:
        load_split(given, "train"), load_split(given, "test")  # so that nobody waits for them later
    if device != "cpu" and torch.cuda.is_available():
        torch.ones(8, device="cuda").sum().item()
    while True:
        training = (root.parent / TRAINING).exists()
        deadline = planned if training else end_of(cells, root, planned)
        todo = [each for _, each in pending_jobs(cells, root, scale)]
        todo = [each for each in todo if (evidence_folder(each[0], root), each[1]) not in failed]
        possible = [each for each in todo if training or ready(each[0], root, each[1])]
        if not possible or (time.time() > deadline and not training):
            return
        if training and (not early or late(cells, root, deadline)):
            time.sleep(2)
            continue
        known = measuring_times(root)
        for item, names in todo:
            if not ready(item, root, names) or not _in_time(item, names, known, deadline):
                continue
            home = evidence_folder(item, root)
            with try_lock(root / "locks" / f"{home.name}-{names[0]}.lock") as mine:
                if not mine or not set(names) & set(missing_results(item, root)):
                    continue
                began = time.time()
                try:
                    with reproducible(0):
                        measure_group(item, names, root, scale, device)
                    print(
                        f"{describe_facts(item.facts)}: {', '.join(names)}, "
                        f"{time.time() - began:.0f} s"
                    )
                except torch.AcceleratorError:
                    raise
                except Exception as error:
                    failed.add((home, names))
                    print(
                        f"{describe_facts(item.facts)}: {names} FAILED: {type(error).__name__}: "
                        f"{error}"
                    )
                sys.stdout.flush()
                break
        else:
            if not training and all(
                not _in_time(item, names, known, deadline) for item, names in todo
            ):
                return
            time.sleep(1)


def _in_time(
    item: PlannedItem, names: Sequence[str], known: dict[tuple[str, str], float], deadline: float
) -> bool:
    model = str(item.facts["model"])
    guess = SECONDS.get(_kind(names), 30.0) / len(names)
    seconds = sum(known.get((model, name), known.get(("", name), guess)) for name in names)
    return time.time() + seconds <= deadline


# --- what comes back ---


def pack(cells: Sequence[Cell], root: Path, to: Path) -> None:
    """Evidence in archives, and final weights in half precision, each file below 16 MB."""
    to.mkdir(parents=True, exist_ok=True)
    packed = pack_evidence(root, to / "evidence.zip")
    print(f"{packed.results} results, {packed.trainings} trainings: {_sizes(packed.archives)}")
    for cell in cells:
        assert cell.training is not None
        name = network_of(cell.items[0])
        if name not in ZOO or not is_trained(cell.key, root):
            continue
        tensors, notes = Run(root / TRAININGS / cell.key).read_weights()
        half = {
            key: value.to(torch.bfloat16).contiguous() if value.is_floating_point() else value
            for key, value in tensors.items()
        }
        about = {"training": cell.key, "model": name, "seed": str(cell.training.seed)}
        content = save(half, about | {"step": str(notes["step"])})
        stem = f"{name.replace(' ', '-').replace('=', '-')}-seed-{cell.training.seed}.safetensors"
        parts = range(0, len(content), HALVES)
        for number, begin in enumerate(parts, 1):
            suffix = "" if len(parts) == 1 else f".{number}"
            (to / f"{stem}{suffix}").write_bytes(content[begin : begin + HALVES])
    for each in missing_lines(cells, root):
        print(f"not measured: {each}")


def missing_lines(cells: Sequence[Cell], root: Path) -> Iterator[str]:
    """What is missing, model by model."""
    for cell in cells:
        for item in cell.items:
            if names := missing_results(item, root):
                yield f"{describe_facts(item.facts)}: {', '.join(names)}"


def _sizes(paths: Sequence[Path]) -> str:
    return ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in paths)


# --- several processes ---


def run(given: argparse.Namespace, parts: dict[str, list[Cell]], root: Path, scale: Scale) -> None:
    """Work off the queue of trainings, say every ten seconds how it goes, and pack at the end."""
    began = time.time()
    deadline = began + 60 * given.minutes
    cells = [cell for each in parts.values() for cell in each]
    shared = mps(given.out) if given.device != "cpu" and torch.cuda.is_available() else {}
    print(f"processes share the GPU through MPS: {bool(shared)}", flush=True)
    waiting = list(parts)
    (given.out / TRAINING).touch()
    measuring = [_start(given, shared, deadline, "--worker", n + 1) for n in range(given.workers)]
    training: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while waiting or any(each.poll() is None for each in [*training.values(), *measuring]):
            training = {part: each for part, each in training.items() if each.poll() is None}
            while waiting and len(training) < given.at_once:
                part = waiting.pop(0)
                together = [cell for each in (*training, part) for cell in parts[each]]
                if time.time() + time_to_train(together, root) < deadline:
                    training[part] = _start(given, shared, deadline, "--train", part)
                else:
                    print(f"part {part} is left out: too little time", flush=True)
            if not training:
                (given.out / TRAINING).unlink(missing_ok=True)
                if time.time() > end_of(cells, root, deadline) + 15:
                    break
            time.sleep(10 if given.device != "cpu" else 2)
            print(status(cells, root, scale, began, deadline), flush=True)
    finally:
        for each in [*training.values(), *measuring]:
            if each.poll() is None:
                each.terminate()
        for each in [*training.values(), *measuring]:
            each.wait(timeout=60)
    for failure in sorted((root / "failed").glob("*.txt")):
        print(f"{failure.stem} failed: {failure.read_text().strip()}")
    pack(cells, root, given.to or given.out / "packed")
    (given.out / "done").write_text("done\n")


def _start(
    given: argparse.Namespace, shared: dict[str, str], deadline: float, role: str, which: str | int
) -> subprocess.Popen[bytes]:
    """Start a process that trains a part, or one that measures and lets the others go first."""
    command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]]
    command[2] = "work"
    environment = {**os.environ, **shared, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if role == "--worker":
        environment["CUDA_MPS_CLIENT_PRIORITY"] = "1"
    name = f"{role.strip('-')}-{which}".replace(":", "-").replace(",", "-")
    with (given.out / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*command, role, str(which), "--deadline", str(deadline)],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=given.cwd,
        )


def status(cells: Sequence[Cell], root: Path, scale: Scale, began: float, deadline: float) -> str:
    """One line: minutes, epochs, accuracy, and how much is left."""
    words = [f"{(time.time() - began) / 60:.1f} of {(deadline - began) / 60:.1f} min"]
    words += training_progress(cells, root)
    left = remaining(cells, root)
    words.append("" if left is None else f"training ends in {left / 60:.1f} min")
    words.append(f"{len(pending_jobs(cells, root, scale))} measurements left")
    return "; ".join(filter(None, words))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "work", "pack", "list"))
    parser.add_argument("--slice", type=int, choices=SLICES, default=1)
    parser.add_argument("--part", action="append", help="number, or number:seeds (1:1,2)")
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("campaign"))
    parser.add_argument("--to", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=6, help="processes that measure")
    parser.add_argument("--at-once", type=int, default=2, help="parts that train side by side")
    parser.add_argument("--toy", action="store_true", help="a few images and epochs")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.cwd, given.out = Path.cwd(), given.out.resolve()
    given.to = given.to.resolve() if given.to else None
    given.out.mkdir(parents=True, exist_ok=True)
    os.chdir(given.data.resolve().parent)
    which = SLICES[given.slice]
    scale = toy(scale_named(which.scale)) if given.toy else scale_named(which.scale)
    name = f"npz:{given.data.name}"
    given.part = given.part or ["1"]
    parts = {part: cells_of(which, part, scale, name) for part in given.part}
    cells, root = [cell for each in parts.values() for cell in each], given.out / "study"
    check_settings(root, {"data": name, "scale": scale.name, "image": None})
    if given.what == "run":
        run(given, parts, root, scale)
    elif given.what == "pack":
        pack(cells, root, given.to or given.out / "packed")
    elif given.what == "list":
        for _, (item, names) in pending_jobs(cells, root, scale):
            print(f"{describe_facts(item.facts)}: {', '.join(names)}")
    elif given.train:
        train(parts[given.train], root, scale, given.device)
    else:
        measure(cells, root, scale, given.device, given.deadline, early=given.worker == 1)


if __name__ == "__main__":
    main()
