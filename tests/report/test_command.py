"""`vitreous inspect` as a person meets it: a report, a summary, and a sentence for everything that
can go wrong."""

from __future__ import annotations

import os
import signal
from inspect import unwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitreous
from vitreous.cli import main
from vitreous.commands.inspect import default_report_name
from vitreous.commands.inspect_options import InspectOptions
from vitreous.measure import engine
from vitreous.measure.streaming import Fetch, Pass

ASKED = ["--probes", "accuracy", "variance", "--device", "cpu"]
QUICK = ["nano:vit", *ASKED, "--limit", "40"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and what was complained about."""
    with pytest.raises(SystemExit) as end:
        main(["inspect", *arguments])
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, " ".join(said.out.split()), said.err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def photographs(folder: Path, names: list[str]) -> None:
    """Of many sizes."""
    for number, name in enumerate(names):
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(
            0, 255, (30 + 7 * number, 60 - 5 * number, 3), dtype=np.uint8
        )
        Image.fromarray(pixels).save(path)


def test_a_report_and_a_summary(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(
        capsys, "nano:resnet", *QUICK, "--results", "numbers", "--figures", "pictures"
    )
    assert (code, err) == (0, "")
    assert out.startswith(
        "2 measurements on 40 images of world:shapes (test), 10 classes model weights units "
        "parameters accuracy"
    )
    assert "nano:resnet trained 11 272 k 100.0%" in out
    assert out.endswith("Wrote inspect-nano-resnet-nano-vit.html, numbers, pictures")
    assert "<html" in (home / "inspect-nano-resnet-nano-vit.html").read_text()
    assert list(vitreous.Inspection.load("numbers")) == ["accuracy", "variance"]
    assert (home / "pictures" / "variance-by-depth-nano_resnet-nano_vit.svg").is_file()
    assert sorted(path.name for path in home.iterdir() if path.name != "cache") == [
        "inspect-nano-resnet-nano-vit.html",
        "numbers",
        "pictures",
    ]


def test_photographs_without_labels(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photographs(home / "photos", ["a", "b", "c"])
    code, out, _ = run(capsys, *QUICK, "--data", "folder:photos", "--out", "new/deep/a.html")
    assert code == 0
    assert "1 measurement on 3 images" in out
    assert "Left out: accuracy of nano:vit. Images of 'folder:photos' have no labels" in out
    assert (home / "new" / "deep" / "a.html").is_file()


def test_photographs_in_class_folders(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photographs(
        home / "photos", [f"{kind}/{number}" for kind in ("cat", "dog") for number in range(3)]
    )
    code, out, _ = run(capsys, *QUICK, "--data", "folder:photos", "--split", "all")
    assert code == 0
    assert "It has 10 classes, and cat, dog of 'folder:photos' are not among them" in out


def test_one_image(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "nano:vit", *ASKED, "--limit", "1")[0] == 0


def test_one_photograph(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photographs(home / "photos", ["a"])
    assert run(capsys, *QUICK, "--data", "folder:photos")[0] == 0


def bad_file(home: Path) -> None:
    photographs(home / "photos", ["a", "b"])
    (home / "photos" / "broken.png").write_bytes(b"not a picture")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nano:vitt"], "There is no bundled model 'nano:vitt'. Did you mean nano:vit"),
        (["nano:vit", "--probes", "acuracy"], "There is no probe 'acuracy'. Did you mean accuracy"),
        (["nano:vit", "--data", "folder:empty"], "empty"),
        (["nano:vit", "--data", "folder:nowhere"], "nowhere"),
        (
            ["nano:vit", "--data", "folder:photos"],
            "1 of 3 images of 'folder:photos' cannot be decoded",
        ),
        (["nano:vit", "--data", "world:shape"], "There is no synthetic dataset 'shape'"),
        (["nano:vit", "--limit", "0"], "--limit 0 was asked for; it is at least one image"),
        (["nano:vit", "--split", "tset"], "There is no split 'tset'. Did you mean test"),
        (
            ["nano:vit", "--out", "report.pdf"],
            "A report is written as HTML, and 'report.pdf' ends otherwise",
        ),
        (["nano:vit", "--out", "folder.html"], "'folder.html' is a folder"),
        (
            ["nano:vit", "--out", "file/report.html"],
            "Cannot write 'file/report.html': 'file' is a file, not a folder.",
        ),
        (["nano:vit", "--results", "file/numbers"], "Cannot write 'file/numbers'"),
        (["nano:vit", "--figures", "file"], "Cannot write 'file'"),
        (["nano:vit", "--device", "gpu"], "There is no device 'gpu'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    sentence: str,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Pass, "shard", lambda *_: pytest.fail("it looks before it complains"))
    bad_file(home)
    (home / "file").touch()
    (home / "empty").mkdir()
    (home / "folder.html").mkdir()
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert out == ""
    assert [path.name for path in home.glob("*.html*")] == ["folder.html"]


def test_a_place_that_cannot_be_written_is_found_before_models_are_opened(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "subjects", lambda *_, **__: pytest.fail("it opens models first"))
    home.chmod(0o500)
    try:
        if os.access(home, os.W_OK):
            pytest.skip("root may write anywhere")
        code, _, err = run(capsys, *QUICK)
    finally:
        home.chmod(0o700)
    assert code == 2
    assert "Cannot write" in err


def test_files_that_cannot_be_decoded_are_left_out_on_request(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad_file(home)
    code, out, _ = run(capsys, *QUICK, "--data", "folder:photos", "--skip-corrupt")
    assert code == 0
    assert "on 2 of 3 images" in out


def test_ctrl_c_writes_a_partial_report_and_the_same_command_resumes(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    function = unwrap(engine.inspect)
    monkeypatch.setattr(function, "__kwdefaults__", {**function.__kwdefaults__, "shard": 10})
    command = [*QUICK, "--results", "numbers"]
    assert run(capsys, *command, "--out", "peace.html")[0] == 0
    peace = vitreous.Inspection.load("numbers")
    passed, seen = Pass._run_shard, list[int]()

    def disturbed(self: Pass, rows: torch.Tensor, *rest: Any) -> Fetch:
        seen.append(int(rows[0]) // 10)
        if seen == [0, 1]:
            os.kill(os.getpid(), signal.SIGINT)
        return passed(self, rows, *rest)

    monkeypatch.setattr(Pass, "_run_shard", disturbed)
    code, out, err = run(capsys, *command)
    assert code == 130
    assert "2 measurements on 20 of 40 images" in out
    assert "Wrote inspect-nano-vit.html" in out
    assert (
        err
        == "Stopped after 2 of 4 shards of the images. Run the same command again: it resumes.\n"
    )
    assert (home / "inspect-nano-vit.html.partial").is_dir()
    assert vitreous.Inspection.load("numbers")["variance"].about["data"]["images"] == 20
    code, out, err = run(capsys, *command)
    assert (code, err) == (0, "")
    assert "2 measurements on 40 images" in out
    assert seen == [0, 1, 2, 3, *range(4)]  # and the model before training
    assert not (home / "inspect-nano-vit.html.partial").exists()
    found = vitreous.Inspection.load("numbers")
    assert found["variance"].table.equals(peace["variance"].table)
    assert found["accuracy"] == peace["accuracy"]


def test_random_weights_depend_on_the_seed_alone(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or the same command would go on with other models."""
    marks = []
    for seed in ("0", "0", "1"):
        torch.rand(3)
        code, _, err = run(
            capsys, "vit_nano", *ASKED, "--limit", "2", "--seed", seed, "--results", "numbers"
        )
        assert (code, err) == (0, "")
        marks.append(
            vitreous.Inspection.load("numbers")["variance"].about["models"]["vit_nano"][
                "fingerprint"
            ]
        )
    assert marks[0] == marks[1] != marks[2]


def test_reports_of_checkpoints_have_their_names() -> None:
    two = InspectOptions(weights=("runs/a.pth", "vit_ti/4=runs/b.safetensors"))
    assert default_report_name(two, ["vit_ti/4"]) == "inspect-vit_ti-4-a-b.html"
    five = InspectOptions(weights=tuple(f"runs/{name}.pth" for name in "abcde"))
    assert default_report_name(five, ["resnet18"]) == "inspect-resnet18-a-and-4-more.html"
    both = ["resnet18", "vit_ti/4"]
    assert default_report_name(five, both) == "inspect-resnet18-vit_ti-4.html"


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        ("epoch=3-step=99.ckpt", "inspect-resnet18-epoch=3-step=99.html"),
        ("resnet18=runs/epoch=3.ckpt", "inspect-resnet18-epoch=3.html"),
        ("runs/last.pth@model_ema", "inspect-resnet18-last-model_ema.html"),
        ("runs/日本 2.pth", "inspect-resnet18-日本-2.html"),
        ("a folder/", "inspect-resnet18-a-folder.html"),
    ],
)
def test_the_name_of_a_checkpoint_is_kept(weights: str, name: str) -> None:
    assert default_report_name(InspectOptions(weights=(weights,)), ["resnet18"]) == name


def test_another_command_does_not_replace_a_report(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["nano:vit", "--probes", "accuracy", "--device", "cpu", "--limit", "2"]
    assert "Wrote inspect-nano-vit.html" in run(capsys, *few)[1]
    first = Path("inspect-nano-vit.html").read_text()
    code, out, _ = run(capsys, *few, "--seed", "1")
    assert code == 0
    assert out.endswith(
        "Wrote inspect-nano-vit-2.html (inspect-nano-vit.html is of another run and was kept)"
    )
    assert Path("inspect-nano-vit.html").read_text() == first
    assert run(capsys, *few, "--seed", "1")[1].endswith("Replaced inspect-nano-vit-2.html")
    assert run(capsys, *few, "--out", "inspect-nano-vit-2.html")[1].endswith(
        "Replaced inspect-nano-vit-2.html"
    )
    assert sorted(path.name for path in home.glob("*")) == [
        "inspect-nano-vit-2.html",
        "inspect-nano-vit.html",
    ]


@pytest.mark.parametrize("command", [["accuracy"], ["accuracy", "--analyses", "corruption"]])
def test_a_run_that_measured_nothing_is_an_error(
    command: list[str], home: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Every measurement was left out: nothing is written, and what was there stays."""
    monkeypatch.setattr(Pass, "begin", lambda *_: pytest.fail("no model is run for nothing"))
    photographs(home / "photos", ["cat/1", "dog/1"])
    (home / "mine.html").write_text("an older report")
    before = sorted(home.rglob("*"))
    code, out, err = run(
        capsys, "nano:vit", "--data", "photos", "--out", "mine.html", "--results", "numbers",
        "--probes", *command,
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert err.startswith("Nothing could be measured, so no report is written. accuracy")
    assert "of nano:vit: It has 10 classes, and cat, dog of 'photos' are not among them" in err
    assert err.count("\n") == 1
    assert (home / "mine.html").read_text() == "an older report"
    assert sorted(path for path in home.rglob("*") if "cache" not in str(path)) == before
