"""Kept verdicts are those that the claims give today on the evidence kept beside them."""

from __future__ import annotations

import csv
from functools import cache
from io import StringIO
from pathlib import Path
from statistics import mean
from zipfile import ZipFile

import pytest

from generators import generator
from vitreous.claims.verdicts import Verdict
from vitreous.commands.judge import verdicts_csv

NUMBERS = ("value", "low", "high", "threshold", "untrained")
ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
KEPT = sorted(generator("verdicts").HOW)
"""The names of the studies."""


@cache
def verdicts(name: str) -> list[Verdict]:
    found: list[Verdict] = generator("verdicts").verdicts(name)[0]
    return found


def test_every_archive_belongs_to_one_study() -> None:
    found = [path for name in KEPT for path in generator("verdicts").archives(name)]
    assert sorted(found) == sorted(RESULTS.glob("*.zip"))


@pytest.mark.parametrize("name", KEPT)
def test_the_table_is_what_the_evidence_gives(name: str) -> None:
    kept = list(csv.DictReader(StringIO((RESULTS / f"{name}.csv").read_text(encoding="utf-8"))))
    now = list(csv.DictReader(StringIO(verdicts_csv(verdicts(name)))))
    assert [list(row) for row in kept[:1]] == [list(row) for row in now[:1]], "other columns"
    assert [(row["claim"], row["effect"]) for row in kept] == [
        (row["claim"], row["effect"]) for row in now
    ]
    for one, other in zip(kept, now, strict=True):
        for column, value in one.items():
            if column in NUMBERS and value and other[column]:
                assert float(other[column]) == pytest.approx(
                    float(value), rel=1e-6, abs=1e-9, nan_ok=True
                )
            else:
                assert other[column] == value, (one["claim"], column)


@pytest.mark.parametrize("name", KEPT)
def test_the_summary_is_what_the_evidence_gives(name: str) -> None:
    said = generator("verdicts").summary(name, verdicts(name))
    assert (RESULTS / f"{name}.md").read_text(encoding="utf-8") == said, (
        "run docs/generate_verdicts.py"
    )


@pytest.mark.parametrize("name", KEPT)
def test_the_manual_mentions_every_opposite_or_absent_effect(name: str) -> None:
    manual = (ROOT / "docs" / "explanation" / "reproduction.md").read_text(encoding="utf-8")
    _, _, section = manual.partition(f"(../../results/{name}.csv)")
    section = section.partition("\n## ")[0]
    assert section
    for verdict in verdicts(name):
        if verdict.outcome in ("opposite", "no effect"):
            assert verdict.claim.id in section, verdict.outcome


def test_the_manual_has_every_accuracy_of_the_reproduction() -> None:
    trainings: list[dict[str, str]] = []
    for path in generator("verdicts").archives("cifar10-reproduction"):
        with ZipFile(path) as archive:
            trainings += csv.DictReader(StringIO(archive.read("trainings.csv").decode()))
    manual = (ROOT / "docs" / "explanation" / "reproduction.md").read_text(encoding="utf-8")
    for network, name, least in (("resnet_18", "ResNet-18", 0.945), ("vit_ti", "ViT-Ti/4", 0.9)):
        own = sorted((each for each in trainings if each["network"] == network), key=_seed)
        assert [_seed(each) for each in own] == [0, 1, 2]
        assert all(each["recipe"] == "hdv_cifar" and each["epochs"] == "305" for each in own)
        accuracies = [float(each["accuracy"]) for each in own]
        assert mean(accuracies) >= least
        losses = ", ".join(f"{float(each['train_nll']):.3f}" for each in own)
        shown = ", ".join(f"{100 * each:.2f}" for each in accuracies)
        row = f"| {name}, seeds 0, 1, 2 | {shown} % | {100 * mean(accuracies):.2f} % | {losses} |"
        assert row in manual


def _seed(training: dict[str, str]) -> int:
    return int(training["seed"])


def test_the_page_on_power_is_what_the_evidence_gives() -> None:
    """Every claim has its row; the numbers are those of today."""
    every = [verdict for name in KEPT for verdict in verdicts(name)]
    page = generator("power").page(every)
    kept = (ROOT / "docs" / "reference" / "power.md").read_text(encoding="utf-8")
    assert kept == page, "run docs/generate_power.py"
    for verdict in verdicts(KEPT[0]):
        assert f"| {verdict.claim.id} | " in kept
