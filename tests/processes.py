"""Processes of their own, forked from a server that has imported torch, timm and the package.

A new Python takes four seconds to import them; a fork of the server has them. Autograd has never
run in the server: torch refuses gradients in a fork of a process where it has used threads.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import vitreous

PRELOADED = ["vitreous.studies.executors", "pytest", "training.toy", "measure.looks"]
PATIENCE = 240.0
"""Seconds after which a test gives up; machines may be busy."""


def ready() -> None:
    """Let the server begin to import, without waiting for it."""
    paths = [str(Path(vitreous.__file__).parents[1]), str(Path(__file__).parent)]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # the server does not get this sys.path
    try:
        forkserver.set_forkserver_preload(PRELOADED)
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def started(work: Callable[..., Any], *given: Any) -> BaseProcess:
    """Do it in a process of its own, with this one's environment of now."""
    ready()
    process = multiprocessing.get_context("forkserver").Process(
        target=_here, args=(dict(os.environ), work, *given), daemon=True
    )
    process.start()
    return process


def _here(environment: Mapping[str, str], work: Callable[..., Any], *given: Any) -> None:
    os.environ.update(environment)
    work(*given)


def ended(*processes: BaseProcess) -> list[int | None]:
    """Exit codes, minus the signal of those that were killed."""
    for process in processes:
        process.join(PATIENCE)
    return [process.exitcode for process in processes]


def run_two(work: Callable[..., Any], *given: Any) -> None:
    """Do it in two processes that know of each other as torchrun would tell them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    each = [{**place, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"} for rank in ("0", "1")]
    assert ended(*(started(_as_rank, told, work, *given) for told in each)) == [0, 0]


def _as_rank(told: Mapping[str, str], work: Callable[..., Any], *given: Any) -> None:
    import torch

    os.environ.update(told)
    torch.set_num_threads(1)
    work(*given)
