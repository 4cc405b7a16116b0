"""Who does the cells: this process, or several that share the study's folder.

Workers need no master. Each goes through the same list, takes the cells whose lock it gets, and waits for those of the
others; the folder is all they share. So a worker that dies costs the cell it was at, and a worker more may join at any
time, by the same command in another terminal.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import torch

from vitreous.studies.plan import Cell
from vitreous.studies.running import Report, Told, finished, run
from vitreous.studies.scales import Scale


def serial(cells: Sequence[Cell], root: Path, scale: Scale, device: str, told: Told) -> Report:
    """One after the other, here."""
    return run(cells, root, scale, device, told)


def processes(cells: Sequence[Cell], root: Path, scale: Scale, device: str, told: Told, workers: int) -> Report:
    """So many workers beside this one, each with a GPU of its own where there are GPUs; this one tells how it goes."""
    context = multiprocessing.get_context("spawn")
    helpers = [
        context.Process(target=_work, args=(list(cells), root, scale, _device(device, number)), daemon=True)
        for number in range(1, workers)
    ]
    for helper in helpers:
        helper.start()
    try:
        report = run(cells, root, scale, _device(device, 0), told)
    finally:
        for helper in helpers:
            helper.terminate()
            helper.join()
    return report


def _device(device: str, number: int) -> str:
    count = torch.cuda.device_count()
    return f"cuda:{number % count}" if device in ("auto", "cuda") and count else device


def _work(cells: Sequence[Cell], root: Path, scale: Scale, device: str) -> None:
    torch.set_num_threads(1)
    run(cells, root, scale, device)


def left(cells: Sequence[Cell], root: Path) -> list[Cell]:
    """What is still to be done."""
    return [cell for cell in cells if not finished(cell, root)]
