"""A bar for what takes long, on a terminal; nothing anywhere else."""

from __future__ import annotations

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
    return stream.getvalue()


def test_only_what_takes_long_and_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = shown(monkeypatch, -1.0, True)
    assert "Decoding toys" in seen
    assert "10/20" in seen
    assert shown(monkeypatch, 60.0, True) == ""
    assert shown(monkeypatch, -1.0, False) == ""
