"""Accuracy against scikit-learn and by hand, and the reasons for which a model cannot be marked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

import vitreous
from measure.looks import images, vit
from vitreous.data.subsets import class_balanced_order
from vitreous.errors import VitreousError
from vitreous.measure.probes.accuracy import rank
from vitreous.measure.resampling import REPEATS, poisson_weights
from vitreous.models.loading import load_model
from vitreous.results import Result, wilson


def answered(
    found: vitreous.Inspection, measure: str = "top-1", name: str = "all classes"
) -> float:
    table = found["accuracy"].table
    return float(table[(table["measure"] == measure) & (table["class"] == name)]["value"].iloc[0])


def test_against_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels = torch.randn(400, 12), torch.randint(0, 12, (400,))
    for top in (1, 5):
        expected = metrics.top_k_accuracy_score(
            labels.numpy(), scores.numpy(), k=top, labels=range(12)
        )
        assert (rank(scores, labels) < top).double().mean().item() == pytest.approx(expected)


def test_equal_scores_are_at_chance() -> None:
    """A dead model gives every class the same score; counting only what is higher would have it
    right always."""
    labels = torch.arange(10)
    assert rank(torch.zeros(10, 10), labels).tolist() == list(range(10))
    rounded = torch.randn(200, 6).round()
    labels = torch.randint(0, 6, (200,))
    assert torch.equal(rank(rounded, labels) == 0, rounded.argmax(1) == labels)


@pytest.mark.parametrize(("right", "count"), [(0, 5), (5, 5), (13, 40), (1, 1)])
def test_the_interval_is_wilsons(right: int, count: int) -> None:
    expected = scipy.stats.binomtest(right, count).proportion_ci(method="wilson")
    np.testing.assert_allclose(wilson(np.array(right), np.array(count))[1:], expected, atol=1e-12)


def test_through_an_inspection() -> None:
    data = vitreous.data.load("world:shapes", split="test", size=60)
    found = vitreous.inspect(
        ["nano:vit", "nano:vit@warmup"], data, ["accuracy"], shard=25, device="cpu"
    )
    with torch.no_grad():
        model = load_model("nano:vit@warmup")
        scores = model(data.normalise(data.images))
    table = (
        found["accuracy"]
        .table.query("model == 'nano:vit@warmup'")
        .set_index(["measure", "class"])["value"]
    )
    right = scores.argmax(1) == data.labels
    assert table["top-1", "all classes"] == pytest.approx(right.double().mean().item())
    within = (scores.topk(5).indices == data.labels[:, None]).any(1)
    assert table["top-5", "all classes"] == pytest.approx(within.double().mean().item())
    for number, name in enumerate(data.classes):
        own = right[data.labels == number]
        assert table["top-1", name] == pytest.approx(own.double().mean().item())
    assert answered(found) > 0.9


def test_few_classes_have_no_top_5() -> None:
    found = vitreous.inspect(vit(), images(20), ["accuracy"], device="cpu")
    assert set(found["accuracy"].table["measure"]) == {"top-1"}


def test_classes_without_images_have_no_row() -> None:
    data = images(20)
    some = data.take(torch.nonzero(data.labels < 2).flatten())
    table = vitreous.inspect(vit(), some, ["accuracy"], device="cpu")["accuracy"].table
    assert list(table["class"]) == ["all classes", "class 0", "class 1"]


@pytest.mark.parametrize(
    ("model", "data", "sentence"),
    [
        ("vit", images(6, classes=0), "Images of 'noise' have no labels"),
        ("vit", images(6, classes=3), "It has 5 classes without names, and 'noise' has 3"),
        (
            "nano:vit",
            "world:textures",
            r"It has 10 classes, and .* of 'world:textures' are not among them.*; name the folders",
        ),
        ("features", images(6), "Its output is not a score for each class."),
    ],
)
def test_models_whose_predictions_have_no_labels(model: str, data: Any, sentence: str) -> None:
    given: Any = {
        "vit": vit,
        "features": lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3)),
    }.get(model, lambda: model)()
    with pytest.raises(VitreousError, match=f"'accuracy' could not be measured.*{sentence}"):
        vitreous.inspect(given, data, ["accuracy", "calibration"], limit=6, image=32, device="cpu")[
            "accuracy"
        ]


class Several(torch.nn.Module):
    """Returns features, and scores under a name of its own or in a tuple."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.name = name
        self.conv, self.head = torch.nn.Conv2d(3, 8, 4, 4), torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.conv(x)
        scores = self.head(x.relu().mean((2, 3)))
        return {"features": x, self.name: scores} if self.name else (x, scores)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            Several("scores"),
            "Its output has no 'logits', from which class scores are read, but 'features', "
            "'scores'.",
        ),
        (
            Several(),
            "The first item of its output is not a score for each class (its shape is "
            "(1, 8, 8, 8)).",
        ),
    ],
)
def test_where_class_scores_are_looked_for(model: torch.nn.Module, sentence: str) -> None:
    found = vitreous.inspect(
        {"mine": model}, images(6), ["accuracy", "variance"], image=32, device="cpu"
    )
    assert found.left_out["accuracy"] == {"mine": sentence}
    named = vitreous.inspect(Several("logits"), images(6), ["accuracy"], image=32, device="cpu")
    assert "accuracy" in named


def test_a_model_with_other_classes_is_left_out() -> None:
    data = replace(images(10), name="five")
    found = vitreous.inspect(
        {"five": vit(), "ten": "nano:resnet"}, data, ["accuracy"], device="cpu"
    )["accuracy"]
    assert set(found.table["model"]) == {"five"}
    assert list(found.about["left_out"]) == ["ten"]
    assert found.about["left_out"]["ten"].startswith(
        "It has 10 classes, and class 0, class 1, class 2 and 2 more of 'five' are not among them"
    )


def test_resamplings_by_hand_and_from_disk(tmp_path: Path) -> None:
    """Weighted by the numbers of the images alone, however they pass."""
    data = vitreous.data.load("world:shapes", split="test", size=30)
    found = vitreous.inspect("nano:vit@warmup", data, ["accuracy"], shard=11, device="cpu", seed=3)[
        "accuracy"
    ]
    again = vitreous.inspect("nano:vit@warmup", data, ["accuracy"], shard=30, device="cpu", seed=3)[
        "accuracy"
    ]
    passed = data.take(class_balanced_order(data.labels.numpy(), 3).tolist())
    with torch.no_grad():
        right = (
            load_model("nano:vit@warmup")(passed.normalise(passed.images)).argmax(1)
            == passed.labels
        )
    weights = np.stack([poisson_weights([row], 3)[0] for row in range(30)], 1)
    own = right.double().numpy()
    wanted = [own.mean(), *(weights @ own / weights.sum(1))]
    kept = Result.load(found.save(tmp_path)).draws()[:, 0]
    assert len(kept) == 1 + REPEATS
    np.testing.assert_allclose(
        kept, wanted, atol=1e-3 * np.std(wanted)
    )  # half precision, in units of the class_balanced_order
    assert again.replicates == found.replicates


def test_a_replicate_without_images_is_nan() -> None:
    data = vitreous.data.load("world:shapes", split="test", size=1)
    first, *kept = vitreous.inspect("nano:vit", data, ["accuracy"], device="cpu")[
        "accuracy"
    ].draws()[:, 0]
    assert (
        40 < np.isnan(kept).sum() < 110
    )  # a Poisson number of mean one is zero in 37 % of the cases
    assert {each for each in kept if not np.isnan(each)} == {first}
