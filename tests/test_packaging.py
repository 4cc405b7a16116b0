"""What packaging says in several places is the same in all of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

import vitreous

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


def test_one_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {vitreous.__version__}\n" in citation
    assert PROJECT["project"]["version"] == vitreous.__version__
    page = (ROOT / "docs" / "how-to" / "install.md").read_text("utf-8")
    assert f"vitreous-{vitreous.__version__}-" in page


def test_every_promised_python_and_system_is_tested() -> None:
    kind = "Programming Language :: Python :: "
    promised = [
        each.removeprefix(kind)
        for each in PROJECT["project"]["classifiers"]
        if each.startswith(kind)
    ]
    [matrix] = re.findall(r"python: \[(.+)\]", WORKFLOW)
    assert [version.strip(' "') for version in matrix.split(",")] == promised
    assert PROJECT["project"]["requires-python"] == f">={promised[0]}"
    for system in ("ubuntu", "macos", "windows"):
        assert WORKFLOW.count(f"{system}-latest") >= 2
    assert "lowest-direct" in WORKFLOW
    assert "--upgrade" in WORKFLOW


def test_the_source_package_contains_the_listed_files() -> None:
    named = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_pinned_versions_satisfy_the_lowest() -> None:
    """`make constraints` was run after a change to pyproject.toml."""
    pins: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if pin := re.match(r"([\w.-]+)==([\w.+!]+)", line):
            pins.setdefault(pin[1].lower().replace("_", "-"), []).append(pin[2])
    needs = [*PROJECT["project"]["dependencies"]]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        needs += extra
    for text in needs:
        needed = Requirement(text)
        found = pins[needed.name.lower().replace("_", "-")]
        assert all(needed.specifier.contains(version) for version in found), needed
