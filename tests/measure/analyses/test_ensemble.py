"""The mean of several models' probabilities, against scikit-learn and against entropies written
down by hand."""

from __future__ import annotations

from importlib import import_module
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitreous
from measure.analyses.shifted import Linear, answered, chosen, levels, noise, shapes
from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError
from vitreous.measure.analyses.ensemble import (
    ALL,
    MEAN,
    Ensemble,
    ensemble_diversity,
    mean_log_probabilities,
)
from vitreous.results import wilson

QUICK: dict[str, Any] = {"others": ("nano:vit@warmup",)}


def models() -> dict[str, Linear]:
    return {name: Linear(seed=seed) for seed, name in enumerate(("a", "b", "c"))}


def data() -> Dataset:
    return chosen(answered(Linear(seed=0), 60))


@torch.no_grad()
def test_accuracy_nll_brier_ece_and_disagreement_against_others() -> None:
    metrics = import_module("sklearn.metrics")
    images, labels = levels(data().images), data().labels.numpy()
    shares = {name: model(images).softmax(1).numpy() for name, model in models().items()}
    shares[ALL] = np.mean(list(shares.values()), axis=0)
    found = Ensemble()(models(), data(), batch=7).table
    rows = {row["model"]: row for row in found[found["single"]].to_dict("records")}
    assert list(rows) == [ALL, "a", "b", "c", MEAN]
    for name, share in shares.items():
        sure, answer = share.max(1), share.argmax(1)
        bins = [
            np.flatnonzero((sure * 10).astype(int).clip(0, 9) == number) for number in range(10)
        ]
        gaps = [abs((answer[b] == labels[b]).sum() - sure[b].sum()) for b in bins]
        assert rows[name]["value"] == pytest.approx(metrics.accuracy_score(labels, answer))
        assert rows[name]["nll"] == pytest.approx(
            metrics.log_loss(labels, share, labels=range(4)), rel=1e-5
        )
        assert rows[name]["brier"] == pytest.approx(
            ((share - np.eye(4)[labels]) ** 2).sum(1).mean(), rel=1e-5
        )
        assert rows[name]["plain_ece"] == pytest.approx(sum(gaps) / 60, rel=1e-4)
        assert rows[name]["ece_low"] <= rows[name]["ece"] <= rows[name]["ece_high"]
        assert rows[name]["nll_change"] == pytest.approx(rows[name]["nll"] - rows[ALL]["nll"])
        assert rows[name]["low"] <= rows[name]["value"] <= rows[name]["high"]
    assert rows[MEAN]["nll"] == pytest.approx(np.mean([rows[name]["nll"] for name in "abc"]))
    assert rows[MEAN]["nll_change"] > 0
    for row in found[found["pair"]].to_dict("records"):
        differ = shares[row["model"]].argmax(1) != shares[row["other"]].argmax(1)
        assert row["disagreement"] == pytest.approx(differ.mean())
        ends = row["disagreement_low"], row["disagreement_high"]
        assert ends == (
            pytest.approx(wilson(differ.sum(), 60)[1:]) if row["model"] != row["other"] else (0, 0)
        )
    assert found["pair"].sum() == 9


def test_diversity_of_equal_and_of_opposite_members() -> None:
    sure = torch.eye(2, dtype=torch.float64).clamp(min=1e-300).log()
    apart = {"a": sure, "b": sure.flip(0)}
    assert ensemble_diversity(apart).tolist() == pytest.approx([log(2)] * 2)
    assert mean_log_probabilities(apart).exp().flatten().tolist() == pytest.approx([0.5] * 4)
    assert ensemble_diversity({"a": sure, "b": sure}).tolist() == pytest.approx([0, 0])
    same = Ensemble()({"a": Linear(seed=1), "b": Linear(seed=1)}, data()).table
    assert same["diversity"][0] == pytest.approx(0, abs=1e-6)
    assert same["nll"][0] == pytest.approx(same["nll"][1], rel=1e-6)
    assert same["disagreement"].max() == 0


def test_members_as_models_or_as_others_give_the_same_ensemble(tmp_path: Path) -> None:
    names = ["nano:vit", "nano:vit@warmup", "nano:vit@initial"]
    given = Ensemble()(names, shapes(20))
    named = Ensemble(others=tuple(names[1:]))(names[0], shapes(20), keep=tmp_path)
    assert given.about["members"] == named.about["members"] == names
    assert given.table.equals(named.table)
    assert len(list((tmp_path / "ensemble").glob("piece-*"))) == 3


def test_unsuitable_members_are_left_out_and_a_single_one_is_refused() -> None:
    found = vitreous.analyse(
        {"a": Linear(), "b": Linear(3), "c": Linear(seed=2)}, data(), ["ensemble"]
    )
    assert found["ensemble"].about["members"] == ["a", "c"]
    assert "has 3 classes" in found["ensemble"].about["left_out"]["b"]
    alone = vitreous.analyse({"a": Linear(), "b": Linear(3)}, data(), ["ensemble"]).left_out[
        "ensemble"
    ]
    assert "no other model with these classes" in alone["a"]
    assert (
        "no labels"
        in vitreous.analyse(models(), noise(5, classes=0), ["ensemble"]).left_out["ensemble"]["a"]
    )
    with pytest.raises(
        VitreousError, match=r"nano:vit cannot join the ensemble. It has 10 classes"
    ):
        Ensemble(others=("nano:vit",))({"a": Linear(side=32)}, noise(5, 32))
    with pytest.raises(VitreousError, match="name each member once"):
        Ensemble(others=("nano:vit",))("nano:vit", shapes(5))
    with pytest.raises(VitreousError, match="nano:vitt"):
        Ensemble(others=("nano:vitt",))("nano:vit", shapes(5))


def test_one_image_has_no_interval() -> None:
    table = Ensemble()(models(), data().take(range(1)), batch=100).table
    assert table["n"].tolist() == [1] * len(table)
    assert (
        table[["nll_low", "change_low", "ece_low", "diversity_high"]][table["part"] == "member"]
        .isna()
        .all(axis=None)
    )


def test_pairs_that_disagree_alike_are_named_once() -> None:
    members = {"a": Linear(seed=1), "b": Linear(seed=1), "c": Linear(seed=2)}
    _, pairs = Ensemble.sentences(Ensemble()(members, data()))
    assert pairs.startswith("Of all pairs of members, <b>a × c</b> and <b>b × c</b> disagree most")
    assert "; <b>a × b</b> least, on 0.0" in pairs
