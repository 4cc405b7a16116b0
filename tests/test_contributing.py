"""The worked examples of CONTRIBUTING, added to a copy of the repository, pass their tests.

An example is a section "### A model", "### A probe", …. Each of its blocks is one file, named by
the comment in its first line; a block for a file that exists is appended to it. What is run are
the commands `pytest …` in the section's text.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parent.parent
SECTION = re.compile(r"^### An? (\w+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
FILE = re.compile(
    r"^```(?:python|toml)\n# (\S+\.(?:py|toml))\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
COMMAND = re.compile(r"`pytest ([^`]+)`")
EXAMPLES: dict[str, str] = dict(
    SECTION.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
)


def copy(source: Path, target: Path, files: dict[Path, str]) -> None:
    """Copy a folder, by links, and add `files` (paths below it) to the copy."""
    target.mkdir()
    changed = {path.parts[0] for path in files}
    for each in source.iterdir():
        if each.name not in changed and not each.name.startswith("."):
            (target / each.name).symlink_to(each)
    for name in changed:
        inside = {
            path.relative_to(name): text for path, text in files.items() if path.parts[0] == name
        }
        if Path() not in inside:
            copy(source / name, target / name, inside)
            continue
        before = (
            (source / name).read_text(encoding="utf-8") + "\n\n" if (source / name).exists() else ""
        )
        (target / name).write_text(before + inside[Path()], encoding="utf-8")


def test_there_are_examples() -> None:
    assert {"model", "probe", "analysis", "claim"} <= set(EXAMPLES)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """How each test ended that the commands of all examples select, in one process.

    One copy has the files of all examples. A command names files and has one `-k`, so that all
    commands together are one that names all files and has an `or` of the selections.
    """
    files = {Path(name): text for each in EXAMPLES.values() for name, text in FILE.findall(each)}
    python = [str(path) for path in files if path.suffix == ".py"]
    repository = tmp_path_factory.mktemp("contributing") / "repository"
    copy(ROOT, repository, files)
    paths: dict[str, None] = {}
    chosen = []
    for kind in EXAMPLES:
        for given in commands(kind):
            paths |= dict.fromkeys(given.files)
            chosen.append(f"({given.k})")
    run(repository, "ruff", "check", *python)
    run(repository, "ruff", "format", "--check", *python)
    report = repository / "report.xml"
    how = ["-p", "no:cacheprovider", f"--junitxml={report}", "-k", " or ".join(chosen)]
    run(repository, "pytest", *how, *paths)
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        found[f"{file}::{case.attrib['name']}"] = "skipped" if len(case) else "passed"
    return found


def commands(kind: str) -> list[argparse.Namespace]:
    """The calls of pytest in the text of an example: files, and what `-k` selects of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("-k", default="test")
    return [parser.parse_args(shlex.split(each)) for each in COMMAND.findall(EXAMPLES[kind])]


def run(repository: Path, *call: str) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(repository / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",  # the folders of the copy are links to ours
    }
    done = subprocess.run(
        [sys.executable, "-m", *call],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{' '.join(call)}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_works_as_the_text_says(kind: str, outcomes: dict[str, str]) -> None:
    """Every file that a command names has a test that the command selects, and it passes."""
    assert FILE.findall(EXAMPLES[kind])
    assert commands(kind)
    for given in commands(kind):
        word = re.sub(r"\s+and not \w+", "", given.k)
        for file in given.files:
            own = [
                outcome
                for test, outcome in outcomes.items()
                if test.startswith(f"{file}::") and (given.k == "test" or word in test)
            ]
            assert "passed" in own, f"pytest {file} -k {given.k!r} selects nothing that passes."
