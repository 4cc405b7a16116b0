"""What a person sees of a training, and what TensorBoard is told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from training.toy import RECIPE, go

PLAIN = RECIPE.but(ema=None, keep="none")


class Writer:
    """Stands for TensorBoard's."""

    made: list[Writer]

    def __init__(self, folder: str, purge_step: int | None) -> None:
        self.folder, self.purge_step, self.scalars = folder, purge_step, []  # type: tuple[str, int | None, list[Any]]
        Writer.made.append(self)

    def add_scalar(self, *given: Any) -> None:
        self.scalars.append(given)

    def flush(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> type[Writer]:
    module: Any = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter, Writer.made = Writer, []
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return Writer


def test_a_line_for_every_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], board: type[Writer]
) -> None:
    go(tmp_path, PLAIN, show=True)
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert said.out == ""
    assert lines[0].startswith("vit_nano-toy-toy-")
    assert lines[1].split() == [
        "epoch",
        "train",
        "NLL",
        "test",
        "NLL",
        "test",
        "error",
        "lr",
        "gradient",
        "images/s",
    ]
    assert [line.split()[0] for line in lines[2:]] == ["0", "1", "2", "3"]
    assert lines[2].split()[1] == "–"  # nothing was trained yet
    assert all(len(line) == len(lines[1]) for line in lines[2:])


def test_show_false_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], board: type[Writer]
) -> None:
    go(tmp_path, PLAIN, show=False)
    assert capsys.readouterr().err == ""
    assert board.made == []


def test_tensorboard_gets_the_numbers(tmp_path: Path, board: type[Writer]) -> None:
    trained = go(tmp_path, PLAIN, show=True)
    (writer,) = board.made
    assert writer.folder == str(tmp_path / "tensorboard")
    nll = [(key, value, epoch) for key, value, epoch in writer.scalars if key == "test_nll"]
    assert nll == [("test_nll", each["test_nll"], each["epoch"]) for each in trained.records]


def test_training_does_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert len(go(tmp_path, PLAIN, show=True).records) == 4
