"""The worked examples of CONTRIBUTING, added to a copy of the repository, pass their tests.

An example is a section "### A model", "### A probe", …. Each of its blocks is one file, named by
the comment in its first line; a block for a file that exists is appended to it. What is run are
the commands `pytest …` in the section's text.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

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
    assert {"model", "probe", "claim"} <= set(EXAMPLES)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_works_as_the_text_says(kind: str, tmp_path: Path) -> None:
    files = {Path(name): text for name, text in FILE.findall(EXAMPLES[kind])}
    commands = COMMAND.findall(EXAMPLES[kind])
    assert files
    assert commands
    repository = tmp_path / "repository"
    copy(ROOT, repository, files)
    environment = {
        **os.environ,
        "PYTHONPATH": str(repository / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    python = [str(path) for path in files if path.suffix == ".py"]
    calls = [["ruff", "check", *python], ["ruff", "format", "--check", *python]]
    calls += [["pytest", "-p", "no:cacheprovider", *shlex.split(command)] for command in commands]
    for call in calls:
        done = subprocess.run(
            [sys.executable, "-m", *call],
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{' '.join(call)}\n{done.stdout}{done.stderr}"
