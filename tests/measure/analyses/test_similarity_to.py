"""The diagonal of CKA across two states of a model, against the formula written out."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import vitreous
from vitreous.errors import VitreousError
from vitreous.measure.analyses import similarity_to
from vitreous.measure.analyses.similarity_to import SimilarityTo
from vitreous.measure.selection import choose_images
from vitreous.measure.subject import subjects
from vitreous.specimen.specimen import Specimen

QUICK: dict[str, Any] = {"to": "nano:vit@warmup"}


@cache
def opened(name: str) -> Specimen:
    return vitreous.open(name)


@cache
def data(count: int) -> Any:
    return vitreous.data.load("world:shapes", split="test", size=count)


def pair() -> dict[str, Specimen]:
    return {"early": opened("nano:vit@warmup"), "late": opened("nano:vit")}


def hsic(one: Tensor, other: Tensor) -> Tensor:
    """Song et al.'s unbiased estimator, term by term, in float64."""
    k, m = ((x @ x.T).fill_diagonal_(0) for x in (one, other))
    n, ones = len(k), torch.ones(len(k), dtype=torch.float64)
    trace = (k @ m).trace()
    middle = (ones @ k @ ones) * (ones @ m @ ones) / ((n - 1) * (n - 2))
    return (trace + middle - 2 / (n - 2) * (ones @ k @ m @ ones)) / (n * (n - 3))


def test_every_unit_is_compared_with_its_namesake() -> None:
    count = 24
    table = SimilarityTo()(pair(), data(count)).table
    images = choose_images(data(count), "test", None, (), 0).images
    seen = []
    for subject in subjects(pair()):
        with torch.no_grad():
            seen.append(subject.specimen.observe(subject.prepare(images), ("after",)))
    assert list(table["unit"]) == [unit.name for unit in opened("nano:vit").units]
    assert set(table["model"]) == {"early"}
    assert set(table["reference"]) == {"late"}
    for unit, value in zip(table["unit"], table["value"], strict=True):
        x, y = (each[unit].after.raw.double().flatten(1) for each in seen)  # type: ignore[union-attr]
        x, y = x - x.mean(0), y - y.mean(0)
        assert value == pytest.approx(
            float(hsic(x, y) / (hsic(x, x) * hsic(y, y)).sqrt()), abs=1e-5
        )
    assert (table["low"] <= table["value"]).all()


def test_it_is_the_diagonal_of_the_probe_also_over_several_minibatches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(similarity_to, "SHARD", 16)
    models = {
        "early": opened("nano:vit@warmup"),
        "first": opened("nano:vit@initial"),
        "late": opened("nano:vit"),
    }
    ours = SimilarityTo(sites=("out", "branch"))(models, data(40), batch=10)
    whole = vitreous.inspect(
        models, data(40), {"cka": {"sites": ("out", "branch"), "minibatch": 16}}
    )["cka"].table
    same = whole[
        (whole["layer"] == whole["other_layer"])
        & (whole["other_model"] == "late")
        & whole["across"]
    ]
    for model in ("early", "first"):
        found, wanted = (each[each["model"] == model] for each in (ours.table, same))
        assert list(found["unit"]) == list(wanted["unit"])
        for column in ("value", "low", "high"):
            assert found[column].tolist() == pytest.approx(
                wanted[column].tolist(), abs=1e-6, nan_ok=True
            )
    assert ours.views[0].facet == "site"
    assert ours.about["left_out"] == {"late": "Others are compared with it."}


def test_the_other_model_may_be_named() -> None:
    table = SimilarityTo(to="nano:vit")({"same": opened("nano:vit")}, data(24)).table
    assert table["value"].tolist() == pytest.approx([1.0] * len(table), abs=1e-6)
    assert set(table["reference"]) == {"nano:vit"}
    among = SimilarityTo(to="early")(pair(), data(24)).table
    assert set(among["model"]) == {"late"}
    assert among["value"].tolist() == pytest.approx(
        SimilarityTo()(pair(), data(24)).table["value"].tolist()
    )


def test_bad_input() -> None:
    def why(models: Any, count: int = 24, **options: Any) -> dict[str, str]:
        found = vitreous.analyse(models, data(24).take(range(count)), {"similarity_to": options})
        return dict(found.left_out["similarity_to"])

    assert "no other model" in why({"late": opened("nano:vit")})["late"]
    other = {"resnet": opened("nano:resnet"), "late": opened("nano:vit")}
    assert "Its units are not those of late: it has 11, the other 14." in why(other)["resnet"]
    assert "at least 4 images" in why(pair(), 3)["early"]
    with pytest.raises(VitreousError, match="estimator"):
        SimilarityTo(estimator="exact")  # type: ignore[arg-type]
    with pytest.raises(VitreousError, match="site"):
        SimilarityTo(sites=("attention",))
    with pytest.raises(VitreousError, match="nano:vitt"):
        SimilarityTo(to="nano:vitt")({"late": opened("nano:vit")}, data(24))
