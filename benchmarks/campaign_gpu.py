"""One GPU for a given time: when a campaign's training ends, and how processes share the GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from vitreous.errors import VitreousError
from vitreous.storage.run_folder import Run
from vitreous.studies.measuring import TRAININGS
from vitreous.studies.plan import Cell
from vitreous.training.optim import schedule
from vitreous.training.step import steps_of

RESERVE = 150.0
"""Seconds that are kept for measuring after training: nobody measures while training is late."""
AFTER = 60.0
"""Seconds for measuring where training itself ends too late."""
STILL = 180.0
"""Seconds without a new epoch after which a training is taken to have failed."""
COMPILING = 70.0
"""Seconds before the first step."""
RATE = 44_000
"""Images a second of small transformers, three stacked or several side by side, whole steps."""
FULL = 50_000
"""Images of CIFAR-10."""


def end_of(cells: Sequence[Cell], root: Path, deadline: float) -> float:
    """When measuring ends: at the deadline, or a little after training that ended too late."""
    ends = [root / TRAININGS / cell.key / "weights" / "final.safetensors" for cell in cells]
    times = [path.stat().st_mtime for path in ends if path.is_file()]
    return max([deadline, *(time + AFTER for time in times)])


def time_to_train(cells: Sequence[Cell], root: Path) -> float:
    """Seconds until all of these are trained, side by side or one after the other."""
    images = 0.0
    for cell in cells:
        assert cell.training is not None
        count = round(FULL * cell.training.images.fraction)
        steps, batch = steps_of(count, cell.training.recipe)
        done = 0
        with suppress(VitreousError, OSError, IndexError):
            done = Run(root / TRAININGS / cell.key).records()[-1]["step"]
        images += (schedule(cell.training.recipe, steps).steps - done) * batch
    return COMPILING + images / RATE


def late(cells: Sequence[Cell], root: Path, deadline: float) -> bool:
    """Whether training, at the rate of its last epochs, leaves too little time for the rest."""
    left = remaining(cells, root)
    return left is not None and time.time() + left > deadline - RESERVE


def training_progress(cells: Sequence[Cell], root: Path) -> list[str]:
    """Epoch and accuracy of every training that has begun."""
    words = []
    for cell in cells:
        try:
            records = Run(root / TRAININGS / cell.key).records()
        except (VitreousError, OSError):
            continue
        if records:
            errors = [each["test_error"] for each in records if "test_error" in each]
            words.append(f"epoch {records[-1]['epoch']} {1 - errors[-1]:.2%}")
    return words


def remaining(cells: Sequence[Cell], root: Path) -> float | None:
    """Seconds that training still takes, at the rate of its last epochs; None before the third."""
    longest = None
    for cell in cells:
        assert cell.training is not None
        run = Run(root / TRAININGS / cell.key)
        try:
            if time.time() - (run.folder / "metrics.jsonl").stat().st_mtime > STILL:
                continue
            records = run.records()
            count = int(run.identity["data"]["images"])
        except (VitreousError, OSError, ValueError):
            continue
        if len(records) < 4:
            continue
        steps, _ = steps_of(count, cell.training.recipe)
        epochs = schedule(cell.training.recipe, steps).epochs - records[-1]["epoch"]
        rate = sum(each["seconds"] for each in records[-3:]) / 3
        longest = max(
            longest or 0.0, 1.05 * rate * epochs
        )  # tests and records are not in `seconds`
    return longest


def mps(home: Path) -> dict[str, str]:
    """Environment in which processes share the GPU; empty where that does not work."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        return {}
    pipes = {
        "CUDA_MPS_PIPE_DIRECTORY": str(home / "mps"),
        "CUDA_MPS_LOG_DIRECTORY": str(home / "mps"),
    }
    (home / "mps").mkdir(parents=True, exist_ok=True)
    there = {**os.environ, **pipes}
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=there, check=False)
    tried = subprocess.run(
        [sys.executable, "-c", "import torch; torch.ones(8, device='cuda').sum().item()"],
        env=there,
        check=False,
        timeout=90,
    )
    if tried.returncode == 0:
        return pipes
    subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=there, check=False, timeout=30)
    return {}
