"""The command line as a person meets it: quick, one sentence an error, exit codes that scripts can
use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vitreous
from vitreous.cli import main
from vitreous.errors import VitreousError
from vitreous.measure import analyses, probes
from vitreous.specimen.anatomy import Anatomy

LISTS = [
    "list models",
    "list probes",
    "list analyses",
    "list recipes",
    "claims list",
    "claims show",
    "claims judge",
]
COMMANDS = ["anatomy", "inspect", "train", "data", "doctor", *LISTS, *analyses.names()]


def run(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, what was printed, and what was complained about."""
    with pytest.raises(SystemExit) as end:
        main(line.split())
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, said.out, said.err


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(vitreous.__file__).parents[1])}


def spent(*command: str) -> float:
    """CPU seconds of a command."""
    before = os.times()
    subprocess.run([sys.executable, *command], env=environment(), capture_output=True, check=True)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def test_help_is_instant() -> None:
    """Half a second, the best of five; where processes share a core, little more than what it is
    built on."""
    bare, taken = float("inf"), float("inf")
    for _ in range(5):
        bare = min(bare, spent("-c", "import cyclopts, rich.console, rich.panel, rich.table"))
        taken = min(taken, spent("-m", "vitreous", "--help"))
        if taken < max(0.5, 2.2 * bare):
            return
    pytest.fail(
        f"{taken:.2f} s, of which {bare:.2f} s for reading the command line and drawing boxes"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(f"{command} --help", capsys)
    assert code == 0
    assert f"Example: vitreous {command}" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version", capsys)[:2] == (0, f"{vitreous.__version__}\n")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("anatomi resnet18", 'Unknown command "anatomi". Did you mean "anatomy"?'),
        ("anatomy", "requires an argument"),
        ("doctor --debug=perhaps", "into bool"),
        ("anatomy resnet18 --imag 3", "Unknown option: --imag. Did you mean --image?"),
        ("train vit_nano --epochs 3", "Unknown option: --epochs. Write --set epochs=VALUE."),
        ("lesion nano:vit --what=skips", "Unknown option: --what. Write --set what=VALUE."),
        (
            "claims judge numbers --paper SLC",
            "Unknown option: --paper. `vitreous claims judge --help` lists the options.",
        ),
        ("data photos --image 48 96", "Nothing takes '96'; `vitreous data --help` says"),
        (
            "anatomy resnet18 --image big",
            "--image takes a side (224), height and width (224x160) or channels, height",
        ),
        ("anatomy resnet17", "There is no model 'resnet17'. Did you mean resnet18"),
        (
            "anatomy resnet18 --out a.gif",
            "A drawing ends in .svg, .pdf, .png, .html or .json, and 'a.gif' does not.",
        ),
        (
            "train vit_nano --set epochs",
            "--set takes NAME=VALUE, for example epochs=20, and not 'epochs'.",
        ),
        (
            "train vit_nano --set epoch=3",
            "There is no field of a recipe 'epoch'. Did you mean epochs",
        ),
        (
            "train vit_nano --set epochs=0",
            "The recipe 'quick' cannot be followed: epochs 0 is not positive",
        ),
        ("train vit_nano --recipe fats", "There is no recipe 'fats'. Did you mean fast"),
        ("train vit_nano --data wrld:shapes", "wrld"),
        ("list models --filter resnet?x", "No model name matches 'resnet?x'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(line, capsys)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert out == ""


SIZED = (
    "anatomy nano:vit",
    "inspect nano:vit",
    "lesion nano:vit",
    "data world:shapes",
    "train vit_nano",
    "study",
)
SIZES = (
    "0",
    "-5",
    "1000000000",
    "axb",
    "1x2x3x4",
    "3.5",
    "''",
    "64x",
    "x64",
    "6_4",
    "64,64",
    "0x64",
    "nan",
    "٣٢",
)


@pytest.mark.parametrize("command", SIZED)
@pytest.mark.parametrize("size", SIZES)
def test_a_size_that_is_none_is_refused_by_every_command(
    command: str, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(f"{command} --image={size}", capsys)
    assert (code, out) == (2, "")
    assert err.startswith(
        "--image takes a side (224), height and width (224x160) or channels, height and width"
    )
    assert err.count("\n") == 1


def test_sizes_of_images_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    shown = [
        run(f"anatomy test_vit --image {size}", capsys)
        for size in ("64", "64x64", "3x64x64", "3X64×64")
    ]
    assert [code for code, _, _ in shown] == [0] * 4
    assert len({out for _, out, _ in shown}) == 1
    assert (
        "32x48" in run("data world:shapes --image 32x48", capsys)[2]
    )  # the world is square, and says so
    assert "3 channels and not 1" in run("data world:shapes --image 1x32x32", capsys)[2]
    assert "square" in run("study sanity --image 32x48 --dry-run", capsys)[2]


def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(VitreousError, match="resnet17"):
        main(["anatomy", "resnet17", "--debug"])


def test_list_models(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("list models --filter *swin_tiny*", capsys)
    assert code == 0
    assert "swin_tiny_patch4_window7_224" in out.splitlines()
    assert err == ""


def test_list_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("list recipes", capsys)
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (code, err) == (0, "")
    assert lines["hdv_noaug"].startswith("`hdv_cifar` with crop and flip only")


def test_list_probes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("list probes", capsys)
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (code, err) == (0, "")
    assert list(lines) == probes.names()
    assert lines["accuracy"].startswith("Top-1 and top-5 accuracy")


def test_claims(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run("claims list --paper VIT --study identities", capsys)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines() if line.startswith("VIT-")] == [
        "VIT-05",
        "VIT-21",
        "VIT-24",
    ]
    code, out, err = run("claims show vit-13", capsys)
    assert (code, err) == (0, "")
    label = "rank correlation of layer and mean attention distance"
    assert f"reproduced if  {label}: more than 0 for certain, at least 0.6" in out
    assert "compared with the same networks before training" in out
    code, out, err = run("claims show VIT-99", capsys)
    assert (code, out) == (2, "")
    assert err.startswith("There is no claim 'VIT-99'. Did you mean")


def test_anatomy_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "new folder" / f"x.{ending}" for ending in ("svg", "html", "json")]
    with pytest.raises(SystemExit) as end:
        main(
            [
                "anatomy",
                "test_vit",
                "--image",
                "64",
                *(part for file in files for part in ("--out", str(file))),
            ]
        )
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert "blocks.0.attn" in out
    svg, html, data = (file.read_text() for file in files)
    assert svg.startswith("<svg")
    assert "<svg" in html
    read = Anatomy.from_json(data)
    assert read.image == (3, 64, 64)
    assert read == vitreous.open("test_vit", image=64).anatomy


def test_several_models_share_a_drawing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = run(
        f"anatomy test_vit test_resnet --out {tmp_path}/two.json --out {tmp_path}/two.svg", capsys
    )
    assert code == 0
    assert [one["model"] for one in json.loads((tmp_path / "two.json").read_text())] == [
        "test_vit",
        "test_resnet",
    ]
    svg = (tmp_path / "two.svg").read_text()
    assert "test_vit" in svg
    assert "test_resnet" in svg


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    code, _, err = run(f"anatomy test_resnet --out {tmp_path}/file/x.json", capsys)
    assert code == 2
    assert "Cannot write" in err


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_interrupt_is_one_line_and_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vitreous.model_listing.list_names", interrupt)
    assert run("list models", capsys) == (130, "", "Interrupted.\n")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of another kind")
def test_a_real_ctrl_c() -> None:
    script = "import time; import vitreous.measure.probes as n"  # which needs no torch
    script += "; n.names = lambda *_: (print('ready', flush=True), time.sleep(60))"
    script += "; from vitreous.cli import main; main(['list', 'probes'])"
    listens = partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # which a job in the background does not
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, env=environment(), preexec_fn=listens, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "Interrupted.\n")


def test_a_reader_that_has_seen_enough() -> None:
    script = "import vitreous.measure.probes as n; n.summary = lambda name: 'x' * 50000"
    script += "; from vitreous.cli import main; main(['list', 'probes'])"
    command = f'"{sys.executable}" -c "{script}" | head -n 1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", command], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "line", ["--help", "inspect --help", "claims list", "list probes", "claims show HDV-26"]
)
def test_every_reader_may_have_seen_enough(line: str) -> None:
    """A pipe that is closed before the first byte: `vitreous claims list | head -0`."""
    command = f'"{sys.executable}" -m vitreous {line} | true; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", command], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unexpected_error_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vitreous.model_listing.list_names", lambda *_: 1 / 0)
    code, out, err = run("list models", capsys)
    assert (code, out) == (70, "")
    assert err.startswith(
        "Vitreous failed: ZeroDivisionError: division by zero (test_cli.py, line "
    )
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["anatomy", "inspect", "train"])
def test_help_says_that_a_model_may_be_yours(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "MODULE:FUNCTION" in run(f"{command} --help", capsys)[1]


QUICK = (
    "--help", "--version", "inspect --help", "lesion --help", "train --help", "list", "list probes",
    "list analyses", "list recipes", "list models", "list models --filter *vit*", "doctor",
    "claims", "claims list", "claims show HDV-26", "inspect nano:vti", "data world:shpaes",
)  # fmt: skip


def test_small_things_are_fast_and_need_no_torch() -> None:
    """All in one new process: none imports torch, and each takes less than 1.5 s of processor
    time, imports included."""
    script = f"""
import contextlib, io, sys, time
begun = 0.0
for line in {QUICK!r}:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        from vitreous.cli import main
        main(line.split())
    now = time.process_time()
    heavy = [name for name in ("torch", "timm", "torchvision", "pandas") if name in sys.modules]
    print(f"{{now - begun:.3f}}", line, heavy, sep="|")
    begun = now
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    measured = [line.split("|") for line in done.stdout.splitlines()]
    assert [line for _, line, _ in measured] == list(QUICK)
    assert [line for _, line, heavy in measured if heavy != "[]"] == []
    assert [line for seconds, line, _ in measured if float(seconds) >= 1.5] == []
