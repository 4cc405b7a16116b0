"""A progress bar for whatever takes longer than two seconds, and nothing for what does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

PATIENCE = 2.0
"""Seconds before the bar appears."""


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the number of things just done. Only a terminal sees the bar."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(what, total=total)
    begun = monotonic()

    def forward(count: int) -> None:
        bar.advance(task, count)
        if not bar.live.is_started and monotonic() - begun > PATIENCE:
            bar.start()

    try:
        yield forward
    finally:
        bar.stop()
