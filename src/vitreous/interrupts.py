"""Deferring Ctrl-C and SIGTERM while a step is computed, so that it is finished and saved."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def defer_interrupts(processes: int = 1) -> Iterator[list[int]]:
    """Yield a list to which the first SIGINT or SIGTERM is appended; the second one raises
    KeyboardInterrupt.

    Signals are not deferred with several `processes`, which would not stop at the same step, nor
    outside the main thread, where Python has no signal handlers.
    """
    caught: list[int] = []
    if processes > 1 or threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(number: int, frame: object) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
