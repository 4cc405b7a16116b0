"""A bar for what takes long, on a terminal; nothing anywhere else."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from io import StringIO

import pytest
import rich.console
from rich.console import Console

from vitreous import progress


def shown(monkeypatch: pytest.MonkeyPatch, patience: float, terminal: bool) -> str:
    """What a person sees while ten of twenty things are done."""
    stream = StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100)
    monkeypatch.setattr(rich.console, "Console", lambda stderr: console)
    monkeypatch.setattr(progress, "PATIENCE", patience)
    with progress.progress("Decoding toys", 20) as forward:
        forward(7)
        forward(3)
        until = time.monotonic() + 5
        while terminal and patience < 1 and "toys" not in stream.getvalue():
            assert time.monotonic() < until
            time.sleep(0.01)
    return stream.getvalue()


def test_the_bar_appears_only_for_long_work_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = shown(monkeypatch, 0.0, True)
    assert "Decoding toys" in seen
    assert "10/20" in seen
    assert "left:" in seen
    assert shown(monkeypatch, 60.0, True) == ""
    assert shown(monkeypatch, 0.0, False) == ""


def test_the_bar_stops_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(rich.console, "Console", lambda stderr: console)
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    before = threading.active_count()
    for _ in range(20):
        with suppress(KeyboardInterrupt), progress.progress("Decoding toys", 20):
            time.sleep(0.01)
            raise KeyboardInterrupt
    until = time.monotonic() + 5  # rich does not wait for its own thread
    while threading.active_count() > before:
        assert time.monotonic() < until
        time.sleep(0.01)
