"""Every name of the page `reference/api.md`, and with them all public names, has a docstring with
an example that runs. An example may use `vitreous` and what its module imports."""

from __future__ import annotations

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import vitreous

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api.md"
NAMED = re.compile(
    r"^\.\. auto(function|class|exception|module):: ([\w.]+)(?:\(\))?\n(?:   :members: ?(.*)\n)?",
    re.MULTILINE,
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def documented() -> list[str]:
    """Functions and classes by the names of the page; of a module the functions it lists."""
    names: list[str] = []
    for kind, name, members in NAMED.findall(PAGE.read_text(encoding="utf-8")):
        listed = [each.strip() for each in members.split(",")]
        names += [f"{name}.{each}" for each in listed] if kind == "module" else [name]
    return names


def find(name: str) -> Any:
    """The object of a dotted name."""
    module, *rest = name.split(".")
    found: Any = import_module(module)
    for i, part in enumerate(rest):
        if not hasattr(found, part):
            found = import_module(".".join([module, *rest[: i + 1]]))
        else:
            found = getattr(found, part)
    return found


def test_every_public_name_is_on_the_page() -> None:
    homes = {find(name) for name in documented()}
    assert len(homes) > 30
    for name in vitreous.__all__:
        value = getattr(vitreous, name)
        if not inspect.ismodule(value) and name != "__version__":
            assert value in homes, name


@pytest.mark.parametrize("name", documented())
def test_the_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value = find(name)
    monkeypatch.chdir(tmp_path)
    names = {**vars(import_module(value.__module__)), "vitreous": vitreous}
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(value) or "", names, name, None, 0)
    assert test.examples, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    assert runner.run(test).failed == 0, capsys.readouterr().out
