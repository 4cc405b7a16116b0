"""What a claim gets to see."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from claims.synthetic import accuracy, item, result, training
from vitreous.claims import readings
from vitreous.claims.evidence import Evidence, EvidenceItem, Query, Rows, Scale, Trainings, reads
from vitreous.claims.facts import check_facts, describe_facts, same_facts
from vitreous.claims.quantity import NORMAL_95, REPLICATES
from vitreous.claims.statistics import estimate_effect
from vitreous.errors import UnknownName, VitreousError
from vitreous.results import Result
from vitreous.results.replicates import Replicates


def test_exact_properties_are_found_with_evidence_on_any_images() -> None:
    exact = result("identities", [{"measure": "sum", "value": 1.0}])
    evidence = Evidence([item("vit", accuracy(90)), item("identities", exact, data="")])
    data, models = evidence.query("SYN-C")
    assert data == "cifar10"
    assert readings.identity(models("identities"), "sum").values.tolist() == [1.0]
    assert not models.missing


def test_two_items_with_the_same_facts_must_agree_on_what_both_have() -> None:
    one, same, other = (item("vit", accuracy(value)) for value in (90, 90, 80))
    copied = Evidence([one, same]).query()[1]("vit")
    assert copied.read("accuracy", lambda rows: rows.one()).values.tolist() == [0.9]
    unseeded = replace(other, facts={k: v for k, v in other.facts.items() if k != "seed"})
    for different in (other, unseeded):  # without a seed it is the first
        with pytest.raises(VitreousError) as error:
            Evidence([one, same, different])
        said = str(error.value)
        assert said.startswith(f"Two items with the facts {describe_facts(different.facts)!r} (vit")
        assert "have different results of accuracy; leave one out" in said
    row = {"measure": "top-1", "class": "all", "overall": True, "value": 0.9, "low": 0.1, "high": 1}
    wider = result("accuracy", [row])
    with pytest.raises(VitreousError, match="different results of accuracy"):
        Evidence([one, item("vit", wider)])
    Evidence([one, item("vit", accuracy(80), seed=1)])
    Evidence([one, item("vit", accuracy(80), pool="gap")])
    loss = training([{"measure": "NLL", "epoch": 1, "value": 0.5}])
    assert len(Evidence([one, item("vit", loss)]).items) == 2


def test_what_holds_without_images_does_not_say_how_large_a_study_is() -> None:
    exact = item("identities", result("identities", [{"measure": "sum", "value": 1.0}]), data="")
    for task in ("", "SYN-B"):
        data, models = Evidence([exact, item("vit", accuracy(90), data="SYN-B")]).query(task)
        assert (data, models.scale) == ("SYN-B", "sanity")


def trainings(*items: EvidenceItem, model: str = "vit") -> Trainings:
    return Evidence(items).query()[1](model)


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
    names = ("vit", "resnet", "mixer")
    name, models = Evidence(
        [item(model, accuracy(90), data=each) for model, each in zip(names, data, strict=False)]
    ).query(task)
    assert (name, models.scale) == wanted
    assert all(each.facts["data"] == name for each in models.items)


def test_many_classes_have_thresholds_of_their_own() -> None:
    def threshold(classes: int, data: str = "images") -> float:
        return (
            Evidence([item("vit", accuracy(50, classes=classes), data=data)])
            .query()[1]
            .at(5.0, ten=2.0)
        )

    assert [threshold(count) for count in (10, 49, 50, 100)] == [2.0, 2.0, 5.0, 5.0]
    assert threshold(8, "SYN-B") == 5.0  # what is not given is as for many


def test_a_model_is_selected_by_exactly_its_facts() -> None:
    items = [
        item("vit", accuracy(90)),
        item("vit", accuracy(80), seed=1),
        item("vit", accuracy(70), pool="gap"),
        item("vit", accuracy(60), pool="gap", checkpoint="warmup"),
    ]
    _, models = Evidence(items).query()
    assert readings.accuracy(models("vit")).values.tolist() == [90.0, 80.0]
    assert readings.accuracy(models("vit", seed=1)).values.tolist() == [80.0]
    assert readings.accuracy(models("vit", pool="gap", checkpoint=None)).values.tolist() == [70.0]
    assert not readings.accuracy(models("vit", checkpoint="warmup")).known
    assert [str(each) for each in models.missing] == ["accuracy of vit checkpoint=warmup"]


def test_other_data_are_selected_only_by_name() -> None:
    items = [item("vit", accuracy(90)), item("vit", accuracy(60), data="SYN-E")]
    _, models = Evidence(items).query()
    assert readings.accuracy(models("vit")).values.tolist() == [90.0]
    assert readings.accuracy(models("vit", data="SYN-E")).values.tolist() == [60.0]


def test_an_unknown_word_is_refused_with_the_nearest() -> None:
    models = Query()
    with pytest.raises(UnknownName, match=r"resnet.*Did you mean resnet") as found:
        models("resnetz")
    assert found.value.nearest[0] == "resnet"
    with pytest.raises(UnknownName, match=r"fact 'fractoin'\. Did you mean fraction"):
        models("vit", fractoin=0.1)
    assert not models.needs


def test_facts_have_one_order_and_unspecified_ones_are_ignored() -> None:
    facts = check_facts("vit", {"fraction": 0.1, "pool": "gap", "checkpoint": None})
    assert describe_facts(facts) == "vit pool=gap fraction=0.1"
    assert same_facts({**facts, "seed": 3, "data": "cifar10"}, facts)
    assert not same_facts({**facts, "seed": 3}, {**facts, "seed": 1})
    assert not same_facts({**facts, "checkpoint": "warmup"}, facts)


def test_results_of_two_versions_are_not_judged_together() -> None:
    old = item("vit", accuracy(90, versions={"vitreous": "0.1"}))
    new = item("resnet", accuracy(80, versions={"vitreous": "0.2"}))
    with pytest.raises(
        VitreousError, match=r"accuracy of resnet .* version '0\.2', that of vit .* has '0\.1'"
    ):
        Evidence([old, new])


def test_results_on_two_sets_of_images_are_not_judged_together() -> None:
    def on(model: str, fingerprint: str, data: str = "cifar10") -> EvidenceItem:
        return item(
            model, accuracy(90, data={"fingerprint": fingerprint, "classes": 10}), data=data
        )

    with pytest.raises(
        VitreousError, match=r"resnet .* fingerprint of the images 'bbb', that of vit .* has 'aaa'"
    ):
        Evidence([on("vit", "aaa"), on("resnet", "bbb")])
    Evidence([on("vit", "aaa"), on("resnet", "bbb", "SYN-B")])  # they are not compared


def test_different_measurements_may_be_on_different_images() -> None:
    other = {"fingerprint": "bbb", "classes": 10}
    Evidence(
        [
            item(
                "vit",
                accuracy(90),
                result("hessian", [{"measure": "NEP", "value": 0.1}], data=other),
            )
        ]
    )


def test_only_the_rows_of_the_selected_model_are_read() -> None:
    rows = [
        {"model": model, "measure": "eigenvalue", "batch": batch, "value": value}
        for model, values in (("a", (1.0, -1.0)), ("b", (1.0, 1.0)))
        for batch, value in enumerate(values)
    ]
    both = result("hessian", rows)
    items = [
        EvidenceItem({"model": model, "data": "cifar10", "seed": 0}, {"hessian": both}, name)
        for model, name in (("vit", "a"), ("resnet", "b"))
    ]
    assert readings.nep(trainings(*items)).values.tolist() == [0.5]
    assert readings.nep(trainings(*items, model="resnet")).values.tolist() == [0.0]


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
    vit = trainings(item("vit", measured()))
    assert several(vit, kind="mlp").values.tolist() == [[1.0, 3.0]]
    assert several(vit, kind=("mlp", "attention")).values.tolist() == [[1.0, 2.0, 3.0]]
    assert several(vit, kind="mlp", unit="c").values.tolist() == [[3.0]]
    only = single(vit, unit="b")
    assert only.seeds[0].shape == (1 + REPLICATES,)
    found = estimate_effect(only)
    np.testing.assert_allclose((found.value, found.low, found.high), (2.0, 1.0, 3.0), atol=0.25)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("conv", "variance of vit .* has no such rows"),
        ("mlp", "variance of vit .* 2 rows where one"),
    ],
)
def test_a_result_without_what_is_read_is_noted_and_not_missing(kind: str, says: str) -> None:
    _, models = Evidence([item("vit", measured())]).query()

    assert not (several if kind == "conv" else single)(models("vit"), kind=kind).known
    assert not models.missing
    (note,) = models.notes
    assert re.search(says, note)


def test_the_last_epoch_is_the_end_of_a_training() -> None:
    rows = [
        {"measure": "train_nll", "epoch": epoch, "value": float(epoch)} for epoch in (0, 30, 20, 10)
    ]
    record = training([*rows, {"measure": "test_nll", "epoch": 40, "value": 40.0}])
    assert readings.train_nll(trainings(item("vit", record))).values.tolist() == [30.0]


def test_two_models_on_the_same_images_stay_paired() -> None:
    generator = np.random.default_rng(0)
    noise = generator.normal(0, 0.01, 1 + REPLICATES)
    noise[0] = 0
    kept = {
        name: [float(each) for each in mean + noise]
        for name, mean in (("vit", 0.9), ("resnet", 0.8))
    }
    items = [item(name, accuracy(100 * kept[name][0], replicates=kept)) for name in kept]
    _, models = Evidence(items).query()
    gap = readings.accuracy(models("vit")) - readings.accuracy(models("resnet"))
    apart = estimate_effect(gap)
    np.testing.assert_allclose((apart.value, apart.low, apart.high), 10.0)
    alone = estimate_effect(readings.accuracy(models("vit")))
    np.testing.assert_allclose(
        (alone.high - alone.low) / 2, 100 * NORMAL_95 * noise[1:].std(), rtol=0.02
    )


@pytest.mark.parametrize(("images", "wider"), [(8, 1.282), (50, 1.029), (10_000, 1.0)])
def test_replicates_of_few_images_are_widened(images: int, wider: float) -> None:
    """Resampled values of n images vary (n − 1)/n times as much as they do, and few tell it badly:
    Student's quantile of n − 1 degrees of freedom over that of 199, which the replicates have."""
    plain = np.random.default_rng(0).normal(0.7, 0.1, 201)
    made = result("accuracy", [{"model": "vit", "value": plain[0], "n": images}])
    kept = Replicates.of(plain[:1], plain[None, 1:])
    made = replace(made, replicates={"value": kept})
    found = item("vit", made).rows("accuracy").one()
    assert found[0] == plain[0]
    apart = kept.around(plain[:1])[0] - plain[0]
    np.testing.assert_allclose(found[1:] - plain[0], wider * apart, rtol=1e-3)


def test_an_untrained_query_selects_networks_before_training() -> None:
    items = [
        item("vit", accuracy(90)),
        item("vit", accuracy(10), checkpoint="start"),
        item("vit", accuracy(50), checkpoint="warmup"),
        item("identities", result("identities", [{"measure": "sum", "value": 1.0}]), data=""),
    ]
    _, models = Evidence(items).query(untrained=True)
    assert readings.accuracy(models("vit")).values.tolist() == [10.0]
    assert readings.accuracy(models("vit", checkpoint=None)).values.tolist() == [10.0]
    assert readings.accuracy(models("vit", checkpoint="warmup")).values.tolist() == [50.0]
    assert readings.identity(models("identities"), "sum").values.tolist() == [1.0]


def test_numbers_of_the_paper_are_for_its_own_kind_of_data() -> None:
    reported = [Query(scale=scale).reported(16.2) for scale in get_args(Scale)]
    assert dict(zip(get_args(Scale), reported, strict=True)) == {
        "sanity": None,
        "ten": None,
        "hundred": 16.2,
    }


def test_what_does_not_apply_to_a_model_is_noted_with_the_reason() -> None:
    why = "a Mixer has no attention"
    mixer = replace(item("mixer", accuracy(90)), left_out={"variance": why})
    _, models = Evidence([mixer]).query()
    assert not readings.variances(models("mixer")).known
    assert (models.notes, models.missing) == ([why], [])


def test_accuracies_that_leave_no_room_are_saturated() -> None:
    for percents, wanted in (((99.0, 100.0), True), ((98.9, 100.0), False)):
        items = [item("vit", accuracy(p), seed=seed) for seed, p in enumerate(percents)]
        assert readings.accuracy(trainings(*items)).saturated is wanted


def test_a_number_is_read_once_from_each_item() -> None:
    """Or judging a study would take as long as it has claims."""
    read: list[tuple[int, str]] = []

    @reads("variance")
    def counted(rows: Rows, unit: str, *, more: str = "") -> object:
        read.append((rows.item.seed, unit + more))
        return rows.where(unit=unit).one()

    evidence = Evidence([item("vit", measured(), seed=seed) for seed in (0, 1)])
    for models in (evidence.query()[1], Query(evidence.items)):
        for _ in range(2):
            assert counted(models("vit"), "a").values.tolist() == [1.0, 1.0]
            assert counted(models("vit"), "b").values.tolist() == [2.0, 2.0]
            assert counted(models("vit"), "b", more="!").values.tolist() == [2.0, 2.0]
    assert sorted(read) == [(seed, unit) for seed in (0, 1) for unit in ("a", "b", "b!")]
