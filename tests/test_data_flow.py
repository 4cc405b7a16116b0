"""The diagrams "Where things happen" in CONTRIBUTING are true: a run enters these files in this
order."""

from __future__ import annotations

import re
import sys
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

import pytest

import vitreous
from vitreous.cli import main

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path(vitreous.__file__).parent
DIAGRAM = re.compile(r"^`vitreous (\w+)`: .*\n\n((?:    .*\n)+)", re.MULTILINE)
STATIONS: dict[str, list[str]] = {
    command: [line.split()[0] for line in lines.splitlines()]
    for command, lines in DIAGRAM.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
}
RUNS = {
    "inspect": "inspect nano:vit --probes variance --limit 4 --device cpu",
    "train": "train vit_nano --set epochs=1 --size 16 --test-size 4 --device cpu --quiet",
}
PLACEHOLDERS = {"NAME": "variance", "PAPER": "nano"}
"""What stands for any name in a diagram, and which it is in the runs."""


def entered_files(command: str) -> list[str]:
    """Run a command; return the files whose functions it calls, in the order of the first call."""
    files: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        # code without CO_OPTIMIZED is the body of a module or class: an import, not a call
        if event == "call" and frame.f_code.co_flags & CO_OPTIMIZED:
            files.setdefault(frame.f_code.co_filename)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with pytest.raises(SystemExit) as end:
            main(command.split())
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    assert end.value.code == 0
    inside = [Path(file) for file in files if Path(file).is_relative_to(SOURCE)]
    return [file.relative_to(SOURCE).as_posix() for file in inside]


def test_at_most_ten_files_that_exist() -> None:
    assert list(STATIONS) == ["inspect", "train", "study"]
    for stations in STATIONS.values():
        assert len(stations) <= 10
        for station in stations:
            pattern = re.sub("NAME|PAPER", "*", station)
            assert list(SOURCE.glob(pattern)), f"{station} does not exist"


@pytest.mark.parametrize("command", RUNS)
def test_a_run_enters_the_files_in_this_order(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stations = [
        re.sub("NAME|PAPER", lambda found: PLACEHOLDERS[found[0]], station)
        for station in STATIONS[command]
    ]
    entered = entered_files(RUNS[command])
    assert [file for file in entered if file in stations] == stations
