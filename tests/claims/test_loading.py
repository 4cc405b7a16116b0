"""Evidence from disk and from inspections: a model is what its build or its user says, or
nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claims.synthetic import result
from vitreous.claims import every_claim
from vitreous.claims.evidence import Evidence
from vitreous.claims.loading import (
    NO_ROLE,
    ONE_IMAGE,
    RANDOM,
    evidence_of,
    load_evidence,
    load_item,
    unjudged,
)
from vitreous.claims.verdicts import judge
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.inspection import Inspection
from vitreous.results import Result
from vitreous.storage.atomic_files import Damaged

VIT = {"build": {"name": "vit_ti/4", "pool": "class"}}
RESNET = {"build": {"name": "preresnet_18"}}
CONVNEXT = {"source": "timm", "architecture": "convnext_tiny"}


def measured(
    models: dict[str, dict[str, Any]],
    data: str = "cifar10",
    name: str = "accuracy",
    percent: float = 50.0,
) -> Result:
    rows = [
        {"model": model, "measure": "top-1", "overall": True, "value": percent / 100}
        for model in models
    ]
    units = {model: [["stem", "stem", 0.0], ["a", "conv", 1.0]] for model in models}
    about = {"name": data, "fingerprint": data, "classes": 10}
    return result(name, rows, models=models, units=units, data=about)


def judged(roles: dict[str, str] | None = None, **models: dict[str, Any]) -> Evidence:
    return evidence_of({"accuracy": measured(models)}, roles)


def test_a_build_says_what_a_model_is() -> None:
    found = judged(
        mine=VIT,
        other=RESNET,
        mean={"build": {"name": "vit_ti/4", "pool": "gap"}},
        gated={"build": {"name": "convit_ti/4"}},
    )
    assert {each.name: dict(each.facts) for each in found.items} == {
        "mine": {"model": "vit", "data": "cifar10"},
        "other": {"model": "resnet", "data": "cifar10"},
        "mean": {"model": "vit", "pool": "gap", "data": "cifar10"},
        "gated": {"model": "convit", "data": "cifar10"},
    }
    assert found.not_judged == {}


@pytest.mark.parametrize("record", [CONVNEXT, {}, {"build": None}, {"build": {"name": "mine"}}])
def test_roles_are_not_guessed_from_units(record: dict[str, Any]) -> None:
    """Its units are those of a ResNet, and still it is none."""
    found = judged(mine=VIT, convnext=record)
    assert [each.name for each in found.items] == ["mine"]
    assert found.not_judged == {"convnext": NO_ROLE}
    assert "--role" in NO_ROLE


def test_given_roles_override_the_build() -> None:
    found = judged(
        {"mine": "vit pool=gap checkpoint=warmup", "x": "resnet"}, mine=RESNET, x=CONVNEXT
    )
    assert [dict(each.facts) for each in found.items] == [
        {"model": "vit", "pool": "gap", "checkpoint": "warmup", "data": "cifar10"},
        {"model": "resnet", "data": "cifar10"},
    ]
    assert found.not_judged == {}


def test_a_role_of_no_model_and_a_role_of_no_meaning() -> None:
    with pytest.raises(UnknownName, match=r"'mien'\. Did you mean mine\?.*They are mine"):
        judged({"mien": "vit"}, mine=VIT)
    with pytest.raises(UnknownName, match=r"'vitt'"):
        judged({"mine": "vitt"}, mine=VIT)
    with pytest.raises(UnknownName, match=r"'pol'\. Did you mean pool"):
        judged({"mine": "vit pol=gap"}, mine=VIT)


@pytest.mark.parametrize(
    ("name", "checkpoint"),
    [("vit@initial", "start"), ("vit@warmup", "warmup"), ("vit@final", None), ("vit", None)],
)
def test_checkpoints_are_named_as_claims_name_them(name: str, checkpoint: str | None) -> None:
    (found,) = evidence_of({"accuracy": measured({name: VIT})}).items
    assert found.facts.get("checkpoint") == checkpoint


def test_of_two_with_the_same_role_the_first_counts() -> None:
    found = judged(one=VIT, two=VIT)
    assert [each.name for each in found.items] == ["one"]


def test_random_weights_and_models_at_chance_are_not_judged() -> None:
    random = {**VIT, "weights": "random"}
    results = {"accuracy": measured({"new": random, "net": RESNET})}
    assert unjudged(results) == {"new": RANDOM}
    found = evidence_of(results, {"new": "vit"})
    assert [each.name for each in found.items] == ["net"]
    assert found.not_judged == {"new": RANDOM}

    guessing = {"accuracy": measured({"net": RESNET}, percent=10.05)}
    assert unjudged(guessing) == {
        "net": "at chance (10.1% of the images right, and guessing gives 10.0%)"
    }
    assert unjudged({"accuracy": measured({"net": RESNET}, percent=11)}) == {}
    assert unjudged({"variance": measured({"net": RESNET}, name="variance", percent=1)}) == {}


def test_a_single_image_is_not_judged() -> None:
    """It has no interval: numbers over layers alone made verdicts on one photo certain."""
    one = measured({"net": RESNET}, name="variance")
    one = replace(one, about={**one.about, "data": {**one.about["data"], "images": 1}})
    assert unjudged({"variance": one}) == {"net": ONE_IMAGE}
    assert not evidence_of({"variance": one}).items
    assert unjudged({"variance": one, "accuracy": measured({"net": RESNET})}) == {}


def test_checkpoints_may_be_random_or_at_chance() -> None:
    random = {**VIT, "weights": "random"}
    found = evidence_of({"accuracy": measured({"vit@initial": random}, percent=10.0)})
    assert [each.facts["checkpoint"] for each in found.items] == ["start"]
    assert found.not_judged == {}


def test_results_on_other_images_are_other_evidence() -> None:
    """Such as earlier ones that a report shows as well."""
    found = evidence_of(
        {
            "accuracy": measured({"mine": VIT}, "photos"),
            "hessian": measured({"mine": VIT}, "world:shapes", "hessian"),
        }
    )
    assert {each.facts["data"]: list(each.results) for each in found.items} == {
        "photos": ["accuracy"],
        "world:shapes": ["hessian"],
    }
    assert found.query()[0] == "photos"


def test_a_result_is_evidence_on_its_own_models() -> None:
    results = {
        "accuracy": measured({"mine": VIT, "other": RESNET}),
        "hessian": measured({"other": RESNET}, name="hessian"),
    }
    assert {each.name: list(each.results) for each in evidence_of(results).items} == {
        "mine": ["accuracy"],
        "other": ["accuracy", "hessian"],
    }


def test_an_inspection_is_read_back_from_its_folder(tmp_path: Path) -> None:
    Inspection({"accuracy": measured({"mine": VIT, "x": CONVNEXT})}).save(tmp_path / "kept")
    found = load_evidence(tmp_path / "kept")
    assert [each.name for each in found.items] == ["mine"]
    assert found.not_judged == {"x": NO_ROLE}
    assert found.items[0].results["accuracy"].table["value"].tolist() == [0.5, 0.5]
    given = load_evidence(tmp_path / "kept", {"x": "resnet"})
    assert [each.facts["model"] for each in given.items] == ["vit", "resnet"]


def test_a_folder_with_nothing_to_judge(tmp_path: Path) -> None:
    with pytest.raises(VitreousError, match=r"nothing to judge.*vitreous inspect --results"):
        load_evidence(tmp_path)


def test_an_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "study.zip"
    path.write_bytes(b"PK")
    with pytest.raises(VitreousError, match=r"study\.zip' is a file.* unpacked first\.$"):
        load_evidence(path)


def exhibit(folder: Path, **changed: Any) -> Path:
    folder.mkdir(parents=True)
    index = {
        "facts": {"model": "vit", "seed": 1, "data": "cifar10"},
        "results": {"accuracy": ["0.2", "abc"], "hessian": ["0.2", "abc"]},
        "name": "vit",
        "other": "",
        "classes": 10,
        "left_out": {"rollout": "it has no class token"},
        **changed,
    }
    (folder / "exhibit.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "accuracy.json").write_text("{", encoding="utf-8")
    return folder


def test_an_item_of_a_study_is_read_when_it_is_used(tmp_path: Path) -> None:
    found = load_item(exhibit(tmp_path / "one"))
    assert dict(found.facts) == {"model": "vit", "data": "cifar10", "seed": 1}
    assert (found.name, found.classes, found.seed) == ("vit", 10, 1)
    assert found.marks()["accuracy"] == ("0.2", "abc")
    assert found.left_out == {"rollout": "it has no class token"}
    assert list(found.results) == ["accuracy"]  # the other's file was deleted
    with pytest.raises(VitreousError, match=r"accuracy\.json.* is damaged"):
        found.results["accuracy"]


@pytest.mark.parametrize(
    "changed", [{"facts": {"seed": 1}}, {"results": ["accuracy"]}, {"key": "another"}]
)
def test_a_damaged_index_is_named_with_its_remedy(tmp_path: Path, changed: dict[str, Any]) -> None:
    folder = exhibit(tmp_path / "one", **changed)
    with pytest.raises(Damaged, match=r"exhibit\.json.*measures it again"):
        load_item(folder)


def test_the_folder_of_a_study_has_all_of_its_items(tmp_path: Path) -> None:
    for seed in (0, 1):
        exhibit(tmp_path / "exhibits" / f"vit-{seed}", facts={"model": "vit", "seed": seed})
    (tmp_path / "exhibits" / "unfinished").mkdir()
    assert [each.seed for each in load_evidence(tmp_path).items] == [0, 1]
    assert load_evidence(tmp_path).options == ""  # of a study that left no settings


def test_a_proposed_command_adds_to_the_study_that_was_judged(tmp_path: Path) -> None:
    """Without its data and scale the command would train other networks, in another folder."""
    home = tmp_path / "my study"
    facts = {"model": "vit", "seed": 2, "data": "npz:mine"}
    exhibit(home / "exhibits" / "vit", facts=facts, results={})
    settings = {"data": "npz:mine", "scale": "small", "image": None}
    (home / "study.json").write_text(json.dumps(settings), encoding="utf-8")
    [claim] = [each for each in every_claim() if each.id == "HDV-01"]
    [verdict] = judge(load_evidence(home), [claim])
    assert verdict.command == (
        f"vitreous study zoo --data npz:mine --scale small --seeds 3 --out '{home}'"
    )
