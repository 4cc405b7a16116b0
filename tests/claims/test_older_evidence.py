"""Evidence of an older version has intervals but no replicates; it is named with its remedy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from claims.synthetic import accuracy, item, result
from vitreous import claims
from vitreous.claims.evidence import EvidenceItem
from vitreous.claims.facts import read_older_words, write_older_words
from vitreous.claims.loading import load_evidence
from vitreous.claims.no_replicates import NoReplicates
from vitreous.claims.verdicts import judge
from vitreous.cli import main
from vitreous.measure.inspection import Inspection
from vitreous.results import Result
from vitreous.results.replicates import Replicates


def kept(given: Result) -> Result:
    """The result as versions after 0.1 save it."""
    values = given.table["value"].to_numpy(float)
    noise = np.random.default_rng(0).standard_normal((len(values), 200))
    return replace(given, replicates={"value": Replicates.of(values, values[:, None] + noise / 99)})


def save_study(home: Path, *items: EvidenceItem) -> Path:
    for number, each in enumerate(items):
        folder = home / "exhibits" / f"{number:02d}"
        for one in each.results.values():
            one.save(folder)
        index = {
            "study": {"data": "tv:CIFAR10", "scale": "small", "image": None},
            "facts": dict(each.facts),
            "name": each.name,
            "other": "",
            "classes": 10,
            "left_out": {},
            "results": each.marks(),
        }
        (folder / "exhibit.json").write_text(json.dumps(index), encoding="utf-8")
    return home


def save_inspection(home: Path, *results: Result) -> Path:
    Inspection({each.name: each for each in results}).save(home)
    return home


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code, and what was complained about."""
    with pytest.raises(SystemExit) as stopped:
        main(words)
    return int(stopped.value.code or 0), capsys.readouterr().err


def test_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = save_study(tmp_path / "old", item("vit", accuracy(80)))
    code, err = typed(capsys, "claims", "judge", str(home))
    assert (code, err.count("\n")) == (2, 1)
    file = home / "exhibits" / "00" / "accuracy.json"
    assert "accuracy of vit data=cifar10 seed=0 has no bootstrap replicates" in err
    assert f"delete {str(file)!r} and measure it again with `vitreous study " in err
    assert f" --data tv:CIFAR10 --scale small --out {home}`" in err
    assert typed(capsys, "claims", "judge", str(home), "--approximate") == (0, "")
    made = item("vit", accuracy(80))
    made = replace(made, results={"accuracy": kept(made.results["accuracy"])})
    new = save_study(tmp_path / "new", made)
    assert typed(capsys, "claims", "judge", str(new)) == (0, "")


def test_the_study_is_that_of_the_finding(tmp_path: Path) -> None:
    home = save_study(tmp_path, item("vit", accuracy(80)))
    studies = set()
    for claim in claims.every_claim():
        if "accuracy of vit" in map(str, claim.needs()):
            with pytest.raises(NoReplicates, match=f"`{claim.command} --data"):
                judge(load_evidence(home), [claim])
            studies.add(claim.study)
    assert len(studies) > 2


def test_an_inspection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"model": name, "measure": "top-1", "class": "all", "overall": True, "value": value}
        for name, value in (("mine", 0.8), ("other", 0.9))
    ]
    about: dict[str, Any] = {
        "models": {"mine": {"weights": "trained"}, "other": {"weights": "trained"}},
        "data": {"name": "folder:photos", "classes": 10, "fingerprint": "1"},
    }
    old = result("accuracy", rows, **about)
    roles = ("--role", "mine=vit", "--role", "other=resnet")
    home = save_inspection(tmp_path / "old", old)
    code, err = typed(capsys, "claims", "judge", str(home), *roles)
    assert (code, err.count("\n")) == (2, 1)
    assert (
        f"{str(home / 'inspection.json')!r} is written anew by `vitreous inspect mine other" in err
    )
    assert f"--data folder:photos --results {home}`, or judge by intervals alone" in err
    assert typed(capsys, "claims", "judge", str(home), *roles, "--approximate") == (0, "")
    new = save_inspection(tmp_path / "new", kept(old))
    assert typed(capsys, "claims", "judge", str(new), *roles) == (0, "")


def test_replicates_kept_elsewhere_and_numbers_without_images_will_do(tmp_path: Path) -> None:
    """Version 0.1 kept those of accuracy in the header; cost is not measured over images."""
    drawn = [0.8, *np.random.default_rng(0).normal(0.8, 0.01, 200)]
    old = accuracy(80, replicates={"vit": {"top-1": drawn}})
    rows = [{"measure": "images/s", "value": 100.0}]
    home = save_study(tmp_path, item("vit", old, result("cost", rows)))
    [loaded] = load_evidence(home).items
    assert loaded.rows("cost").draws().shape == (201, 1)
    judge(load_evidence(home), claims.every_claim())


def test_evidence_in_memory_needs_no_replicates() -> None:
    assert item("vit", accuracy(80)).rows("accuracy").draws().shape == (201, 1)


def test_checkpoints_were_called_moments(tmp_path: Path) -> None:
    """The first studies wrote `moment` where claims now say `checkpoint`."""
    early = item("vit", accuracy(80), checkpoint="warmup")
    beside = item("vit", accuracy(80), beside="vit checkpoint=start", checkpoint="start")
    home = save_study(tmp_path, early, beside)
    for path in home.glob("exhibits/*/exhibit.json"):
        index = json.loads(path.read_text(encoding="utf-8"))
        older = {name.replace("checkpoint", "moment"): v for name, v in index["facts"].items()}
        if "beside" in older:
            older["beside"] = "vit moment=start"
        path.write_text(json.dumps(index | {"facts": older}), encoding="utf-8")
    loaded = load_evidence(home, approximate=True).items
    assert [dict(each.facts) for each in loaded] == [dict(early.facts), dict(beside.facts)]
    assert [len(each.rows("accuracy")) for each in loaded] == [1, 1]


def test_older_words_are_no_part_of_other_words() -> None:
    text = "vit pool=gap moment=start mymoment=1 checkpoints=2"
    assert read_older_words(text) == "vit pool=gap checkpoint=start mymoment=1 checkpoints=2"
    assert write_older_words(read_older_words(text)) == text
    assert read_older_words("SYN-moment seed=1") == "SYN-moment seed=1"
