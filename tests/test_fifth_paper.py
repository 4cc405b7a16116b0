"""The example of a book is planned, run and judged; its probe is checked against a loop."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from other_books import BOOK, forgotten_books, install
from vitreous import claims
from vitreous.claims import facts
from vitreous.claims.evidence import Evidence, EvidenceItem
from vitreous.claims.verdicts import Verdict, judge
from vitreous.cli import main
from vitreous.commands.study import run_study
from vitreous.results import Column, Result
from vitreous.results.replicates import Replicates
from vitreous.studies import scales


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with forgotten_books():
        yield


# Planned, run and judged.


def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a training of the scale sanity take a moment."""
    sanity = scales.SCALES["sanity"]
    short = sanity.recipe.but(epochs=1, warmup=0.0, batch=32)
    images = replace(sanity.images, size=64)  # 512 tests: fewer could not exclude outliers
    monkeypatch.setitem(
        scales.SCALES, "sanity", replace(sanity, recipe=short, images=images, epoch_factors={})
    )


def test_planned_run_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny(monkeypatch)
    out = tmp_path / "study"
    run_study(book=(BOOK,), dry_run=True, out=out, device="cpu", workers=1)
    planned = capsys.readouterr().out
    assert "3 cells, 3 of them trainings" in planned
    assert "registers 4" in planned

    run_study(book=(BOOK,), out=out, device="cpu", workers=1)
    rows = list(csv.DictReader((out / "verdicts.csv").read_text().splitlines()))
    main_rows = {row["claim"]: row for row in rows if row["role"] == "main"}
    assert {id: row["verdict"] for id, row in main_rows.items()} == {
        "REG-01": "no effect",
        "REG-02": "no effect",
        "REG-03": "not testable here",
        "REG-04": "not testable here",
        "REG-05": "no effect",
    }
    assert not any(row["missing"] for row in rows)
    assert all(main_rows[id]["untrained"] for id in ("REG-01", "REG-02", "REG-05"))
    runs = {
        json.loads(path.read_text())["model"].get("load", {}).get("name"): path.parent
        for path in (out / "trainings").glob("*/recipe.json")
    }
    assert "fifth_paper.networks:with_registers" in runs
    judge_one_run(runs["fifth_paper.networks:with_registers"], tmp_path, capsys)


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints that ends well."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 0, capsys.readouterr().err
    return " ".join(capsys.readouterr().out.split())


def judge_one_run(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that is there already is measured and judged without a study."""
    name, out = f"run:{folder}", str(tmp_path / "out")
    report = str(tmp_path / "report.html")
    images = ("--data", "world:shapes", "--limit", "512", "--device", "cpu")
    probe = ("--probes", "token_norm", "--book", BOOK)
    typed(capsys, "inspect", name, *images, *probe, "--results", out, "--out", report)
    role = f"{name}=large_vit"
    said = typed(capsys, "claims", "judge", out, "--book", BOOK, "--role", role, "--only", "REG-01")
    assert said.startswith("1 claim, 1 of them measured. 1 no effect.")
    assert "seen once" in said


def test_a_model_with_random_weights_gets_a_warning_and_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the package installed nothing has to be given; random weights are no evidence."""
    install(
        monkeypatch,
        books={"registers": BOOK},
        probes={"token_norm": "fifth_paper.token_norm:TokenNorm"},
    )
    monkeypatch.chdir(tmp_path)
    models = ("nano:vit", "vit_tiny_patch16_224")
    few = ("--limit", "8", "--image", "32", "--device", "cpu")
    typed(capsys, "inspect", *models, "--probes", "token_norm", "--results", "out", *few)
    roles = ("--role", "nano:vit=large_vit", "--role", "vit_tiny_patch16_224=small_vit")
    said = typed(capsys, "claims", "judge", "out", *roles, "--only", "REG-01,REG-05")
    assert "Random weights: vit_tiny_patch16_224" in said
    assert "at least 12 blocks; this one has 6" in said
    assert "Missing: token_norm of small_vit. vitreous study registers measures it." in said


# The checks, on made-up tables.


def evidence(share: float = 0.03, neighbours: float = 0.3, blocks: int = 12) -> Evidence:
    """Large ViTs without and with registers, and a small one; the first has outliers."""
    models = {"large_vit": share, "large_vit registers=4": 0.0, "small_vit": 0.0}
    return Evidence([item(role, share, neighbours, blocks) for role, share in models.items()])


def item(role: str, share: float, neighbours: float, blocks: int) -> EvidenceItem:
    rows: list[dict[str, Any]] = []
    for block in range(blocks):
        here = share if block >= 0.4 * blocks else 0.0
        numbers = {"outliers": here, "ratio": 10.0, "neighbours": neighbours if here else np.nan}
        for measure, value in numbers.items():
            images = 512 if np.isfinite(value) else 0
            place = {"model": role, "unit": f"blocks.{block}.mlp", "kind": "mlp"}
            rows.append({**place, "measure": measure, "value": value, "n": images})
    table = pd.DataFrame(rows)
    values = table["value"].to_numpy()
    noise = 1 + 0.05 * np.random.default_rng(0).standard_normal(200)
    about = {"data": {"classes": 100, "image": [224, 224]}}
    kept = Replicates.of(values, values[:, None] * noise)
    columns = [
        Column(name, "quantity" if name in ("value", "n") else "category", name)
        for name in table.columns
    ]
    result = Result("token_norm", table, tuple(columns), about=about, replicates={"value": kept})
    named = facts.parse_facts(role)
    return EvidenceItem({**named, "data": "photos"}, {"token_norm": result}, role, classes=100)


def verdicts(given: Evidence) -> dict[str, Verdict]:
    [book] = claims.use_books([BOOK])
    return {each.claim.id: each for each in judge(given, list(book))}


def test_a_model_with_outliers_reproduces_all() -> None:
    found = verdicts(evidence())
    assert {id: each.outcome for id, each in found.items()} == dict.fromkeys(
        ("REG-01", "REG-02", "REG-03", "REG-04", "REG-05"), "reproduced"
    )
    assert all(each.seen_once for each in found.values())


def test_a_model_without_outliers_has_nothing_to_remove() -> None:
    found = verdicts(evidence(share=0.0))
    assert found["REG-01"].outcome == "no effect"
    assert found["REG-04"].outcome == "not testable here"
    assert "it has 0.00%" in " ".join(found["REG-04"].notes)


def test_a_shallow_model_is_not_testable() -> None:
    found = verdicts(evidence(blocks=6))
    assert {each.outcome for each in found.values()} == {"not testable here"}
    assert "at least 12 blocks; this one has 6" in found["REG-02"].notes[0]


def test_what_is_missing_names_the_command_with_the_book() -> None:
    found = verdicts(Evidence([]))
    assert found["REG-01"].command == f"vitreous study registers --book {BOOK}"


# The probe.


def test_the_probe_equals_a_loop() -> None:
    claims.use_books([BOOK])
    module = __import__("fifth_paper.token_norm", fromlist=["TokenNorm"])
    maps = torch.randn(2, 8, 3, 4)
    maps[0, :, 1, 2] *= 20
    norms, similarity = module.norms(maps), module.neighbour_similarity(maps)
    found = module.describe_norms(norms, similarity, 4.0)
    for image in range(2):
        tokens = maps[image].permute(1, 2, 0).numpy().astype(np.float64)
        lengths = np.sqrt((tokens**2).sum(-1))
        cosine = np.zeros((3, 4))
        for row, column in np.ndindex(3, 4):
            near = [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
            inside = [(r, c) for r, c in near if 0 <= r < 3 and 0 <= c < 4]
            one = tokens[row, column]
            cosine[row, column] = np.mean(
                [one @ tokens[at] / lengths[row, column] / lengths[at] for at in inside]
            )
        np.testing.assert_allclose(similarity[image], cosine.ravel(), rtol=1e-4, atol=1e-6)
        median = np.sort(lengths.ravel())[5]  # the lower of the two in the middle, as torch has it
        outlier = lengths > 4 * median
        wanted = [lengths.max(), median, lengths.max() / median, outlier.mean()]
        np.testing.assert_allclose(found[image, :4], wanted, rtol=1e-5)
        if outlier.any():
            difference = cosine[outlier].mean() - cosine[~outlier].mean()
            np.testing.assert_allclose(found[image, 4], difference, rtol=1e-4)
        else:
            assert bool(found[image, 4].isnan())
    assert float(found[0, 3]) == pytest.approx(1 / 12)
