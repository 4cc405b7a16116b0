"""Networks before training are measured beside those inspected, for the verdicts alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from other_books import forgotten_books
from vitreous import Inspection, VitreousError, claims
from vitreous.claims.book import find_claim
from vitreous.claims.loading import load_evidence
from vitreous.claims.verdicts import Verdict, judge
from vitreous.cli import main
from vitreous.commands.judge import judge_inspection
from vitreous.model_names import before_training

GLOBAL = "VIT-14"
"""Heads of the first layer are global, which those of an untrained network are as well."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of results of a bundled model."""
    folder = tmp_path_factory.mktemp("control")
    given = ("--probes", "attention_distance", "accuracy", "--limit", "64", "--device", "cpu")
    where = ("--out", str(folder / "report.html"), "--results", str(folder / "numbers"))
    with pytest.raises(SystemExit) as end:
        main(["inspect", "nano:vit", *given, *where])
    assert end.value.code == 0
    return folder


def verdict(verdicts: list[Verdict]) -> Verdict:
    return next(each for each in verdicts if each.claim.id == GLOBAL)


def test_it_is_measured_and_judged_but_not_shown(home: Path) -> None:
    found = Inspection.load(home / "numbers")
    assert found.control is not None
    assert list(found.control) == ["attention_distance"]  # untrained accuracy is chance
    assert list(found.control.anatomies) == ["nano:vit@initial"]
    assert list(found.anatomies) == ["nano:vit"]
    assert "@initial" not in (home / "report.html").read_text().partition("<main")[2]
    judgement = judge_inspection(found, {})
    assert judgement is not None
    assert verdict(list(judgement.verdicts)).outcome == "holds untrained"
    stored = judge(load_evidence(home / "numbers"), claims.every_claim())
    assert verdict(stored).outcome == "holds untrained"


def test_models_measured_together_are_judged_beside_each_other(tmp_path: Path) -> None:
    """The control of a ViT beside a ResNet is the untrained ViT beside the trained ResNet, as in a
    study."""
    home = tmp_path / "numbers"
    given = ("--probes", "cka", "local_heads", "localisation", "--limit", "64", "--device", "cpu")
    where = ("--out", str(tmp_path / "report.html"), "--results", str(home))
    with pytest.raises(SystemExit) as end:
        main(["inspect", "nano:vit", "nano:resnet", *given, *where])
    assert end.value.code == 0
    evidence = load_evidence(home)
    wanted = [find_claim(claims.every_claim(), f"SLC-{n}") for n in ("06", "07", "13", "19")]
    found = {each.claim.id: each for each in judge(evidence, wanted)}
    assert all(each.measured and not each.missing for each in found.values())
    assert all(each.main is not None and each.main.controlled for each in found.values())
    stored = Inspection.load(home)
    judgement = judge_inspection(stored, {})
    assert judgement is not None
    same = {each.claim.id: each.outcome for each in judgement.verdicts}
    assert {id: same[id] for id in found} == {id: each.outcome for id, each in found.items()}
    assert stored.control is not None
    effect = found["SLC-19"].main
    assert effect is not None
    assert effect.control is not None
    rows = stored.control["localisation"].table.drop_duplicates("model")
    contrast = rows.set_index("model")["contrast"]
    gap = contrast["nano:vit@initial"] - contrast["nano:resnet"]
    assert effect.control.value == pytest.approx(gap, abs=1e-6)
    page = (tmp_path / "report.html").read_text()
    assert "<b>vit</b> is nano:vit and <b>resnet</b> is nano:resnet." in page


ROUGHNESS = """
from vitreous.measure.per_image import PerImage


class Roughness(PerImage):
    name = "roughness"

    def refuses(self, subject, unit):
        return "It has no feature map." if unit.grid is None else None

    def values(self, subject, unit, sites):
        return sites.out.map.diff(dim=-1).abs().mean((1, 2, 3))
"""
BOOK = """
from pathlib import Path
from vitreous.claims.book import Book
from vitreous.claims.effects import more
from vitreous.claims.evidence import reads

BOOK = Book.read(Path(__file__).with_name("rough.toml"))

@reads("roughness")
def growth(rows):
    values = rows.where(kind="mlp").draws()
    return values[:, -1] / values[:, 0]

@BOOK.check("ROUGH-1")
def rougher(models):
    yield more("last over first", growth(models("vit")), 1.0)
"""
FINDING = """
[paper]
key = "ROUGH"
title = "Rough"
authors = "We"
year = 2026
arxiv = ""

[ROUGH-1]
sentence = "Maps of a ViT get rougher."
place = "here"
reported = "more"
study = "rough"
"""


def test_a_probe_of_your_own_has_a_control_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an entry in its book: a forgotten one made findings about architectures
    reproduced."""
    for name, text in (("rough.py", ROUGHNESS), ("notes.py", BOOK), ("rough.toml", FINDING)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    given = ("--probes", "rough.py:Roughness", "--limit", "16", "--device", "cpu")
    with pytest.raises(SystemExit) as end:
        main(["inspect", "nano:vit", *given, "--out", "report.html", "--results", "numbers"])
    assert end.value.code == 0
    with forgotten_books():
        [book] = claims.use_books(["notes.py:BOOK"])
        [claim] = book.claims.values()
        assert "roughness of vit checkpoint=start" in map(str, claim.needs())
        [found] = judge(load_evidence("numbers"), [claim])
    assert found.main is not None
    assert found.main.controlled


def test_where_it_is_missing_the_verdict_says_so(home: Path) -> None:
    found = Inspection.load(home / "numbers")
    found.control = None
    judgement = judge_inspection(found, {})
    assert judgement is not None
    without = verdict(list(judgement.verdicts))
    assert without.outcome == "reproduced"
    assert "may be a property of the architecture" in without.notes[0]


def test_a_control_follows_its_inspection(home: Path, tmp_path: Path) -> None:
    """Joined with others it is kept, and replaced results do not keep that of older ones."""
    found = Inspection.load(home / "numbers")
    assert (found | Inspection({})).control is found.control
    assert (Inspection({}) | found).control is found.control
    folder = found.save(tmp_path / "numbers")
    assert Inspection.load(folder).control is not None
    Inspection(found, found.left_out, found.anatomies).save(folder)
    assert Inspection.load(folder).control is None


def test_which_models_have_a_beginning(tmp_path: Path) -> None:
    weights = tmp_path / "run" / "weights"
    weights.mkdir(parents=True)
    (weights / "initial-1-of-2.safetensors").touch()
    names = ["resnet18", "nano:vit", "nano:vit@warmup", f"run:{tmp_path / 'run'}", "run:nowhere"]
    assert before_training(names) == ["nano:vit@initial", f"run:{tmp_path / 'run'}@initial"]


def test_beside_a_model_of_another_image_size_it_is_judged_as_well(tmp_path: Path) -> None:
    """The fingerprint of images is that of the size in which the first model takes them."""
    noise = np.random.default_rng(0).integers(0, 256, (8, 48, 48, 3), dtype=np.uint8)
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, picture in enumerate(noise):
        Image.fromarray(picture).save(photos / f"{number}.png")
    given = ("--data", str(photos), "--probes", "attention_distance", "--device", "cpu")
    where = ("--out", str(tmp_path / "report.html"), "--results", str(tmp_path / "numbers"))
    with pytest.raises(SystemExit) as end:
        main(["inspect", "test_vit", "nano:vit", *given, *where])
    assert end.value.code == 0
    found = Inspection.load(tmp_path / "numbers")
    assert found.control is not None
    images = [each["attention_distance"].about["data"] for each in (found, found.control)]
    assert images[0]["fingerprint"] != images[1]["fingerprint"], "the sizes are the same"
    assert verdict(judge(load_evidence(tmp_path / "numbers"), claims.every_claim()))
    fewer = Inspection(found, found.left_out, found.anatomies)
    fewer.control = with_images(found.control, 7)
    with pytest.raises(VitreousError, match="cannot be judged together"):
        judge_inspection(fewer, {})


def with_images(inspection: Inspection, count: int) -> Inspection:
    """The same results, said to be of so many images."""
    changed = {
        name: replace(each, about={**each.about, "data": {**each.about["data"], "images": count}})
        for name, each in inspection.items()
    }
    return Inspection(changed, inspection.left_out, inspection.anatomies)
