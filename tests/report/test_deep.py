"""`vitreous inspect --deep` and the commands of single analyses."""

from __future__ import annotations

import os
import signal
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import vitreous
from vitreous.cli import main
from vitreous.measure import analyses, engine

QUICK = ["nano:resnet", "--limit", "12", "--device", "cpu"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and what was complained about."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, " ".join(said.out.split()), " ".join(said.err.split())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_question_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "lesion", *QUICK, "--out", "lesion.html", "--set", "what=skips")
    assert (code, err) == (0, "")
    assert out.startswith("1 measurement on 12 images of world:shapes (test)")
    assert 'id="lesion"' in (home / "lesion.html").read_text()
    assert [path.name for path in home.iterdir()] == ["lesion.html"]


def test_probes_and_analyses_in_one_report(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (
        "--probes",
        "accuracy",
        "--analyses",
        "lesion",
        "--set",
        "lesion.what=skips",
        "--results",
        "numbers",
    )
    assert run(capsys, "inspect", *QUICK, *asked)[0] == 0
    found = vitreous.Inspection.load("numbers")
    assert list(found) == ["accuracy", "lesion"]
    assert found["lesion"].about["options"]["what"] == "skips"
    page = (home / "inspect-nano-resnet.html").read_text()
    assert 'id="accuracy"' in page
    assert 'id="lesion"' in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["inspect", *QUICK, "--analyses", "lesoin"],
            "There is no analysis 'lesoin'. Did you mean lesion",
        ),
        (
            ["inspect", *QUICK, "--probes", "varianc"],
            "There is no probe 'varianc'. Did you mean variance",
        ),
        (
            ["inspect", *QUICK, "--set", "lesion.what=skips"],
            "--set gives an option of lesion, which is not run; add --deep",
        ),
        (["inspect", *QUICK, "--set", "what=skips"], "--set takes MEASUREMENT.OPTION=VALUE"),
        (
            ["lesion", *QUICK, "--set", "wat=skips"],
            "There is no option of lesion 'wat'. Did you mean what?",
        ),
        (["lesion", *QUICK, "--set", "skips"], "--set takes NAME=VALUE"),
    ],
)
def test_invalid_options_are_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert sentence in err


def test_results_of_another_time_have_the_same_colours(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = (
        "lesion",
        "nano:resnet",
        "nano:resnet@warmup",
        "--limit",
        "12",
        "--set",
        "what=skips",
        "--results",
        "then",
    )
    assert run(capsys, *deep)[0] == 0
    again = (
        "inspect",
        "nano:vit",
        *QUICK,
        "--probes",
        "accuracy",
        "--also",
        "then",
        "--results",
        "now",
    )
    assert run(capsys, *again)[0] == 0
    found = vitreous.Inspection.load("now")
    assert list(found.anatomies) == ["nano:vit", "nano:resnet"]
    assert found["lesion"].about["beside"] == ["nano:vit", "nano:resnet", "nano:resnet@warmup"]
    assert found["lesion"].table.equals(vitreous.Inspection.load("then")["lesion"].table)
    code, _, err = run(capsys, "inspect", *QUICK, "--also", "never")
    assert code == 2
    assert "There is no folder 'never' of saved results." in err


def test_ctrl_c_keeps_what_was_done(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    one = engine._compute_piece

    def once(work: Any, piece: str, bench: Any) -> Any:
        done.append(piece)
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return one(work, piece, bench)

    monkeypatch.setattr(engine, "_compute_piece", once)
    command = ("inspect", *QUICK, "--probes", "accuracy", "--analyses", "lesion")
    code, out, err = run(capsys, *command)
    assert code == 130
    assert "Stopped after 2 of" in err
    assert "Run the same command again: it resumes." in err
    assert "Wrote inspect-nano-resnet.html" in out
    assert (home / "inspect-nano-resnet.html.partial").is_dir()
    first = list(done)
    assert run(capsys, *command)[0] == 0
    assert not set(first) & set(done[len(first) :])
    assert not (home / "inspect-nano-resnet.html.partial").exists()
    assert 'id="lesion"' in (home / "inspect-nano-resnet.html").read_text()


def test_each_is_listed_with_what_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list", "analyses")
    assert code == 0
    for name in analyses.names():
        assert analyses.summary(name) in out
        for option, (default, says) in analyses.analysis_options(name).items():
            assert says, f"{name} does not say what {option}={default} means."
        kind: Any = analyses.named(name)
        assert list(analyses.analysis_options(name)) == [
            each.name for each in fields(kind) if each.init
        ]
