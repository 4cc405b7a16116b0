"""What has to hold before a claim is tested: each kind met, not met, and not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from claims.synthetic import accuracy, item, training
from vitreous.claims.evidence import Evidence, EvidenceItem, Query
from vitreous.claims.preconditions import KINDS, Precondition, read_preconditions
from vitreous.results import Result


def images(classes: int = 10, side: int | None = 32, data: str = "cifar10") -> list[EvidenceItem]:
    about: dict[str, Any] = {"fingerprint": "0", "classes": classes}
    if side is not None:
        about["image"] = [side, side]
    return [item("vit", accuracy(90, data=about), data=data)]


def percents(**models: float) -> list[EvidenceItem]:
    return [item(model, accuracy(percent)) for model, percent in models.items()]


def record(**measures: float) -> list[EvidenceItem]:
    """The record of a training, of which the last epoch counts."""
    rows = [
        {"measure": measure, "epoch": epoch, "value": value * epoch / 2}
        for measure, value in measures.items()
        for epoch in (1, 2)
    ]
    return [item("vit", training(rows))]


def warmed_up(steps: int) -> list[EvidenceItem]:
    """A training of ten epochs, of which five are warm-up."""
    rows = [{"measure": "steps", "epoch": n, "value": n * steps / 5} for n in range(11)]
    given = training(rows)
    about = {**given.about, "recipe": {"warmup": 5}}
    return [item("vit", Result("training", given.table, given.columns, about=about))]


def decayed(decay: str | None) -> list[EvidenceItem]:
    given = training([{"measure": "train_nll", "epoch": 1, "value": 1.0}])
    recipe = {} if decay is None else {"decay": decay}
    about = {**given.about, "recipe": recipe}
    return [item("vit", Result("training", given.table, given.columns, about=about))]


NOTHING: list[EvidenceItem] = []
VIT = ("vit",)
PAIR = ("vit", "resnet")
MET = {
    "accuracy": (Precondition("accuracy", 80, VIT), percents(vit=80)),
    "accuracy of each": (Precondition("accuracy", 80, PAIR), percents(vit=80, resnet=95)),
    "matched": (Precondition("matched", 2, PAIR), percents(vit=80, resnet=82)),
    "classes": (Precondition("classes", 50), images(classes=50)),
    "image": (Precondition("image", 32), images(side=32)),
    "real": (Precondition("real", True), images()),
    "transfer": (
        Precondition("transfer", True),
        [item("vit", accuracy(90), source="tiny100", tuned="whole")],
    ),
    "steps": (Precondition("steps", 6000, VIT), record(steps=6000)),
    "warmup_steps": (Precondition("warmup_steps", 100, VIT), warmed_up(100)),
    "rate_sum": (Precondition("rate_sum", 190, VIT), record(rate_sum=190.0)),
    "decay": (Precondition("decay", "matrices", VIT), decayed("matrices")),
}
UNMET = {
    "accuracy": (
        *(Precondition("accuracy", 80, VIT), percents(vit=75.25)),
        "It needs a vit with at least 80 % of the images right; this one has 75.2 %.",
    ),
    "accuracy of each": (
        *(Precondition("accuracy", 80, PAIR), percents(vit=90, resnet=50)),
        "It needs a resnet with at least 80 % of the images right; this one has 50.0 %.",
    ),
    "matched": (
        *(Precondition("matched", 2, PAIR), percents(vit=76, resnet=90)),
        "It needs models that are at most 2 points of accuracy apart; "
        "vit and resnet are 14.0 points apart.",
    ),
    "classes": (
        *(Precondition("classes", 50), images(classes=10)),
        "It needs images of at least 50 classes; these have 10.",
    ),
    "image": (
        *(Precondition("image", 64), images(side=32)),
        "It needs images of at least 64 pixels a side; these have 32 pixels.",
    ),
    "real": (Precondition("real", True), images(data="SYN-B"), "It needs real images."),
    "transfer": (
        *(Precondition("transfer", True), percents(vit=90)),
        "It needs a ViT that was pre-trained on the labels of other classes (the fact source): "
        "`vitreous study masked` trains one, given a dataset called tiny100 beside the study's "
        "own.",
    ),
    "steps": (
        *(Precondition("steps", 6250, VIT), record(steps=485)),
        "It needs a vit with at least 6,250 training steps; this one has 485.",
    ),
    "warmup_steps": (  # of all 110 steps 55 are warm-up
        *(Precondition("warmup_steps", 100, VIT), warmed_up(55)),
        "It needs a vit with at least 100 steps of warm-up; this one has 55.",
    ),
    "warmup_steps not recorded": (
        *(Precondition("warmup_steps", 100, VIT), record(steps=500)),
        "It needs a vit with at least 100 steps of warm-up; the record of this one does not say.",
    ),
    "rate_sum": (
        *(Precondition("rate_sum", 190, VIT), record(rate_sum=2.1)),
        "It needs a vit whose learning rates add up to at least 190; this one's add up to 2.1.",
    ),
    "decay": (
        *(Precondition("decay", "matrices", VIT), decayed("all")),
        "It needs a vit whose weight decay acts on matrices only; this one's acts on all "
        "parameters, and decay alone moves what is measured.",
    ),
    "decay not recorded": (
        *(Precondition("decay", "matrices", VIT), decayed(None)),
        "It needs a vit whose weight decay acts on matrices only; this one's acts on all "
        "parameters, and decay alone moves what is measured.",
    ),
    "rate_sum not recorded": (
        *(Precondition("rate_sum", 190, VIT), record(steps=1)),
        "It needs a vit whose learning rates add up to at least 190; the record of this one does "
        "not say.",
    ),
    "note": (
        *(Precondition("note", "It takes 300 million images."), images()),
        "It takes 300 million images.",
    ),
}
UNKNOWN = {
    "accuracy": (Precondition("accuracy", 80, VIT), record(steps=1)),
    "matched": (Precondition("matched", 2, PAIR), percents(vit=76)),
    "classes": (Precondition("classes", 50), NOTHING),
    "image": (Precondition("image", 64), images(side=None)),
    "transfer": (Precondition("transfer", True), NOTHING),
    "steps": (Precondition("steps", 6250, VIT), percents(vit=90)),
    "rate_sum": (Precondition("rate_sum", 190, VIT), percents(vit=90)),
    "decay": (Precondition("decay", "matrices", VIT), percents(vit=90)),
}


def query(items: Sequence[EvidenceItem]) -> Query:
    return Evidence(items).query()[1]


def test_every_kind_is_tested() -> None:
    assert {case[0].kind for case in MET.values()} == set(KINDS) - {"note"}
    assert {case[0].kind for case in UNMET.values()} == set(KINDS)


@pytest.mark.parametrize("case", MET)
def test_met(case: str) -> None:
    requirement, items = MET[case]
    models = query(items)
    assert requirement.unmet(models) == ""
    assert not models.missing


@pytest.mark.parametrize("case", UNMET)
def test_not_met_and_the_sentence_says_why(case: str) -> None:
    requirement, items, sentence = UNMET[case]
    assert requirement.unmet(query(items)) == sentence


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_precondition_that_cannot_be_evaluated_does_not_stop_a_claim(case: str) -> None:
    requirement, items = UNKNOWN[case]
    assert requirement.unmet(query(items)) == ""


def test_a_missing_measurement_of_a_precondition_is_reported() -> None:
    models = query(percents(vit=90))
    Precondition("matched", 2, PAIR).unmet(models)
    Precondition("steps", 9, VIT).unmet(models)
    assert [str(need) for need in models.missing] == ["accuracy of resnet", "training of vit"]


def test_models_are_named_by_their_facts() -> None:
    items = [item("vit", accuracy(50), pool="gap"), item("vit", accuracy(90))]
    assert Precondition("accuracy", 80, ("vit",)).unmet(query(items)) == ""
    assert "this one has 50.0 %" in Precondition("accuracy", 80, ("vit pool=gap",)).unmet(
        query(items)
    )


def test_in_the_embedded_world_there_is_one_size() -> None:
    models = query([item("vit", accuracy(50), data="SYN-B")])
    large = Precondition("accuracy", 80, ("vit size=s",))
    assert "this one has 50.0 %" in large.unmet(models)
    assert large.unmet(query(percents(vit=50))) == ""


def test_the_mean_over_trainings_counts() -> None:
    items = [item("vit", accuracy(percent), seed=seed) for seed, percent in enumerate((70, 90))]
    assert Precondition("accuracy", 80, VIT).unmet(query(items)) == ""
    assert "this one has 80.0 %" in Precondition("accuracy", 81, VIT).unmet(query(items))


def test_images_at_another_resolution_do_not_count() -> None:
    large = {"fingerprint": "1", "classes": 10, "image": [64, 64]}
    tuned = item("vit", accuracy(90, data=large), resolution=64)
    assert Precondition("image", 64).unmet(query([*images(side=32), tuned])).endswith("32 pixels.")


def test_every_kind_has_a_description() -> None:
    said = {case[0].kind: str(case[0]) for case in UNMET.values()}
    assert said["matched"] == "vit and resnet: at most 2 points of accuracy apart"
    assert said["image"] == "images of at least 64 pixels a side"
    assert said["decay"] == "vit: weight decay on matrices only"
    assert said["note"] == "never here. It takes 300 million images."
    assert len(set(said.values())) == len(KINDS)


def test_they_are_read_from_tables() -> None:
    entries: list[dict[str, Any]] = [
        {"classes": 50},
        {"accuracy": 80, "of": "vit"},
        {"matched": 2, "of": list(PAIR)},
    ]
    assert read_preconditions("ABC-01", entries) == (
        Precondition("classes", 50),
        Precondition("accuracy", 80, VIT),
        Precondition("matched", 2, PAIR),
    )
