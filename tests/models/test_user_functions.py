"""`module:function` is a model like any other, and every mistake has its sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import vitreous
from vitreous.cli import main
from vitreous.errors import InYourCode, UnknownName, VitreousError
from vitreous.models.loading import load_model

SOURCE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=7, image=16):
        super().__init__()
        self.image_size = image
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.head = nn.Linear(8, classes)
    def forward(self, images):
        return self.head(self.stem(images).relu().mean((2, 3)))

def make(classes=5, pretrained=False):
    made = Net(classes)
    made.pretrained = pretrained
    return made

ready = Net(3)
def broken(): raise ValueError("of its own")
def text(): return "a model"
number = 3
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the current folder, which is not on Python's path, as for the installed command."""
    (tmp_path / "ownmodels_for_tests.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    monkeypatch.delitem(sys.modules, "ownmodels_for_tests", raising=False)
    return tmp_path


def outputs(model: nn.Module) -> int:
    return int(model(torch.zeros(1, 3, 16, 16)).shape[1])


def test_function_class_and_module(home: Path) -> None:
    assert outputs(load_model("ownmodels_for_tests:make")) == 5
    assert outputs(load_model("ownmodels_for_tests:Net")) == 7
    assert outputs(load_model("ownmodels_for_tests:ready")) == 3


def test_the_function_gets_what_it_asks_for(home: Path) -> None:
    assert outputs(load_model("ownmodels_for_tests:make", classes=4, image=99)) == 4
    assert getattr(load_model("ownmodels_for_tests:make", pretrained=True), "pretrained")  # noqa: B009
    assert load_model("ownmodels_for_tests:Net", image=99).image_size == 99


def test_it_opens(home: Path) -> None:
    specimen = vitreous.open("ownmodels_for_tests:Net", image=32)
    assert specimen.anatomy.model == "ownmodels_for_tests:Net"
    assert specimen.anatomy.image == (3, 32, 32)


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        (
            "ownmodels_for_tests:mak",
            UnknownName,
            r"no function 'ownmodels_for_tests:mak'\. Did you mean .*:make",
        ),
        ("ownmodels_for_tests:text", VitreousError, "returns a str, and not an nn.Module"),
        (
            "ownmodels_for_tests:number",
            VitreousError,
            "is an int, and has to be an nn.Module, or a function",
        ),
        ("no_such_file_here:make", UnknownName, "or a module of yours and its function"),
        ("no_such.file_here:make", UnknownName, "or a module of yours and its function"),
        ("ownmodels_for_tests:broken", InYourCode, "ValueError: of its own"),
    ],
)
def test_errors_of_user_functions(
    home: Path, name: str, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        load_model(name)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (
            "    return 1 / 0",
            ["line 3, in make", "return 1 / 0", "ZeroDivisionError: division by zero"],
        ),
        ("    raise SystemExit(3)", ["line 3, in make", "SystemExit: 3"]),
        (
            "    return torch.nn.Linear(2, -1)",
            ["line 3, in make", "return torch.nn.Linear(2, -1)", "RuntimeError"],
        ),
        ("    return vitreous.build('vit_nano', image=33)", ["line 3, in make", "BadModel"]),
        ("  syntax error", ["own_broken.py", "SyntaxError"]),
        ("    return 1\nimport no_such_package", ["line 4, in <module>", "ModuleNotFoundError"]),
    ],
)
def test_errors_inside_a_user_function_show_its_lines(
    body: str,
    shown: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Your frame first, then our sentence; none of our frames, and none of the command line's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "own_broken", raising=False)
    (tmp_path / "own_broken.py").write_text(f"import torch, vitreous\ndef make():\n{body}\n")
    with pytest.raises(SystemExit) as end:
        main(["anatomy", "own_broken:make"])
    err = capsys.readouterr().err
    assert end.value.code == 2
    assert all(words in err for words in shown)
    assert (
        err.splitlines()[-1]
        == "'own_broken:make' failed in your own code, as shown above; mend it there."
    )
    assert "cyclopts" not in err
    assert "vitreous/cli.py" not in err
    assert "models/user_functions.py" not in err
