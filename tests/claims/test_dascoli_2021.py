"""What the ConViT claims read off results, against answers by hand."""

from __future__ import annotations

import pytest

from claims.cases.dascoli_2021 import learning, lesion
from claims.synthetic import item, training
from vitreous.claims.dascoli_2021 import readings
from vitreous.claims.evidence import Query, Trainings
from vitreous.results import Result


def trainings(result: Result) -> Trainings:
    return Query([item("convit", result)])("convit")


def nonlocality(epochs: int = 10, layers: int = 6, gated: int = 4) -> Trainings:
    """Of layer l at epoch e: |e - 7| + l, mean of two heads; gates are l / 10 and twice that."""
    courses = [
        {
            "measure": "nonlocality",
            "reading": "true",
            "epoch": epoch,
            "layer": layer,
            "head": head,
            "value": abs(epoch - 7) + layer + head - 0.5,
        }
        for epoch in range(epochs + 1)
        for layer in range(layers)
        for head in (0, 1)
    ]
    gates = [
        {
            "measure": "gate",
            "epoch": epochs,
            "layer": layer,
            "head": head,
            "value": (1 + head) * layer / 10,
        }
        for layer in range(gated)
        for head in (0, 1)
    ]
    return trainings(training(courses + gates))


@pytest.mark.parametrize(
    ("when", "least"),
    [("start", 7), ("early", 2), ("least", 0), ("end", 3), (0.1, 6), (0.52, 2), (0.0, 6)],
)
def test_a_course_at_a_moment(when: readings.When, least: float) -> None:
    (found,) = readings.nonlocality(nonlocality(), when).values
    assert found.tolist() == pytest.approx([least + layer for layer in range(6)])


def test_gated_layers_are_those_that_have_gates() -> None:
    assert readings.nonlocality(nonlocality(), gated=True).values.shape == (1, 4)


def test_gates_over_heads() -> None:
    assert readings.gates(nonlocality()).values[0].tolist() == pytest.approx([0, 0.15, 0.3, 0.45])
    assert readings.gates(nonlocality(), heads="max").values[0].tolist() == pytest.approx(
        [0, 0.2, 0.4, 0.6]
    )


def test_accuracy_while_it_learns() -> None:
    """The state before training is not an epoch."""
    model = trainings(learning(10, 20, 40, *[60] * 8))
    assert readings.accuracy_after(model, 0.01).values.tolist() == pytest.approx([20])
    assert readings.accuracy_after(model, 0.2).values.tolist() == pytest.approx([40])
    assert readings.accuracy_within(model, 0.2).values.tolist() == pytest.approx([30])


def test_masked_layers_are_counted_from_the_first() -> None:
    content = {"content masked up to here": range(1, 11), "position masked up to here": [0.0] * 10}
    model = trainings(lesion(content))
    found = [
        readings.lost_without(model, "content", share).values[0] for share in (0.01, 0.3, 0.5, 1.0)
    ]
    assert found == pytest.approx([1, 3, 5, 10])


def test_layers_side_by_side() -> None:
    layers = readings.nonlocality(nonlocality())
    assert readings.lower(layers, 1 / 2).values[0].tolist() == [3, 4, 5]
    assert readings.upper(layers, 1 / 3).values[0].tolist() == [7, 8]
    gated = readings.nonlocality(nonlocality(), gated=True)
    assert readings.as_deep_as(layers, gated).values[0].tolist() == [3, 4, 5, 6]


def test_a_record_without_a_course_says_so() -> None:
    models = Query([item("convit", learning(10, 20))])
    assert not readings.nonlocality(models("convit")).known
    assert models.notes == ["The record of convit has no true nonlocality"]
