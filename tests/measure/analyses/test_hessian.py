"""Spectra of the loss over batches: against dense Hessians, closed forms, and what is said when
something is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

import vitreous
from vitreous.data.dataset import Dataset
from vitreous.data.subsets import class_balanced_order
from vitreous.errors import VitreousError
from vitreous.measure.analyses.hessian import HessianSpectrum
from vitreous.measure.curvature.spectra import density, summaries
from vitreous.measure.subject import subjects
from vitreous.results import wilson

QUICK: dict[str, Any] = {"size": 8, "top": 2, "where": "head", "tolerance": 0.03}
SIZE = 6


class Small(nn.Module):
    """Two hundred parameters."""

    def __init__(self, outputs: int = 10) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.hidden, self.head = nn.Linear(3 * 4, 8), nn.Linear(8, outputs)

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.head(F.gelu(self.hidden(F.adaptive_avg_pool2d(images, 2).flatten(1))))
        return found


def data(count: int = 3 * SIZE + 1) -> Dataset:
    return vitreous.data.load("world:shapes", split="train", size=count)


def asked(model: Any = None, images: Any = None, **options: Any) -> Any:
    given = {"stream": "clean", "size": SIZE, "top": 4, "weight_decay": 0.0, **options}
    return HessianSpectrum(**given)(
        Small() if model is None else model, data() if images is None else images, image=32
    )


def eigenvalues(result: Any) -> np.ndarray:
    table = result.table[result.table["measure"] == "eigenvalue"]
    found: np.ndarray = table.pivot_table("value", "batch", "rank").to_numpy()
    return found


def measure(result: Any, name: str) -> Any:
    return result.table[result.table["measure"] == name].iloc[0]


def dense(number: int, decay: float = 0.0) -> np.ndarray:
    """Of one batch, by torch."""
    model = Small().double()
    subject = subjects(model, image=32)[0].for_dataset(data())
    rows = class_balanced_order(data().labels.numpy(), 0)[number * SIZE : (number + 1) * SIZE]
    images, labels = subject.prepare(data().images[rows]), data().labels[rows]
    named = {name: value.detach() for name, value in model.named_parameters()}
    sizes = [value.numel() for value in named.values()]

    def loss(flat: Tensor) -> Tensor:
        parts = zip(named.items(), flat.split(sizes), strict=True)
        given = {name: part.view_as(value) for (name, value), part in parts}
        return F.cross_entropy(torch.func.functional_call(model, given, (images,)), labels)

    start = torch.cat([value.flatten() for value in named.values()])
    values = (
        torch.linalg.eigvalsh(
            torch.autograd.functional.hessian(loss, start, vectorize=True)
        ).numpy()
        + decay
    )
    return values[np.argsort(-np.abs(values))][:4]


def test_every_batch_has_the_eigenvalues_of_its_dense_hessian() -> None:
    found = asked(Small().double(), tolerance=1e-7)
    expected = np.stack([dense(number) for number in range(3)])
    np.testing.assert_allclose(eigenvalues(found), expected, rtol=1e-8)
    table = found.table[found.table["measure"] == "eigenvalue"]
    assert (table["residual"] <= 1e-7 * table["value"].abs()).all()
    assert measure(found, "NEP")["value"] == pytest.approx((expected < 0).mean())
    assert measure(found, "APE")["value"] == pytest.approx(expected[expected > 0].mean())
    assert measure(found, "largest")["value"] == pytest.approx(expected.max(1).mean())
    assert found.about["unconverged"] == {"Small": 0}
    np.testing.assert_allclose(
        eigenvalues(asked(tolerance=1e-4)), expected, rtol=1e-4
    )  # in float32


def test_weight_decay_shifts_every_eigenvalue() -> None:
    """And so may change which of them are the largest in size."""
    expected = np.stack([dense(number, decay=0.25) for number in range(3)])
    np.testing.assert_allclose(
        eigenvalues(asked(Small().double(), weight_decay=0.25, tolerance=1e-7)), expected
    )
    assert (expected > 0).all()


def test_the_stream_is_recorded_and_matters() -> None:
    clean, augmented = (asked(stream=stream) for stream in ("clean", "augmented"))
    assert [each.about["options"]["stream"] for each in (clean, augmented)] == [
        "clean",
        "augmented",
    ]
    assert "augmented images" in augmented.views[0].title
    assert not np.allclose(eigenvalues(clean), eigenvalues(augmented), rtol=0.01)
    np.testing.assert_array_equal(eigenvalues(augmented), eigenvalues(asked(stream="augmented")))


def test_nep_and_ape_of_known_values() -> None:
    values = [np.array([4.0, -2.0]), np.array([-1.0, 0.0]), np.array([8.0, 3.0])]
    traces = [np.array([0.0, 2.0]), np.array([2.0, 2.0]), np.array([5.0, 7.0])]
    found = summaries(values, traces)
    assert [each.mean for each in found.values()] == pytest.approx([2 / 6, 5.0, 4.0, 3.0])
    for measure, each in (("largest", [4.0, 0.0, 8.0]), ("trace", [1.0, 2.0, 6.0])):
        theirs = stats.ttest_1samp(each, 0).confidence_interval()
        assert found[measure][1:] == pytest.approx((theirs.low, theirs.high))
    off = np.array([4 - 5, 0, 11 - 2 * 5]) / 1.0  # of one positive eigenvalue a batch on average
    reach = stats.t.ppf(0.975, 2) * off.std(ddof=1) / np.sqrt(3)
    assert found["APE"][1:] == pytest.approx((5 - reach, 5 + reach))
    assert 0 <= found["NEP"].low < 2 / 6 < found["NEP"].high <= 1


def test_two_batches_are_no_95_percent_interval_from_end_to_end() -> None:
    found = summaries([np.array([4.0]), np.array([6.0])], [np.array([1.0]), np.array([3.0])])
    assert found["largest"] == pytest.approx((5.0, 5 - 12.7062, 5 + 12.7062), rel=1e-4)
    assert found["trace"] == pytest.approx((2.0, 2 - 12.7062, 2 + 12.7062), rel=1e-4)
    assert found["NEP"] == pytest.approx((0.0, *wilson(0, 2)[1:]))


def test_a_single_batch_has_an_interval_of_its_trace_over_draws() -> None:
    model, images = Small().double(), data(SIZE)
    found = asked(model, where="head.*", images=images, top=1)
    trace, expected = measure(found, "trace"), head_trace(model, images)
    assert trace["low"] < expected < trace["high"]
    assert trace["high"] - trace["low"] < 2 * expected
    more = measure(asked(model, where="head.*", images=images, top=1, draws=200), "trace")
    assert more["high"] - more["low"] < 0.3 * (trace["high"] - trace["low"])
    assert np.isnan(measure(found, "largest")["low"])


def test_eigenvalues_that_could_not_be_verified_are_counted() -> None:
    assert asked(top=3).about["unconverged"] == {"Small": 0}
    few = asked(top=3, most=4, tolerance=0.9)
    assert (
        few.table["residual"].dropna()
        <= 0.9 * few.table["value"].abs()[few.table["residual"].notna()]
    ).all()
    assert few.about["unconverged"] == {"Small": 9}


def test_curves_are_densities() -> None:
    rng = np.random.default_rng(0)
    points = [(rng.normal(size=5) * 10, np.full(5, 0.2)) for _ in range(8)]
    for wide in (None, 0.01):
        at, found = density(
            points, np.concatenate([np.ones((1, 8)), rng.poisson(1.0, (4, 8)) + 0.0]), wide
        )
        np.testing.assert_allclose(np.trapezoid(found, at, axis=1), 1.0, atol=0.01)
    at, found = density(
        [(np.array([3.0]), np.ones(1))], np.ones((1, 1)), None
    )  # a single eigenvalue
    assert at[np.argmax(found[0])] == pytest.approx(3.0)


def test_intervals_are_over_batches() -> None:
    found = asked(images=data(8 * SIZE))
    ape = measure(found, "APE")
    assert ape["low"] < ape["value"] < ape["high"]
    assert ape["n"] == 8 * SIZE
    assert np.isnan(measure(asked(images=data(SIZE)), "APE")["low"])


def head_trace(model: Small, images: Dataset) -> float:
    """Of the head alone the Hessian is known: that of softmax, times features."""
    shown = subjects(model, image=32)[0].for_dataset(images).prepare(images.images)
    with torch.no_grad():
        features = F.gelu(model.hidden(F.adaptive_avg_pool2d(shown, 2).flatten(1)))
        p = model.head(features).softmax(1)
        return float(((p - p.square()).sum(1) * (features.square().sum(1) + 1)).mean())


def test_trace_is_that_of_the_model_on_average() -> None:
    model = Small().double()
    found = asked(model, where="head.*", images=data(16 * SIZE))
    expected = head_trace(model, data(16 * SIZE))
    trace = measure(found, "trace")
    assert trace["low"] < expected < trace["high"]
    assert trace["value"] == pytest.approx(expected, rel=0.2)
    assert measure(found, "NEP")["value"] == 0  # convex in the head


def test_eigenvalues_that_do_not_converge_are_counted() -> None:
    found = asked(most=5)
    assert found.about["unconverged"]["Small"] > 0
    table = found.table[found.table["measure"] == "eigenvalue"]
    assert (table["residual"] > 1e-3 * table["value"].abs()).any()


def test_bad_options() -> None:
    for option, value in (
        ("top", 0),
        ("size", 0),
        ("most", 0),
        ("draws", 0),
        ("tolerance", 0.0),
        ("weight_decay", -1.0),
    ):
        wrong: dict[str, Any] = {option: value}
        with pytest.raises(VitreousError, match=f"{value}"):
            HessianSpectrum(**wrong)
    with pytest.raises(VitreousError, match="no stream 'cleen'"):
        asked(stream="cleen")
    with pytest.raises(VitreousError, match="no part 'haed'"):
        asked(where="haed")


def test_bad_images_and_models() -> None:
    few = data(5)
    with pytest.raises(VitreousError, match=r"batches of 6 images, and 'world:shapes' has 5"):
        asked(images=few)
    unlabelled = Dataset(few.images, torch.full((5,), -1), (), "photos")
    with pytest.raises(VitreousError, match="have no labels"):
        asked(images=unlabelled)
    with pytest.raises(VitreousError, match="one class"):
        asked(Small(1), Dataset(few.images, torch.zeros(5, dtype=torch.int64), ("cat",), "cats"))
    bare = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.AdaptiveAvgPool1d(10))
    with pytest.raises(VitreousError, match="no parameters"):
        asked(bare)
    model = Small()
    with torch.no_grad():
        model.head.weight.mul_(1e38)
    with pytest.raises(VitreousError, match="is not finite on these images"):
        asked(model)
