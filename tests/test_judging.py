"""The command line about findings, as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vitreous.cli import main


def typed(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    return int(stopped.value.code or 0)


def test_a_dry_run_lists_cells_and_whom_they_serve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
        (("study", "zoo", "--scale", "smal", "--dry-run"), "There is no scale 'smal'. Did you mean small?"),
        (("study", "zoo", "--seeds", "0", "--dry-run"), "at least one seed"),
        (("study", "zoo", "--address", "auto", "--dry-run"), "say --executor ray"),
        (("study", "zoo", "--executor", "rey", "--dry-run"), "rey"),
        (("claims", "show", "HDV-99"), "There is no claim 'HDV-99'"),
        (("claims", "judge", "nowhere"), "There is nothing to judge in 'nowhere'"),
    ],
)
def test_a_mistake_is_one_sentence(words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(*words) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
