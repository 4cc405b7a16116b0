"""How the races are run: the same step, one contender at a time, medians, peak memory, a table and
a dated file.

Needs torch and numpy only, so that a race runs wherever the models do.
"""

from __future__ import annotations

import gc
import json
import platform
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Step = Callable[[], None]


@dataclass
class Race:
    """Measurements of contenders on cases, kept as rows and written after each one."""

    name: str
    device: str
    seconds: float
    budget: float
    folder: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def run(
        self, case: str, mode: str, contender: str, images: int, make: Callable[[], Step]
    ) -> None:
        """Measure one contender, unless the time is up; running out of memory is a result too."""
        row: dict[str, Any] = {"case": case, "mode": mode, "contender": contender, "batch": images}
        spent = time.perf_counter() - self.began
        if spent > self.budget:
            row["skipped"] = f"after {spent:.0f} s"
        else:
            try:
                row |= measure(make, self.device, images, self.seconds)
                if self.device == "cpu" and mode == "compiled":
                    del row["MiB"]  # the hooks that count it send torch back to eager
            except torch.OutOfMemoryError:
                row["skipped"] = "out of memory"
        self.rows.append(row)
        said = (
            row.get("skipped")
            or f"{row['per_second']:.1f} images/s, {row.get('MiB', 0):.0f} MiB, "
            f"{row['ready_s']:.0f} s to start"
        )
        print(f"{case}, {mode}, {contender}: {said}", flush=True)
        free()
        self.write()

    def table(self, ours: str, theirs: str) -> str:
        """Ours beside theirs, with ratios: speed above one and memory below one are good."""
        found = {(row["case"], row["mode"], row["contender"]): row for row in self.rows}
        speeds, sizes = ([f"{who} {unit}" for who in (ours, theirs)] for unit in ("img/s", "MiB"))
        lines = [["case", "mode", *speeds, "speed", *sizes, "memory"]]
        for case, mode in dict.fromkeys(
            (row["case"], row["mode"]) for row in self.rows if row["contender"] == ours
        ):
            a, b = found[case, mode, ours], found.get((case, mode, theirs), {})
            lines.append([case, mode])
            for key in ("per_second", "MiB"):
                lines[-1] += [f"{row[key]:.1f}" if key in row else "-" for row in (a, b)]
                lines[-1].append(f"{a[key] / b[key]:.2f}x" if key in a and key in b else "-")
        widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
        return "\n".join(
            "".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in lines
        )

    def write(self) -> Path:
        """The rows and what they were measured on, as `<name>-<device>-<date>.json`."""
        cuda = self.device == "cuda"
        about: dict[str, Any] = {
            "race": self.name,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": torch.cuda.get_device_name()
            if cuda
            else platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "clock": clock_for(self.device).__name__,
            "memory": "peak allocated" if cuda else "saved for backward",
            "rows": self.rows,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}-{self.device}-{about['date'][:10]}.json"
        path.write_text(json.dumps(about, indent=1) + "\n")
        return path


def measure(make: Callable[[], Step], device: str, images: int, seconds: float) -> dict[str, Any]:
    """Median time of a step over at least `seconds` and three steps, and the memory it takes."""
    clock = clock_for(device)
    began = time.perf_counter()
    step = make()
    for _ in range(3 if device == "cuda" else 1):
        step()
    wait(device)
    ready = time.perf_counter()
    times: list[float] = []
    while len(times) < 3 or time.perf_counter() - ready < seconds:
        start = clock()
        step()
        wait(device)
        times.append(clock() - start)
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75]).tolist()
    return {
        "per_second": images / middle,
        "ms": 1e3 * middle,
        "ms_quartiles": [1e3 * low, 1e3 * high],
        "MiB": memory(step, device) / 2**20,
        "steps": len(times),
        "ready_s": ready - began,
    }


def clock_for(device: str) -> Callable[[], float]:
    """Time on the wall; with a single thread on a CPU its own time, in which the machine's other
    work does not show."""
    return (
        time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    )


def memory(step: Step, device: str) -> float:
    """Bytes at the peak on CUDA; elsewhere those that autograd keeps between forward and
    backward."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        step()
        wait(device)
        return float(torch.cuda.max_memory_allocated())
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step()
    return float(sum(kept.values()))


def training_step(model: nn.Module, inputs: Tensor, *, low_precision: bool, compiled: bool) -> Step:
    """Forward and backward of a stand-in loss; no optimiser, which would be the same for both."""
    kind = inputs.device.type
    if compiled:
        model.compile(dynamic=False)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        with torch.autocast(kind, torch.bfloat16) if low_precision else nullcontext():
            loss = model(inputs).float().square().mean()
        loss.backward()

    return step


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def free() -> None:
    """Forget the last contender: compiled code and cached memory would count against the next
    one."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
