"""A progress bar for what takes longer than two seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

PATIENCE = 2.0
"""Seconds before the bar appears."""


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items just finished; only a terminal shows the
    bar."""
    # Imported here because rich.progress would slow down the start of every command.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    text, count, left = (
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    off = not console.is_terminal
    bar = Progress(text, BarColumn(), count, left, console=console, transient=True, disable=off)
    task = bar.add_task(what, total=total)
    begun = monotonic()

    def advance(count: int) -> None:
        bar.advance(task, count)
        if not bar.live.is_started and monotonic() - begun > PATIENCE:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()
