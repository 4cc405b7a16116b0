"""Nobody's file is lost: default names avoid files of other commands, and what is replaced is
said."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from vitreous.commands.inspect import default_report_name
from vitreous.commands.inspect_options import AnalysisOptions, InspectOptions
from vitreous.commands.output_files import (
    check_writable,
    choose_output,
    mark_of_command,
    named_outputs,
    reserve,
    written_sentence,
)
from vitreous.commands.terminal import default_file_name
from vitreous.errors import VitreousError

OURS, OTHER = "vitreous-run-aaaa", "vitreous-run-bbbb"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def partial(name: str, mark: str) -> None:
    folder = Path(f"{name}.partial")
    folder.mkdir()
    (folder / "command.txt").write_text(mark)


def test_every_command_has_its_own_report_name() -> None:
    vit = ["nano:vit"]
    assert default_report_name(InspectOptions(), vit) == "inspect-nano-vit.html"
    assert default_report_name(AnalysisOptions(), vit, "lesion") == "lesion-nano-vit.html"


@pytest.mark.parametrize(
    ("models", "name"),
    [
        (["vit_ti/4"], "inspect-vit_ti-4.html"),
        (["resnet18.a1_in1k"], "inspect-resnet18.a1_in1k.html"),
        (["hf:google/vit-base", "tv:resnet50"], "inspect-hf-vit-base-tv-resnet50.html"),
        (["nano:vit", "a", "b", "c"], "inspect-nano-vit-and-3-more.html"),
        (["run:runs/vit-1a2b@warmup"], "inspect-run-vit-1a2b-warmup.html"),
        (["run:runs/vit-1a2b/"], "inspect-run-vit-1a2b.html"),
        (["./here/my_model.py:make"], "inspect-my_model-make.html"),
        (["mypackage.module:make"], "inspect-mypackage.module-make.html"),
        (["~/weights/last"], "inspect-last.html"),
        (["netz_ä.py:Netz"], "inspect-netz_ä-Netz.html"),
        (["a\u0308.py:Netz"], "inspect-ä-Netz.html"),
        (["run:runs/日本"], "inspect-run-日本.html"),
        (["日" * 50], f"inspect-{'日' * 30}.html"),
        (["/"], "inspect-model.html"),
        (["x" * 300], f"inspect-{'x' * 92}.html"),
    ],
)
def test_files_are_named_after_command_and_models(models: list[str], name: str) -> None:
    assert default_file_name("inspect", models, ".html") == name


def test_a_mark_depends_on_the_command_and_relevant_options_only() -> None:
    first = mark_of_command("inspect", ["nano:vit"], {"data": "photos", "seed": 0, "out": None})
    assert first == mark_of_command(
        "inspect", ["nano:vit"], {"seed": 0, "data": "photos", "out": Path("a.html"), "batch": 3}
    )
    others = [
        ("lesion", ["nano:vit"], {"data": "photos", "seed": 0}),
        ("inspect", ["nano:resnet"], {"data": "photos", "seed": 0}),
        ("inspect", ["nano:vit"], {"data": "four", "seed": 0}),
        ("inspect", ["nano:vit"], {"data": "photos", "seed": 1}),
    ]
    marks = {first, *(mark_of_command(*each) for each in others)}
    assert len(marks) == 5


def test_a_free_name_is_taken_and_ours_is_replaced() -> None:
    free = choose_output(None, "r.html", OURS)
    assert (free.path, free.sentence()) == (Path("r.html"), "Wrote r.html")
    Path("r.html").write_text(f"<html><meta content='{OURS}'>")
    again = choose_output(None, "r.html", OURS)
    assert again.sentence(Path("numbers")) == "Replaced r.html, numbers"


@pytest.mark.parametrize("content", [OTHER.encode(), b"", b"\xff\xd8 a photo", b" " * 9000])
def test_what_somebody_else_wrote_stays(content: bytes) -> None:
    Path("r.v2.html").write_bytes(content)
    chosen = choose_output(None, "r.v2.html", OURS)
    assert chosen.path == Path("r.v2-2.html")
    assert chosen.sentence() == "Wrote r.v2-2.html (r.v2.html is of another run and was kept)"
    Path("r.v2-2.html").write_bytes(content)
    assert choose_output(None, "r.v2.html", OURS).path == Path("r.v2-3.html")
    Path("r.v2-2.html").write_text(OURS)  # written by us at the second name
    assert choose_output(None, "r.v2.html", OURS).sentence().startswith("Replaced r.v2-2.html")


def test_a_folder_with_the_default_name_is_kept() -> None:
    Path("r.html").mkdir()
    assert choose_output(None, "r.html", OURS).path == Path("r-2.html")


def test_a_command_that_was_killed_keeps_its_name() -> None:
    partial("r.html", OTHER)
    assert choose_output(None, "r.html", OURS).path == Path("r-2.html")
    assert choose_output(None, "r.html", OTHER).path == Path("r.html")


def test_what_a_user_names_is_replaced_and_said() -> None:
    Path("mine.html").write_text("something else")
    mine, new = named_outputs([Path("mine.html"), Path("new.csv")])
    assert mine.sentence() == "Replaced mine.html"
    assert written_sentence([mine, new]) == "Wrote new.csv; replaced mine.html"
    assert written_sentence([mine]) == "Replaced mine.html"


def test_a_reserved_name_is_free_again_unless_something_was_measured() -> None:
    output = choose_output(None, "r.html", OURS)
    with suppress(KeyboardInterrupt), reserve(output) as folder:
        assert choose_output(None, "r.html", OTHER).path == Path("r-2.html")
        (folder / "analyses").mkdir()
        raise KeyboardInterrupt
    assert list(Path().iterdir()) == []
    with reserve(output) as folder:
        (folder / "analyses" / "lesion").mkdir(parents=True)
        (folder / "analyses" / "lesion" / "piece-1.safetensors").touch()
    assert folder.is_dir()
    assert choose_output(None, "r.html", OURS).path == Path("r.html")


def test_folders_that_were_made_in_vain_are_removed() -> None:
    output = choose_output(Path("new/deep/r.html"), "", OURS)
    check_writable(output.path, Path("also/new"))
    assert list(Path().iterdir()) == []
    with suppress(KeyboardInterrupt), reserve(output):
        assert Path("new/deep").is_dir()
        raise KeyboardInterrupt
    assert list(Path().iterdir()) == []
    with reserve(output):
        output.path.touch()
    assert output.path.exists()


def test_the_mark_of_others_survives_a_user_who_names_their_file() -> None:
    partial("r.html", OTHER)
    Path("r.html.partial/piece-0.safetensors").touch()
    with reserve(choose_output(Path("r.html"), "", OURS)):
        pass
    assert Path("r.html.partial/command.txt").read_text() == OTHER


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("photo.jpg/x.html", "'photo.jpg' is a file, not a folder."),
        ("photo.jpg/deep/er/x.html", "'photo.jpg' is a file, not a folder."),
        ("/dev/null/x.html", "'/dev/null' is a file, not a folder."),
        ("/proc/x.html", "nothing can be written in '/proc'."),
        ("/proc/deep/x.html", "nothing can be written in '/proc'."),
    ],
)
def test_the_right_thing_is_named_where_nothing_can_be_written(out: str, why: str) -> None:
    Path("photo.jpg").touch()
    if not Path(out).is_relative_to("photo.jpg") and not Path("/proc/self").exists():
        pytest.skip("not Linux")
    with pytest.raises(VitreousError) as caught:
        check_writable(Path(out))
    assert str(caught.value) == f"Cannot write {out!r}: {why}"


def test_folders_are_checked_and_a_folder_is_not_a_file() -> None:
    Path("file").touch()
    with pytest.raises(VitreousError, match="'file' is a file, not a folder"):
        check_writable(Path("r.html"), None, Path("file"))
    Path("r.html").mkdir()
    told = r"'r.html' is a folder; name a file, for example 'r.html/report"
    with pytest.raises(VitreousError, match=told):
        check_writable(Path("r.html"))
