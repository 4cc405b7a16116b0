"""A progress bar for what takes longer than two seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

PATIENCE = 2.0
"""Seconds before the bar appears."""


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items just finished.

    After two seconds a terminal shows a bar with the time that is left, even while the first item
    takes longer than that; anywhere else nothing is shown.
    """
    # Imported here because rich.progress would slow down the start of every command.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(what, total=total)
    patience = Timer(max(PATIENCE, 0), bar.start)
    patience.daemon = True  # an interrupted program does not wait for it
    if console.is_terminal:
        patience.start()
    try:
        yield lambda count: bar.advance(task, count)
    finally:
        patience.cancel()
        if patience.is_alive():
            patience.join()  # it may be showing the bar at this moment
        if bar.live.is_started:  # older versions of rich print an empty line otherwise
            bar.stop()
