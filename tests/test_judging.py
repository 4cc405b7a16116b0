"""The command line about findings, as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from vitreous.cli import main
from vitreous.studies import run_cells, run_study


def typed(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    return int(stopped.value.code or 0)


def test_a_dry_run_lists_cells_and_whom_they_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("study", "skips", "--dry-run", "--out", str(tmp_path / "study")) == 0
    said = capsys.readouterr().out
    assert "no skips in block 2" in said
    assert "SLC-17" in said
    assert "to be done" in said
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("study", "zo", "--dry-run"), "There is no study 'zo'. Did you mean zoo?"),
        (
            ("study", "zoo", "--scale", "smal", "--dry-run"),
            "There is no scale 'smal'. Did you mean small?",
        ),
        (("study", "zoo", "--seeds", "0", "--dry-run"), "at least one training"),
        (("study", "zoo", "--address", "auto", "--dry-run"), "say --executor ray"),
        (("study", "zoo", "--executor", "rey", "--dry-run"), "rey"),
        (("claims", "show", "HDV-99"), "There is no claim 'HDV-99'"),
        (("claims", "judge", "nowhere"), "There is no folder 'nowhere'"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(*words) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_a_study_whose_cells_failed_exits_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It judges what there is, says which cells failed, and no script takes it for a success."""
    judged: list[str] = []
    monkeypatch.setattr(
        "vitreous.studies.run_study.conduct_study", lambda *given, **how: (["VIT-02"], ["k1", "k2"])
    )
    monkeypatch.setattr(
        "vitreous.commands.judge.judge_folder", lambda folder, ids, *rest: judged.append(ids)
    )
    assert typed("study", "zoo", "--out", str(tmp_path)) == 2
    assert judged == ["VIT-02"]
    assert "2 cells of the study failed (k1, k2)" in capsys.readouterr().err


def test_which_cells_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the cells to what the command is told."""
    monkeypatch.setattr(run_cells, "do_cell", lambda *given: 1 / 0)
    ids, failed = run_study.conduct_study(
        "skips", "world:shapes", "sanity", 1, tmp_path, image=None, workers=1, device="cpu",
        executor="processes", address=None, dry_run=False, console=Console(quiet=True),
    )  # fmt: skip
    assert ids
    assert len(failed) == len(list((tmp_path / "failed").iterdir())) > 0
