"""Probes fitted from sums, against scikit-learn on all features at once."""

from __future__ import annotations

import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import vitreous
from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError
from vitreous.measure.analyses.linear_probe import LinearProbe
from vitreous.measure.analysis import Bench
from vitreous.measure.probe import Setting
from vitreous.measure.readout import fitting
from vitreous.measure.readout.logistic import Logistic
from vitreous.measure.readout.ridge import Moments, choose_penalty, join_moments, solve
from vitreous.measure.subject import Subject, subjects
from vitreous.specimen.specimen import Specimen

QUICK: dict[str, Any] = {"shots": (1,), "tokens": ("class token", "mean over positions")}


@cache
def opened(name: str) -> Specimen:
    return vitreous.open(name)


@cache
def data(split: str, size: int) -> Any:
    return vitreous.data.load("world:shapes", split=split, size=size)


def drawn(
    count: int, width: int, offset: float = 0.0, seed: int = 0, signal: float = 1.0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, width, generator=generator, dtype=torch.float64) * torch.logspace(
        -2, 1, width
    )
    labels = torch.randint(0, 4, (count,), generator=generator)
    features[:, :4] += signal * torch.nn.functional.one_hot(labels, 4)
    return features.double() + offset, 2.0 * torch.nn.functional.one_hot(labels, 4).double() - 1


@pytest.mark.parametrize("width", [6, 60], ids=["more images", "more features"])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_ridge_from_parts_equals_scikit_learn(width: int, offset: float) -> None:
    linear_model = import_module("sklearn.linear_model")
    features, targets = drawn(40, width, offset)
    blocks = [Moments.of(x, y) for x, y in zip(features.split(7), targets.split(7), strict=True)]
    for penalty in (1e-3, 1.0, 30.0):
        probe = solve(join_moments(blocks), penalty)
        other = linear_model.Ridge(alpha=probe.penalty).fit(features.numpy(), targets.numpy())
        np.testing.assert_allclose(probe.weight.numpy(), other.coef_.T, rtol=1e-6, atol=1e-9)
        new, _ = drawn(9, width, offset, seed=1)
        np.testing.assert_allclose(
            probe(new).numpy(), other.predict(new.numpy()), rtol=1e-6, atol=1e-6
        )
        eigenvalues = np.linalg.eigvalsh(np.cov(features.T.numpy()) * 39)
        assert probe.penalty == pytest.approx(penalty * eigenvalues.mean(), rel=1e-6)


def test_large_offsets_do_not_reduce_precision_in_float32() -> None:
    features, targets = drawn(200, 8)
    far = join_moments(
        [
            Moments.of(x + 100, y)
            for x, y in zip(features.float().split(32), targets.split(32), strict=True)
        ]
    )
    near = Moments.of(features, targets)
    assert torch.allclose(far.products, near.products, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("size", [7, 100])
def test_a_feature_that_is_the_same_for_all_images_tells_nothing(size: int) -> None:
    """The class token of the first layers: rounding of its mean must not become a classifier."""
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(1, 24, generator=generator).expand(100, -1).contiguous()
    targets = torch.eye(5)[torch.arange(100) % 5]
    parts = zip(features.split(size), targets.split(size), strict=True)
    moments = join_moments([Moments.of(x, y) for x, y in parts])
    fitted = solve(moments, choose_penalty(moments, moments, (1e-6, 1.0)))
    assert not fitted.weight.any()
    torch.testing.assert_close(fitted.bias, torch.full((5,), 0.2, dtype=torch.float64))


def test_the_penalty_has_the_least_error_on_what_was_held_out() -> None:
    linear_model = import_module("sklearn.linear_model")
    penalties = [10.0 ** (tenth / 10) for tenth in range(-40, 31)]
    chosen = []
    for width, signal in ((30, 1.0), (30, 0.05), (60, 0.01), (4, 0.0)):
        features, targets = drawn(80, width, signal=signal)
        features[40:] += 0.3  # those held out lie elsewhere
        fit, held_out = (
            Moments.of(features[:40], targets[:40]),
            Moments.of(features[40:], targets[40:]),
        )
        errors = []
        for penalty in penalties:
            other = linear_model.Ridge(alpha=penalty * fit.scale).fit(
                features[:40].numpy(), targets[:40].numpy()
            )
            errors.append(
                float(((other.predict(features[40:].numpy()) - targets[40:].numpy()) ** 2).sum())
            )
        chosen.append(int(np.argmin(errors)))
        assert choose_penalty(fit, held_out, penalties) == penalties[chosen[-1]]
    assert len(set(chosen)) > 1


def test_the_analysis_equals_scikit_learn_on_stored_features() -> None:
    """One unit of a real model, in float64: features kept, fitted by scikit-learn with the penalty
    that was chosen."""
    linear_model = import_module("sklearn.linear_model")
    specimen = copy.deepcopy(opened("nano:vit")).double()
    train, test = data("train", 100), data("test", 24)
    table = LinearProbe(shots=(3,))(
        {"vit": specimen}, {"train": train, "test": test}, batch=16
    ).table
    rows = table[table["unit"] == "blocks.3.mlp"]
    (subject,) = subjects({"vit": specimen})
    sets = LinearProbe(shots=(3,)).probe_data(
        bench(subject, chosen(test), {"train": chosen(train)})
    )
    for token in ("class token", "mean over positions", "first position"):
        x, new = (kept(subject, each, token) for each in (sets.fitting, sets.evaluation))
        y = 2.0 * torch.nn.functional.one_hot(sets.fitting.labels, 10).numpy() - 1
        for shots, rows_fitted in (("3", sets.fitted(0).numpy()), ("all", slice(None))):
            row = rows[(rows["token"] == token) & (rows["shots"] == shots)].iloc[0]
            other = linear_model.Ridge(alpha=row["penalty"]).fit(x[rows_fitted], y[rows_fitted])
            right = other.predict(new).argmax(1) == sets.evaluation.labels.numpy()
            assert row["value"] == right.mean()
            assert row["fitted"] == len(x[rows_fitted])
    assert int(sets.fitted(0).sum()) == 30
    assert not bool((sets.fitted(0) & sets.held_out).any())


def bench(subject: Subject, images: Dataset, splits: dict[str, Dataset]) -> Bench:
    return Bench(Setting((subject,), images), 16, splits)


def chosen(images: Dataset) -> Dataset:
    from vitreous.measure.selection import choose_images

    return choose_images(images, "any", None, (), 0)


@torch.no_grad()
def kept(subject: Subject, images: Dataset, token: str) -> np.ndarray:
    seen = subject.specimen.observe(subject.prepare(images.images), ("after",), "blocks.3.mlp")[
        "blocks.3.mlp"
    ]
    assert seen.after is not None
    tokens = seen.after.tokens
    picked = {
        "class token": tokens[:, 0],
        "mean over positions": tokens[:, 1:].mean(1),
        "first position": tokens[:, 1],
    }
    return picked[token].numpy()


def test_every_single_position_equals_scikit_learn(tmp_path: Path) -> None:
    """All tokens of one unit, in float64, each fitted by scikit-learn with the penalty that was
    chosen for it."""
    linear_model = import_module("sklearn.linear_model")
    specimen = copy.deepcopy(opened("nano:vit")).double()
    train, test = data("train", 60), data("test", 24)
    question = LinearProbe(shots=(2,), tokens=("class token",), positions=("blocks.3.mlp",))
    result = question({"vit": specimen}, {"train": train, "test": test}, batch=16)
    single = result.table[result.table["token"] == "one position"]
    (subject,) = subjects({"vit": specimen})
    sets = LinearProbe(shots=(2,)).probe_data(
        bench(subject, chosen(test), {"train": chosen(train)})
    )
    x, new = (every_token(subject, each) for each in (sets.fitting, sets.evaluation))
    y = 2.0 * torch.nn.functional.one_hot(sets.fitting.labels, 10).numpy() - 1
    rights: dict[str, list[np.ndarray]] = {"2": [], "all": []}
    for row in single.to_dict("records"):
        fitted = sets.fitted(0).numpy() if row["shots"] == "2" else slice(None)
        at = 1 + 8 * int(row["row"]) + int(row["column"])  # after the class token
        other = linear_model.Ridge(alpha=row["penalty"]).fit(x[fitted, at], y[fitted])
        rights[row["shots"]].append(
            other.predict(new[:, at]).argmax(1) == sets.evaluation.labels.numpy()
        )
        assert row["value"] == rights[row["shots"]][-1].mean()
        assert row["map"] == "vit, blocks.3.mlp"
        assert row["mapped"] == (row["shots"] == "all")
    alone = result.table[result.table["token"] == "each position alone"]
    assert list(alone["shots"]) == ["2", "all"]
    for row in alone.to_dict("records"):
        assert row["value"] == pytest.approx(np.mean(rights[row["shots"]]))
        assert row["low"] < row["value"] < row["high"]
    assert single["value"].nunique() > 3
    assert single["whole"].sum() == 0
    assert [view.facet for view in result.views] == ["model", "map"]
    drawn = result.chart(1).to_dict()
    assert drawn
    assert vitreous.Result.load(result.save(tmp_path)) == result


@torch.no_grad()
def every_token(subject: Subject, images: Dataset) -> np.ndarray:
    seen = subject.specimen.observe(subject.prepare(images.images), ("after",), "blocks.3.mlp")[
        "blocks.3.mlp"
    ]
    assert seen.after is not None
    return seen.after.tokens.numpy()


def test_positions_in_several_pieces_and_of_models_that_have_no_such_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = LinearProbe(
        shots=(), tokens=("mean over positions",), positions=("stages.2.2.convs",)
    )
    models, sets = (
        {name: opened(name) for name in ("nano:resnet", "nano:vit")},
        {"train": data("train", 30)},
    )
    sets["test"] = data("test", 12)
    whole = question(models, sets)
    assert set(whole.table[whole.table["token"] == "one position"]["model"]) == {"nano:resnet"}
    (subject, _) = subjects(models)
    width = subject.specimen.anatomy.find("stages.2.2.convs")[0].channels
    assert width is not None
    monkeypatch.setattr(fitting, "MEMORY", 8 * 2 * width * (width + 10) * 30)
    assert len(question.pieces(subject, bench(subject, sets["test"], {"train": sets["train"]}))) > 2
    assert question(models, sets).table.equals(whole.table)
    with pytest.raises(VitreousError, match=r"stages\.9"):
        LinearProbe(positions=("stages.9",))(models, sets)


def test_maps_are_drawn_of_few_units_spread_over_the_depth() -> None:
    (subject,) = subjects({"vit": opened("nano:vit")})
    drawn = LinearProbe(positions=("*",))._units_with_map(subject)
    apart = [
        unit for unit in subject.specimen.units if unit.grid is not None and unit.kind != "head"
    ]
    assert len(drawn) == 6 < len(apart)
    assert {apart[0], apart[-1]} <= set(drawn)
    assert LinearProbe()._units_with_map(subject) == []


def test_logistic_probes_are_scikit_learns() -> None:
    linear_model = import_module("sklearn.linear_model")
    for classes in (2, 4):
        features, targets = drawn(120, 5)
        labels = targets.argmax(1) % classes + 1  # no image of class 0
        fit = torch.arange(120) < 90
        probe = Logistic.fit(features, labels, fit, ~fit, False)
        scaled = (features - features[fit].mean(0)) / features[fit].std(0, correction=0)
        other = linear_model.LogisticRegression(C=1 / probe.penalty, max_iter=2000).fit(
            scaled[fit], labels[fit]
        )
        assert torch.equal(
            probe(features).argmax(1), torch.from_numpy(other.predict(scaled.numpy()))
        )
        shares = probe(features).softmax(1)[:, 1:]
        np.testing.assert_allclose(shares.numpy(), other.predict_proba(scaled.numpy()), atol=1e-6)


def test_logistic_probes_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    question = LinearProbe(shots=(), tokens=("class token",), method="logistic")
    sets = {"train": data("train", 100), "test": data("test", 40)}
    table = question({"vit": opened("nano:vit")}, sets).table
    assert table["value"].iloc[-1] > 0.9
    assert table["value"].iloc[0] < 0.4
    monkeypatch.setattr(fitting, "MEMORY", 1000)
    with pytest.raises(VitreousError, match="method='ridge'"):
        question({"vit": opened("nano:vit")}, sets)


def test_groups_of_units_give_the_result_of_all_units_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question, sets = LinearProbe(shots=(1,)), {"train": data("train", 60), "test": data("test", 24)}
    together = question({"vit": opened("nano:vit")}, sets).table
    monkeypatch.setattr(fitting, "MEMORY", 8 * 3 * 96 * 106 * 13)
    (subject,) = subjects({"vit": opened("nano:vit")})
    assert (
        len(question.pieces(subject, bench(subject, sets["test"], {"train": sets["train"]}))) == 3
    )
    assert question({"vit": opened("nano:vit")}, sets).table.equals(together)


def test_one_set_is_divided_and_no_image_is_in_both_parts() -> None:
    images = data("test", 60)
    (subject,) = subjects({"vit": opened("nano:vit")})
    for splits in ({}, {"train": chosen(images)}):
        sets = LinearProbe().probe_data(bench(subject, chosen(images), splits))
        assert (len(sets.fitting), len(sets.evaluation)) == (30, 30)
        both = torch.cat([sets.fitting.images, sets.evaluation.images]).flatten(1)
        assert len(both.unique(dim=0)) == 60
        ours, all_of_them = (each.labels.bincount(minlength=10) for each in (sets.fitting, images))
        assert bool((2 * ours - all_of_them).abs().max() <= 2)
    assert set(sets.missing) == {"5 shots", "10 shots"}


def test_bad_input() -> None:
    model = {"vit": opened("nano:vit")}
    for options, words in (
        ({"method": "svm"}, "method of a linear probe"),
        ({"tokens": ("cls",)}, "token for a linear probe"),
        ({"shots": (5, 1)}, "in order"),
        ({"shots": (0,)}, "positive"),
        ({"penalties": ()}, "positive"),
    ):
        with pytest.raises(VitreousError, match=words):
            LinearProbe(**options)
    images = data("test", 24)

    def why(labels: Tensor, classes: tuple[str, ...], count: int = 24) -> str:
        given = Dataset(images.images[:count], labels[:count], classes, "given", "test")
        return vitreous.analyse(model, given, ["linear_probe"], batch=500).left_out["linear_probe"][
            "vit"
        ]

    assert "have none" in why(torch.full((24,), -1), ())
    bare = Dataset(images.images, torch.full((24,), -1), images.classes, "bare", "train")
    left_out = vitreous.analyse(model, {"train": bare, "test": images}, ["linear_probe"]).left_out
    assert "to fit on have none" in left_out["linear_probe"]["vit"]
    assert "one class" in why(torch.zeros(24, dtype=torch.int64), ("one", "two"))
    assert "at least 5 images" in why(images.labels, images.classes, 3)
