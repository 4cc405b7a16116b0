"""A progress bar for what takes longer than two seconds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Timer

PATIENCE = 2.0
"""Seconds before the bar appears."""
Watcher = Callable[[str, int, int], None]
"""Gets what is done, how many items are finished, and how many there are."""
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watch_progress(watcher: Watcher) -> Iterator[None]:
    """Report the progress of whatever runs inside, in this thread, to a function.

    What the function raises ends the work.

    Examples
    --------
    >>> with watch_progress(lambda what, done, total: print(f"{what}: {done} of {total}")):
    ...     vitreous.inspect("nano:vit", limit=64)
    """
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items just finished.

    After two seconds a terminal shows a bar with the time that is left, even while the first item
    takes longer than that; anywhere else nothing is shown.
    """
    drawn = random.getstate()
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

    random.setstate(drawn)  # rich draws from Python's random numbers when it is imported
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
    watcher, done = _watcher.get(), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        bar.advance(task, count)
        if watcher is not None:
            watcher(what, done, total)

    patience = Timer(max(PATIENCE, 0), bar.start)
    patience.daemon = True  # an interrupted program does not wait for it
    if console.is_terminal:
        patience.start()
    try:
        yield advance
    finally:
        patience.cancel()
        if patience.is_alive():
            patience.join()  # it may be showing the bar at this moment
        if bar.live.is_started:  # older versions of rich print an empty line otherwise
            bar.stop()
