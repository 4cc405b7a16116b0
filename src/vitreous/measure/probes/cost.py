"""Parameters, floating-point operations and images per second.

    parameters    number of all parameters
    GFLOPs        for one image, a multiply-add counts as two; torch counts products and
                  convolutions, including fused attention
    images/s      of the original model, without probes, on the device of the inspection

Time is measured once, with the first images: of several passes of a small batch, the value is the
median, and the interval ranges from the slowest to the fastest.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitreous.errors import VitreousError
from vitreous.measure.probe import Batch, Probe, Setting, Sums, sum_key
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import Column, Result, View
from vitreous.results.comparing import bold, name_tied, records
from vitreous.results.view import Axis
from vitreous.results.words import format_number, join_words
from vitreous.specimen.opening import unwrapped

__all__ = ["Cost"]

WIDE = 4
"""An axis is logarithmic if the ratio of its largest to its smallest number is above this."""
AXES: dict[Axis, str] = {"x": "gflops", "y": "value"}


def flops(model: nn.Module, images: Tensor) -> int:
    """Floating-point operations of a forward pass.

    Attention runs as plain products, because torch does not count some fused kernels (on a CPU
    before torch 2.12).
    """
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(images)
    return int(counter.get_total_flops())


def seconds(model: nn.Module, images: Tensor, repeats: int) -> list[float]:
    """Wall-clock time of each of `repeats` forward passes."""

    def wait() -> None:
        if images.device.type == "cuda":
            torch.cuda.synchronize(images.device)

    times = []
    wait()  # for earlier work on the device
    for _ in range(repeats):
        start = perf_counter()
        model(images)
        wait()
        times.append(perf_counter() - start)
    return times


@dataclass
class Cost(Probe):
    """Parameters, operations and speed."""

    name = "cost"
    ids = ("A4.33",)
    section = Section(
        "overview",
        "What do they cost?",
        "Parameters, floating-point operations per image, and images per second on the machine "
        "that made this page.",
        "ConViT's gated attention runs at 0.51 to 0.84 of the speed of DeiT's (d'Ascoli et al. "
        "2021, Table 1).",
        order=2,
    )
    fleeting = ("value", "low", "high", "batch")
    images: int | None = None
    """Images in a timed batch (default: 8 on a CPU, 64 on a GPU)."""
    repeats: int = 3
    """Number of timed passes."""

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        for name, count in {"images": self.images, "repeats": self.repeats}.items():
            if count is not None and count < 1:
                raise VitreousError(f"cost was asked with {name} = {count}; it takes at least one.")
        self._copies: dict[str, nn.Module] = {}

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        if int(batch.rows[0]) != 0:  # only with the first batch, so once over all processes
            return {}
        count = self.images or (64 if subject.device.type == "cuda" else 8)
        images = batch.prepared(subject)[:count]
        model = self._original(subject)
        if model is not unwrapped(model):
            model(images)  # `torch.compile` compiles in the first pass
        times = seconds(model, images, self.repeats)
        return {
            sum_key(subject, what="seconds"): torch.tensor(times, dtype=torch.float64),
            sum_key(subject, what="images"): torch.tensor(float(len(images))),
        }

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        columns = (
            Column("model", "category", "The model."),
            Column("parameters", "quantity", "Number of parameters."),
            Column(
                "gflops",
                "quantity",
                "Billions of floating-point operations per image; a multiply-add is two.",
                label="GFLOPs",
            ),
            Column("batch", "quantity", "Images in a timed batch."),
            Column("device", "category", "Device, and number of threads on a CPU."),
            Column(
                "value",
                "quantity",
                "Images per second: median over the timed passes.",
                label="images/s",
            ),
            Column(
                "low",
                "quantity",
                "Images per second in the slowest pass.",
                label="images/s, slowest",
            ),
            Column(
                "high",
                "quantity",
                "Images per second in the fastest pass.",
                label="images/s, fastest",
            ),
        )
        rows = [_row(subject, self._original(subject), sums) for subject in subjects]
        self._copies.clear()
        table = pd.DataFrame(rows, columns=[column.name for column in columns])
        wide = tuple(
            axis for axis, name in AXES.items() if table[name].max() > WIDE * table[name].min()
        )
        return Result(self.name, table, columns, (replace(VIEWS[0], log=wide), *VIEWS[1:]))

    def _original(self, subject: Subject) -> nn.Module:
        """A copy of the original model; the graph of the specimen may compute some things twice."""
        if subject.model is None:
            return subject.specimen
        if subject.name not in self._copies:
            self._copies[subject.name] = copy.deepcopy(subject.model).eval().to(subject.device)
        return self._copies[subject.name]

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = records(result.table)
        fast = max(rows, key=lambda row: row["value"])
        speed = f"{format_number(fast['value'])} images per second"
        passes = f"{format_number(fast['low'])} to {format_number(fast['high'])} in single passes"
        operations = format_number(min(row["gflops"] for row in rows))
        light = [bold(row["model"]) for row in rows if format_number(row["gflops"]) == operations]
        if len(rows) == 1:
            yield (
                f"{light[0]} needs {operations} GFLOPs per image; here it ran at {speed} "
                f"({passes})."
            )
            return
        needs = "needs" if len(light) == 1 else "need"
        if len(light) < len(rows):
            fewest = f"{join_words(light)} {needs} the fewest operations, {operations}"
        else:
            fewest = f"All models need {operations}"
        others = [row for row in rows if row is not fast and row["high"] >= fast["low"]]
        others.sort(key=lambda row: -row["value"])
        if len(others) + 1 == len(rows):
            slow = format_number(min(row["value"] for row in rows))
            yield (
                f"{fewest} GFLOPs per image; here they ran at {slow} to {speed}, and their single "
                "passes overlap."
            )
            return
        if others:
            names = name_tied([bold(row["model"]) for row in (fast, *others)])
            slow = format_number(min(row["value"] for row in others))
            speeds = speed if speed.startswith(f"{slow} ") else f"{slow} to {speed}"
            passes = f"{speeds}; their single passes overlap"
            yield f"{fewest} GFLOPs per image; {names} were the fastest here, {passes}."
            return
        yield (
            f"{fewest} GFLOPs per image; {bold(fast['model'])} was the fastest here, {speed} "
            f"({passes})."
        )


def _row(subject: Subject, model: nn.Module, sums: Mapping[str, Tensor]) -> dict[str, Any]:
    blank = subject.prepare(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    count = float(sums.get(sum_key(subject, what="images"), torch.tensor(torch.nan)))
    speed = count / sums.get(sum_key(subject, what="seconds"), torch.tensor([torch.nan])).numpy()
    threads = f"{torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}"
    return {
        "model": subject.name,
        "parameters": subject.specimen.anatomy.parameters,
        "gflops": flops(unwrapped(model), blank) / 1e9,
        "batch": count,
        "device": f"cpu, {threads}"
        if subject.device.type == "cpu"
        else torch.cuda.get_device_name(subject.device),
        "value": float(np.median(speed)),
        "low": float(speed.min()),
        "high": float(speed.max()),
    }


VIEWS = (
    View(
        "scatter",
        x="gflops",
        y="value",
        colour="model",
        low="low",
        high="high",
        title="Speed and operations",
        how_to_read="Each point is a model, its whisker from the slowest to the fastest pass. Of "
        "two models with as many operations the lower one makes worse use of the hardware.",
    ),
    View(
        "bar",
        x="model",
        y="parameters",
        colour="model",
        title="Parameters",
        how_to_read="Parameters determine the size of a model on disk and in memory. They say "
        "little about its speed.",
    ),
    View(
        "bar",
        x="model",
        y="value",
        colour="model",
        low="low",
        high="high",
        title="Images per second",
        how_to_read="Throughput of the bare model. The whiskers are the slowest and the "
        "fastest pass.",
    ),
)
