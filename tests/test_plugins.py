"""Probes, analyses, models, recipes and books from files; every mistake is one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vitreous
from plugin_files import (
    ANALYSIS,
    FEW,
    PROBE,
    forgotten_plugins,
    typed,
)
from vitreous.errors import VitreousError
from vitreous.measure import probes, report_section
from vitreous.measure.subject import subjects
from vitreous.report import write


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    """The current folder, with a probe, an analysis, a recipe and a model."""
    with forgotten_plugins(tmp_path) as folder:
        yield folder


# From a file.


def test_a_probe_from_a_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It measures what NumPy does, and has its section, sentence and origin in the report."""
    given = ("--probes", "my_probe.py:TokenNorm", "--results", "numbers", "--out", "page.html")
    code, _, err = typed(capsys, "inspect", "nano:vit", *FEW, *given)
    assert code == 0, err
    page = Path("page.html").read_text()
    assert "How long are tokens?" in page
    assert "Tokens have a length." in page
    result = vitreous.Inspection.load("numbers")["token_norm"]
    data = vitreous.data.load("world:shapes", split="test", size=8)
    [subject] = subjects("nano:vit")
    seen = subject.specimen.observe(subject.for_dataset(data).prepare(data.images), ("out",))
    unit = subject.specimen.units[3]
    out = seen[unit.name].out
    assert out is not None
    tokens = out.tokens.detach().numpy().astype(np.float64)
    [row] = result.table[result.table["unit"] == unit.name].to_dict("records")
    assert row["value"] == pytest.approx(np.sqrt((tokens**2).sum(-1)).mean(), rel=1e-5)
    assert result.about["plugin"]["from"] == f"{home / 'my_probe.py'}:TokenNorm"
    assert result.views[0].x == "depth"  # by default


SHORT = """
from vitreous.measure.per_image import PerImage


class Short(PerImage):
    name = "short"

    def values(self, subject, unit, sites):
        return sites.out.tokens.norm(dim=-1).mean(1)


class Blind(Short):
    name, sites = "blind", ()


class Empty(Short):
    name = "empty"

    def rows(self, sums, subjects):
        return []
"""


def test_a_probe_of_name_and_values_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It measures what one that names its sites does; one without a row says so."""
    (home / "short.py").write_text(SHORT)
    given = ["short.py:Short", "short.py:Blind", "short.py:Empty", "my_probe.py:TokenNorm"]
    asked = ("inspect", "nano:vit", *FEW, "--probes", *given, "--results", "n")
    code, out, err = typed(capsys, *asked)
    assert code == 0, err
    found = vitreous.Inspection.load("n")
    assert set(found) == {"short", "token_norm"}
    short, full = (found[name].table.set_index("unit")["value"] for name in found)
    assert len(full) > 5
    pd.testing.assert_series_equal(short[full.index], full)
    said = " ".join(out.split())
    assert "2 measurements on 8 images" in said
    assert "Left out: blind of nano:vit. The probe observes no unit, since its 'sites' are" in said
    assert "Left out: empty of nano:vit. The probe observes its units, and its result has" in said


def test_results_without_their_plugin(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table, the charts and the section's title are there; only sentences need the class."""
    found = vitreous.inspect("nano:vit", probes=["my_probe.py:TokenNorm"], limit=8)
    found.save("numbers")
    probes.REGISTRY.given.clear()
    monkeypatch.setattr(report_section, "_subclasses", lambda parent: iter(()))
    stored = vitreous.Inspection.load("numbers")
    assert report_section.sentences_of(stored["token_norm"]) == []
    assert report_section.section_of("token_norm", stored["token_norm"]).group == "representation"
    assert report_section.section_of("token_norm").group == "more"
    write(stored, home / "page.html")
    page = (home / "page.html").read_text()
    assert "How long are tokens?" in page
    assert 'data-save="token_norm-0"' in page
    pd.testing.assert_frame_equal(stored["token_norm"].table, found["token_norm"].table)


def test_an_analysis_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    """It is a command, and one of those that `inspect` runs; both take its options."""
    place = "my_analysis.py:Count"
    code, out, err = typed(capsys, place, "nano:vit", *FEW, "--set", "times=3", "--results", "one")
    assert (code, "Wrote count_images-nano-vit.html" in out) == (0, True), err
    assert vitreous.Inspection.load("one")["count_images"].table["value"].tolist() == [24]
    given = ("--probes", "cost", "--analyses", place, "--set", "count_images.times=4")
    code, _, err = typed(capsys, "inspect", "nano:vit", *FEW, *given, "--results", "two")
    assert code == 0, err
    found = vitreous.Inspection.load("two")
    assert set(found) == {"cost", "count_images"}
    assert found["count_images"].table["value"].tolist() == [32]
    again = vitreous.analyse("nano:vit", analyses={place: {"times": 1}}, limit=8)
    assert again["count_images"].table["value"].tolist() == [8]


@pytest.mark.parametrize("name", ["short", "fixed"])
def test_a_recipe_and_a_model_from_files(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--size", "64", "--test-size", "32", "--device", "cpu", "--quiet", "--out", "run")
    code, out, err = typed(
        capsys, "train", "my_model.py:make", "--recipe", f"my_recipe.py:{name}", *data
    )
    assert (code, out.startswith("run: test accuracy")) == (0, True), err
    assert vitreous.open("run:run", image=32).anatomy.counts()["head"] == 1
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")  # a run knows where its model's file is
    assert vitreous.open("run:../run", image=32).anatomy.counts()["head"] == 1


def test_the_same_class_by_file_and_module(home: Path) -> None:
    (home / "mine").mkdir()
    (home / "mine" / "__init__.py").touch()
    (home / "mine" / "norms.py").write_text(PROBE)
    by_file = probes.named("mine/norms.py:TokenNorm")
    assert probes.named("mine.norms:TokenNorm") is by_file
    assert probes.named("token_norm") is by_file


def test_a_package_whose_name_is_taken(home: Path) -> None:
    """By an installed one, say: it says which, instead of a module that is not found."""
    (home / "json").mkdir()
    (home / "json" / "__init__.py").touch()
    (home / "json" / "norms.py").write_text(PROBE)
    with pytest.raises(VitreousError, match=r"its package is called json.*json.__init__\.py\. Re"):
        probes.named("json/norms.py:TokenNorm")


def test_a_file_that_was_edited_is_run_again(home: Path) -> None:
    """As in a notebook: what is measured is what the file says now."""
    (before,) = vitreous.inspect("nano:vit", probes="my_probe.py:TokenNorm", limit=4).values()
    (home / "my_probe.py").write_text(PROBE.replace(".mean(1)", ".mean(1) * 2"))
    (after,) = vitreous.inspect("nano:vit", probes="my_probe.py:TokenNorm", limit=4).values()
    pd.testing.assert_series_equal(after.table["value"], before.table["value"] * 2)


def test_a_mended_plugin_starts_anew_and_is_never_mixed_with_what_it_was(home: Path) -> None:
    broken = PROBE.replace(".mean(1)", ".mean(7)")
    (home / "my_probe.py").write_text(broken)
    with pytest.raises(IndexError):
        vitreous.inspect("nano:vit", probes="my_probe.py:TokenNorm", limit=4, keep="kept")
    (home / "my_probe.py").write_text(PROBE)
    vitreous.inspect("nano:vit", probes="my_probe.py:TokenNorm", limit=4, keep="kept")
    (home / "my_probe.py").write_text(PROBE.replace(".mean(1)", ".mean(1) * 2"))
    with pytest.raises(VitreousError, match=r"holds another run: probes\.token_norm\.plugin"):
        vitreous.inspect("nano:vit", probes="my_probe.py:TokenNorm", limit=4, keep="kept")


# Every mistake is one sentence.

COMMANDS = {
    "probe": ("inspect", "nano:vit", "--limit", "4", "--out", "x.html", "--probes"),
    "analysis": ("inspect", "nano:vit", "--limit", "4", "--out", "x.html", "--analyses"),
    "recipe": ("train", "vit_nano", "--recipe"),
    "book": ("claims", "list", "--book"),
}
FILES = {"probe": "my_probe", "analysis": "my_analysis", "recipe": "my_recipe"}


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        (None, "gone.py:Thing", r"There is no file 'gone\.py'\."),
        ("\n\nraise ValueError('no')", "bad.py:Thing", r"ValueError: no \(bad\.py, line 3\)\.$"),
        ("x = (", "bad.py:Thing", r"SyntaxError: .*bad\.py, line 1"),
        ("import sys\nsys.exit(3)", "bad.py:Thing", r"SystemExit: 3 \(bad\.py, line 2\)"),
        ("import torchh", "bad.py:Thing", r"ModuleNotFoundError: .*torchh.*\(bad\.py, line 1\)"),
        ("import torch\ntorch.ones(2) + torch.ones(3)", "bad.py:T", r"\(bad\.py, line 2\)\.$"),
        ("", "bad.py:Thing", r"There is no \w+ '.*bad\.py:Thing'\. .*bad\.py has none\.$"),
        ("Thing = 3", "bad.py:Thing", r"bad\.py:Thing' is no \w+: it is an int, and has to be "),
        ("def Thing(): pass", "bad.py", r"'bad\.py' is a file; name the \w+ .*bad\.py:Thing\.$"),
        ("", "bad.py:not-a-name", r"is given as MODULE:NAME or FILE\.py:NAME"),
        ("", "nowhere_at_all.module:Thing", r"There is no module 'nowhere_at_all'\."),
        ("", "bad.txt:Thing", r"There is no module 'bad\.txt'\."),
    ],
)
def test_a_file_that_is_wrong(
    what: str,
    text: str | None,
    place: str,
    says: str,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if text is not None:
        (home / "bad.py").write_text(text)
    code, _, err = typed(capsys, *COMMANDS[what], place)
    assert (code, err.count("\n")) == (2, 1), err
    assert re.search(says, err.strip()), err
    assert "this is a bug" not in err.lower()


@pytest.mark.parametrize("what", FILES)
def test_the_nearest_names_of_a_file(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    near = {"probe": "TokenNorn", "analysis": "Cuont", "recipe": "shorts"}[what]
    meant = {"probe": "TokenNorm", "analysis": "Count", "recipe": "short"}[what]
    code, _, err = typed(capsys, *COMMANDS[what], f"{FILES[what]}.py:{near}")
    assert code == 2
    assert f"Did you mean {FILES[what]}.py:{meant}" in err
    assert "PerImage" not in err  # which the file imports


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (PROBE.replace('name = "token_norm"', ""), r"has the name None; write one in its class"),
        (PROBE.replace('"token_norm"', '"a name"'), r"has the name 'a name'; write one"),
        (PROBE.replace('"token_norm"', '"variance"'), r"calls itself 'variance', the name of a pr"),
        (PROBE.replace("def values", "def valeus"), r"is incomplete: it lacks values\.$"),
        (PROBE.replace(".mean(1)", ".sum()"), r"returned \(\) as the values of '.*' for 4 images"),
        (PROBE.replace(".mean(1)", ""), r"returned \(4, \d+\) as .*; it has to be a tensor \(ima"),
        (PROBE.replace(".mean(1)", ".tolist()"), r"returned list as the values"),
        (PROBE.replace('"representation"', '"norms"'), r"There is no group of sections 'norms'"),
        (PROBE + "\n    def __init__(self, k): pass", r"cannot be made with the options .*default"),
    ],
)
def test_a_probe_that_is_wrong(
    text: str, says: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "my_probe.py").write_text(text)
    code, _, err = typed(capsys, *COMMANDS["probe"], "my_probe.py:TokenNorm")
    assert (code, err.count("\n")) == (2, 1), err
    assert re.search(says, err.strip()), err


@pytest.mark.parametrize(
    ("file", "text", "words", "line"),
    [
        ("my_probe.py", PROBE.replace(".mean(1)", ".mean(7)"), COMMANDS["probe"], 17),
        ("my_probe.py", PROBE.replace("unit.grid", "unit.gird"), COMMANDS["probe"], 14),
        ("my_analysis.py", ANALYSIS.replace("sum(len", "1 / 0, sum(len"), COMMANDS["analysis"], 29),
    ],
)
def test_code_that_raises_while_it_measures(
    file: str,
    text: str,
    words: tuple[str, ...],
    line: int,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Your line and the error, then our sentence; not "this is a bug of Vitreous"."""
    (home / file).write_text(text)
    name = {"my_probe.py": "TokenNorm", "my_analysis.py": "Count"}[file]
    code, _, err = typed(capsys, *words, f"{file}:{name}")
    assert code == 2
    assert f'{file}", line {line}' in err
    assert err.splitlines()[-1].endswith("failed in your own code, as shown above; mend it there.")
    assert "cyclopts" not in err
    assert "vitreous/" not in err.replace(str(home), "")


def test_two_with_one_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "other.py").write_text(PROBE)
    both = ("my_probe.py:TokenNorm", "other.py:TokenNorm")
    code, _, err = typed(capsys, *COMMANDS["probe"], *both)
    assert (code, err.count("\n")) == (2, 1)
    assert re.search(r"my_probe\.py:TokenNorm and other\.py:TokenNorm are two probes with one", err)
