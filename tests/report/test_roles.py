"""What models of an inspection are judged as: by their build, or by a role that is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import vitreous
from claims.synthetic import accuracy
from report.test_judge import run
from vitreous.claims.evidence import Evidence
from vitreous.claims.facts import describe_facts, parse_roles, role_of_build
from vitreous.claims.loading import NO_ROLE, SAME_ROLE, evidence_of, load_evidence
from vitreous.commands.judge import why_not_judged
from vitreous.errors import VitreousError
from vitreous.measure.inspection import Inspection
from vitreous.results import Column, Result


def test_roles() -> None:
    assert parse_roles(["run:mine=vit pool=gap", "b = resnet"]) == {
        "run:mine": "vit pool=gap",
        "b": "resnet",
    }
    with pytest.raises(VitreousError, match=r"There is no fact 'poll'\. Did you mean pool"):
        parse_roles(["a=vit poll=gap"])
    with pytest.raises(
        VitreousError, match=r"There is no model among the facts 'resent'\. Did you mean resnet"
    ):
        parse_roles(["a=resent"])


BUILT: list[tuple[dict[str, Any], str]] = [
    ({"name": "vit_ti/4"}, "vit"),
    ({"name": "vit_ti/4", "pool": "gap"}, "vit pool=gap"),
    ({"name": "vit_ti/4", "pool": "gap_with_class"}, ""),
    ({"name": "vit_ti/4", "pos": "none"}, ""),
    ({"name": "vit_ti/4", "mixer": "mean"}, ""),
    ({"name": "vit_ti/4", "skipless": [3]}, ""),
    ({"name": "preresnet_18", "msa": [0, 0, 0, 0]}, "resnet"),
    ({"name": "preresnet_18", "msa": [0, 0, 1, 1]}, ""),
    ({"name": "resnet_50"}, "resnet"),
    ({"name": "convit_ti/4"}, "convit"),
    ({"name": "convit_ti/4", "conv_init": False}, ""),
    ({"name": "alternet_18"}, "alternet"),
    ({"name": "convnext_t"}, ""),
    ({}, ""),
]


@pytest.mark.parametrize(("build", "role"), BUILT, ids=lambda v: str(v))
def test_a_network_of_ours_is_what_it_was_built_as(build: dict[str, Any], role: str) -> None:
    assert role_of_build(build) == role


def looked_at(**builds: dict[str, Any] | None) -> dict[str, Result]:
    """Accuracies of models of which this is known."""
    known = accuracy(80.0)
    tables = [known.table.assign(model=name) for name in builds]
    about = {**known.about, "models": {name: {"build": build} for name, build in builds.items()}}
    columns = (*known.columns, Column("model", "category", "Made up."))
    return {
        "accuracy": Result("accuracy", pd.concat(tables, ignore_index=True), columns, about=about)
    }


def roles_of(evidence: Evidence) -> dict[str, str]:
    return {
        each.name: describe_facts({k: v for k, v in each.facts.items() if k != "data"})
        for each in evidence.items
    }


def test_only_models_that_are_known_are_judged() -> None:
    """A name tells nothing, and neither do units."""
    results = looked_at(ours={"name": "vit_ti/4", "pool": "gap"}, vit=None, resnet50=None)
    assert roles_of(evidence_of(results)) == {"ours": "vit pool=gap"}
    assert evidence_of(results).not_judged == {"vit": NO_ROLE, "resnet50": NO_ROLE}
    inspection = Inspection(results)
    assert why_not_judged(inspection, {}) == (
        "Nothing says what it is; tell with --role, as in --role NAME='vit pool=gap': vit and "
        "resnet50. No finding is judged on them."
    )
    told = {"vit": "vit", "resnet50": "resnet"}
    assert why_not_judged(inspection, told).startswith("No finding can be judged")


def test_a_role_says_what_a_model_is_and_overrules_its_build() -> None:
    results = looked_at(ours={"name": "vit_ti/4"}, theirs=None)
    evidence = evidence_of(results, {"theirs": "resnet", "ours": "vit pool=gap"})
    assert roles_of(evidence) == {"ours": "vit pool=gap", "theirs": "resnet"}
    assert evidence.not_judged == {}


def test_two_models_with_one_role_are_not_mixed_up() -> None:
    """A ViT-Ti and a ViT-S are both ViTs, and no finding can tell which of them is meant."""
    results = looked_at(small={"name": "vit_ti/4"}, larger={"name": "vit_s/4"})
    evidence = evidence_of(results)
    assert roles_of(evidence) == {"small": "vit"}
    assert evidence.not_judged == {"larger": SAME_ROLE.format(first="small", role="vit")}
    told = evidence_of(results, {"larger": "vit size=s"})
    assert roles_of(told) == {"small": "vit", "larger": "vit size=s"}
    assert told.not_judged == {}


def test_a_checkpoint_is_the_same_model_earlier() -> None:
    vit = {"name": "vit_ti/4"}
    results = looked_at(**{"a": vit, "a@initial": vit, "a@warmup": vit})
    assert roles_of(evidence_of(results)) == {
        "a": "vit",
        "a@initial": "vit checkpoint=start",
        "a@warmup": "vit checkpoint=warmup",
    }


def test_an_inspection_of_models_without_roles_suggests_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    vitreous.Inspection(looked_at(a=None, b=None)).save("numbers")
    code, out, err = run(capsys, "claims", "judge", "numbers")
    assert code == 2
    assert "Nothing says what it is; tell with --role, as in --role NAME='vit pool=gap'" in out
    assert "a and b. No finding is judged on them." in out
    assert "There is nothing to judge in 'numbers'" in err
    given = ["--role", "a=vit", "--role", "b=resnet", "--approximate"]
    code, out, err = run(capsys, "claims", "judge", "numbers", *given, "--only", "HDV-01")
    assert (code, err) == (0, "")
    assert "HDV-01" in out


def test_roles_are_saved_with_the_results(tmp_path: Path) -> None:
    """Those given later have priority, and a role of a model without results does no harm."""
    inspection = vitreous.Inspection(looked_at(a=None, b=None))
    inspection.roles = {"a": "vit", "b": "resnet", "gone": "swin"}
    folder = inspection.save(tmp_path / "numbers")
    assert vitreous.Inspection.load(folder).roles == inspection.roles
    assert roles_of(load_evidence(folder, approximate=True)) == {"a": "vit", "b": "resnet"}
    later = load_evidence(folder, {"a": "deit"}, approximate=True)
    assert roles_of(later) == {"a": "deit", "b": "resnet"}


def test_a_finding_is_judged_again_without_repeating_its_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "from vitreous.models.loading import load_model\n\n"
        "def net():\n    return load_model('nano:resnet').double().float()\n"
    )
    given = ["--probes", "variance", "--limit", "16", "--results", "numbers"]
    code, out, err = run(capsys, "inspect", "net.py:net", *given, "--role", "net.py:net=resnet")
    assert (code, err) == (0, ""), out
    code, out, err = run(capsys, "claims", "judge", "numbers", "--only", "HDV-36")
    assert (code, err) == (0, "")
    assert "reproduced (1)" in out
