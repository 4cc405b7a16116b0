"""Evidence of an inspection: which model is what, on which images, and that nothing is read twice."""

from __future__ import annotations

import pytest

from claims.synthetic import accuracy, hessian, item, result
from vitreous.claims.evidence import Evidence, Query, Rows, reads
from vitreous.errors import UnknownName
from vitreous.results import Result

NET = [["stem", "stem", 0.0], ["a", "conv", 1.0]]
VIT = [["stem", "stem", 0.0], ["a", "attention", 0.5], ["b", "mlp", 1.0]]


def asked(name: str, data: str, **models: list[list[object]]) -> Result:
    rows = [{"model": model, "measure": "top-1", "overall": True, "value": 0.5} for model in models]
    about = {"name": data, "fingerprint": data, "classes": 10}
    return result(name, rows, units=models, data=about)


def test_models_are_known_by_their_units() -> None:
    found = judged({"accuracy": asked("accuracy", "cifar10", mine=VIT, other=NET)})
    assert {each.name: each.facts["model"] for each in found.items} == {
        "mine": "vit",
        "other": "resnet",
    }


def test_roles_say_what_they_are() -> None:
    results = {"accuracy": asked("accuracy", "cifar10", mine=VIT, other=NET)}
    found = judged(results, {"mine": "vit pool=gap moment=warmup"})
    assert dict(found.items[0].facts) == {
        "model": "vit",
        "pool": "gap",
        "moment": "warmup",
        "data": "cifar10",
    }
    with pytest.raises(UnknownName, match=r"'mien'\. Did you mean mine"):
        judged(results, {"mien": "vit"})


def test_results_on_other_images_are_other_evidence() -> None:
    """Such as those of another time that a report shows as well."""
    results = {
        "accuracy": asked("accuracy", "photos", mine=VIT),
        "hessian": asked("hessian", "world:shapes", mine=VIT),
    }
    found = judged(results)
    assert {each.facts["data"]: list(each.results) for each in found.items} == {
        "photos": ["accuracy"], "world:shapes": ["hessian"],
    }  # fmt: skip
    assert found.models()[0] == "photos"


def test_a_number_is_read_once_from_each_exhibit() -> None:
    """Or a study would take as long to judge as it has claims."""
    read: list[tuple[int, str]] = []

    @reads("hessian")
    def noted(rows: Rows, measure: str, *, more: str = "") -> object:
        read.append((rows.item.seed, measure + more))
        return rows.where(measure=measure).one()

    evidence = Evidence(
        [item("vit", hessian(0.2, 3.0), accuracy(90.0), seed=seed) for seed in (0, 1)]
    )
    for look in (evidence.models()[1], Query(evidence.items)):
        for _ in range(2):
            assert noted(models("vit"), "NEP").each.tolist() == [0.2, 0.2]
            assert noted(models("vit"), "APE").each.tolist() == [3.0, 3.0]
            assert noted(models("vit"), "APE", more="!").each.tolist() == [3.0, 3.0]
    assert sorted(read) == [
        (0, "APE"),
        (0, "APE!"),
        (0, "NEP"),
        (1, "APE"),
        (1, "APE!"),
        (1, "NEP"),
    ]
