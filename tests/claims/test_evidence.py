"""What a claim gets to see."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from claims.synthetic import accuracy, exhibit, result, training
from vitreous.claims import readings
from vitreous.claims.evidence import Evidence, Exhibit, Look, Rows, Seen, reads
from vitreous.claims.facts import checked, same, told
from vitreous.claims.measure import DRAWS
from vitreous.errors import UnknownName, VitreousError
from vitreous.results import Result


def test_what_holds_without_images_is_seen_beside_any_images() -> None:
    exact = result("identities", [{"measure": "sum", "value": 1.0}])
    evidence = Evidence([exhibit("vit", accuracy(90)), exhibit("identities", exact, data="")])
    data, look = evidence.look("SYN-C")
    assert data == "cifar10"
    assert readings.identity(look("identities"), "sum").each.tolist() == [1.0]
    assert not look.missing


def test_what_holds_without_images_does_not_say_how_large_a_study_is() -> None:
    exact = exhibit("identities", result("identities", [{"measure": "sum", "value": 1.0}]), data="")
    for task in ("", "SYN-B"):
        data, look = Evidence([exact, exhibit("vit", accuracy(90), data="SYN-B")]).look(task)
        assert (data, look.scale) == ("SYN-B", "sanity")


def seen(*exhibits: Exhibit, model: str = "vit", look: Look | None = None) -> Seen:
    return (look or Evidence(exhibits).look()[1])(model)


@pytest.mark.parametrize(
    ("data", "task", "wanted"),
    [
        (["cifar10"], "", ("cifar10", "ten")),
        (["cifar10", "SYN-E", "SYN-E"], "SYN-E", ("cifar10", "ten")),  # real images come first
        (["world:shapes", "SYN-B"], "SYN-B", ("SYN-B", "sanity")),
        (["world:shapes", "SYN-B", "SYN-B"], "SYN-E", ("world:shapes", "sanity")),
        (["SYN-B"], "SYN-E", ("SYN-B", "sanity")),
        (["cifar10", "tiny", "tiny"], "", ("tiny", "ten")),  # of several those with the most models
        ([], "SYN-E", ("", "ten")),
    ],
)
def test_which_images_are_looked_at(data: list[str], task: str, wanted: tuple[str, str]) -> None:
    models = ("vit", "resnet", "mixer")
    name, look = Evidence(
        [exhibit(model, accuracy(90), data=each) for model, each in zip(models, data, strict=False)]
    ).look(task)
    assert (name, look.scale) == wanted
    assert all(each.facts["data"] == name for each in look.exhibits)


def test_many_classes_have_thresholds_of_their_own() -> None:
    def threshold(classes: int, data: str = "images") -> float:
        return (
            Evidence([exhibit("vit", accuracy(50, classes=classes), data=data)])
            .look()[1]
            .at(5.0, ten=2.0)
        )

    assert [threshold(count) for count in (10, 49, 50, 100)] == [2.0, 2.0, 5.0, 5.0]
    assert threshold(8, "SYN-B") == 5.0  # what is not given is as for many


def test_a_model_is_found_by_all_that_is_said_of_it_and_nothing_else() -> None:
    exhibits = [
        exhibit("vit", accuracy(90)),
        exhibit("vit", accuracy(80), seed=1),
        exhibit("vit", accuracy(70), pool="gap"),
        exhibit("vit", accuracy(60), pool="gap", moment="warmup"),
    ]
    _, look = Evidence(exhibits).look()
    assert readings.accuracy(look("vit")).each.tolist() == [90.0, 80.0]
    assert readings.accuracy(look("vit", seed=1)).each.tolist() == [80.0]
    assert readings.accuracy(look("vit", pool="gap", moment=None)).each.tolist() == [70.0]
    assert not readings.accuracy(look("vit", moment="warmup")).known
    assert [str(each) for each in look.missing] == ["accuracy of vit moment=warmup"]


def test_other_data_are_seen_only_where_they_are_named() -> None:
    exhibits = [exhibit("vit", accuracy(90)), exhibit("vit", accuracy(60), data="SYN-E")]
    _, look = Evidence(exhibits).look()
    assert readings.accuracy(look("vit")).each.tolist() == [90.0]
    assert readings.accuracy(look("vit", data="SYN-E")).each.tolist() == [60.0]


def test_an_unknown_word_is_refused_with_the_nearest() -> None:
    look = Look()
    with pytest.raises(UnknownName, match=r"resnet.*Did you mean resnet") as found:
        look("resnetz")
    assert found.value.nearest[0] == "resnet"
    with pytest.raises(UnknownName, match=r"fact 'fractoin'\. Did you mean fraction"):
        look("vit", fractoin=0.1)
    assert not look.asked


def test_facts_are_told_in_one_order_and_compared_whatever_is_left_open() -> None:
    facts = checked("vit", {"fraction": 0.1, "pool": "gap", "moment": None})
    assert told(facts) == "vit pool=gap fraction=0.1"
    assert same({**facts, "seed": 3, "data": "cifar10"}, facts)
    assert not same({**facts, "seed": 3}, {**facts, "seed": 1})
    assert not same({**facts, "moment": "warmup"}, facts)


def test_results_of_two_versions_are_not_judged_together() -> None:
    old = exhibit("vit", accuracy(90, versions={"vitreous": "0.1"}))
    new = exhibit("resnet", accuracy(80, versions={"vitreous": "0.2"}))
    with pytest.raises(
        VitreousError, match=r"accuracy of resnet .* version '0\.2', that of vit .* has '0\.1'"
    ):
        Evidence([old, new])


def test_results_on_two_sets_of_images_are_not_judged_together() -> None:
    def on(model: str, fingerprint: str, data: str = "cifar10") -> Exhibit:
        return exhibit(
            model, accuracy(90, data={"fingerprint": fingerprint, "classes": 10}), data=data
        )

    with pytest.raises(
        VitreousError, match=r"resnet .* fingerprint of the images 'bbb', that of vit .* has 'aaa'"
    ):
        Evidence([on("vit", "aaa"), on("resnet", "bbb")])
    Evidence([on("vit", "aaa"), on("resnet", "bbb", "SYN-B")])  # they are not compared


def test_two_questions_may_be_asked_on_different_images() -> None:
    other = {"fingerprint": "bbb", "classes": 10}
    Evidence(
        [
            exhibit(
                "vit",
                accuracy(90),
                result("hessian", [{"measure": "NEP", "value": 0.1}], data=other),
            )
        ]
    )


def test_a_result_of_several_models_is_read_for_the_one_that_was_asked_for() -> None:
    rows = [
        {"model": model, "measure": "NEP", "value": value}
        for model, value in (("a", 0.1), ("b", 0.2))
    ]
    both = result("hessian", rows)
    exhibits = [
        Exhibit({"model": model, "data": "cifar10", "seed": 0}, {"hessian": both}, name)
        for model, name in (("vit", "a"), ("resnet", "b"))
    ]
    assert readings.nep(seen(*exhibits)).each.tolist() == [0.1]
    assert readings.nep(seen(*exhibits, model="resnet")).each.tolist() == [0.2]


def measured() -> Result:
    units = (("a", "mlp", 1.0), ("b", "attention", 2.0), ("c", "mlp", 3.0))
    rows = [
        {"unit": u, "kind": k, "value": v, "low": v - 1.0, "high": v + 1.0} for u, k, v in units
    ]
    return result("variance", rows)


@reads("variance")
def several(rows: Rows, /, **wanted: Any) -> object:
    return rows.where(**wanted).draws()


@reads("variance")
def single(rows: Rows, /, **wanted: Any) -> object:
    return rows.where(**wanted).one()


def test_rows_are_chosen_by_their_entries() -> None:
    vit = seen(exhibit("vit", measured()))
    assert several(vit, kind="mlp").each.tolist() == [[1.0, 3.0]]
    assert several(vit, kind=("mlp", "attention")).each.tolist() == [[1.0, 2.0, 3.0]]
    assert several(vit, kind="mlp", unit="c").each.tolist() == [[3.0]]
    only = single(vit, unit="b")
    assert only.seeds[0].shape == (1 + DRAWS,)
    np.testing.assert_allclose(only.interval(), (2.0, 1.0, 3.0), atol=0.25)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("conv", "variance of vit .* has no such rows"),
        ("mlp", "variance of vit .* 2 rows where one"),
    ],
)
def test_a_result_without_what_is_read_is_noted_and_not_missing(kind: str, says: str) -> None:
    _, look = Evidence([exhibit("vit", measured())]).look()

    assert not (several if kind == "conv" else single)(look("vit"), kind=kind).known
    assert not look.missing
    (note,) = look.notes
    assert re.search(says, note)


def test_the_last_epoch_is_the_end_of_a_training() -> None:
    rows = [
        {"measure": "train_nll", "epoch": epoch, "value": float(epoch)} for epoch in (0, 30, 20, 10)
    ]
    record = training([*rows, {"measure": "test_nll", "epoch": 40, "value": 40.0}])
    assert readings.train_nll(seen(exhibit("vit", record))).each.tolist() == [30.0]


def test_two_models_on_the_same_images_stay_paired() -> None:
    generator = np.random.default_rng(0)
    noise = generator.normal(0, 0.01, 1 + DRAWS)
    noise[0] = 0
    kept = {
        name: [float(each) for each in mean + noise]
        for name, mean in (("vit", 0.9), ("resnet", 0.8))
    }
    exhibits = [exhibit(name, accuracy(100 * kept[name][0], replicates=kept)) for name in kept]
    _, look = Evidence(exhibits).look()
    gap = readings.accuracy(look("vit")) - readings.accuracy(look("resnet"))
    np.testing.assert_allclose(gap.interval(), (10.0, 10.0, 10.0))
    _, low, high = readings.accuracy(look("vit")).interval()
    np.testing.assert_allclose((low, high), 90 + 100 * np.quantile(noise[1:], [0.025, 0.975]))
