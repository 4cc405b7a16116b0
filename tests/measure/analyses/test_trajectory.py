"""The way through training against vectors written down, and scikit-learn's principal
components."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitreous
from vitreous.errors import VitreousError
from vitreous.measure.analyses import trajectory as module
from vitreous.measure.analyses.trajectory import Trajectory, ordered_checkpoints, polar, principal
from vitreous.models.loading import load_model
from vitreous.results import Result
from vitreous.storage.run_folder import Run

QUICK: dict[str, Any] = {}


class Line(nn.Module):
    """A linear classifier, with a batch normalisation whose statistics must not count."""

    def __init__(self, seed: int, width: int = 3) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.norm, self.score = nn.BatchNorm2d(3), nn.Linear(width, 10)
        self.norm.running_mean.fill_(100.0 * seed)  # type: ignore[union-attr]
        self.width = width
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.score(self.norm(images).mean((2, 3)).repeat(1, self.width // 3))
        return found


def data() -> Any:
    return vitreous.data.load("world:shapes", split="test", size=4)


def asked(models: Any, **how: Any) -> Result:
    return Trajectory()(models, data(), image=32, device="cpu", **how)


def checkpoints(found: Result) -> Any:
    return found.table[found.table["drawn"]].reset_index(drop=True)


def flat(model: nn.Module) -> np.ndarray:
    return torch.cat(
        [value.detach().double().flatten() for _, value in sorted(model.named_parameters())]
    ).numpy()


def test_distances_and_angles_by_hand() -> None:
    models = [Line(seed) for seed in range(4)]
    found = asked({f"line@{i}": model for i, model in enumerate(models)})
    weights = np.stack([flat(model) for model in models])
    away = weights - weights[-1]
    lengths = np.linalg.norm(away, axis=1)
    table = checkpoints(found)
    assert list(table["model"].unique()) == ["line"]
    assert list(table["checkpoint"]) == ["0", "1", "2", "3"]
    np.testing.assert_allclose(table["distance"], lengths / lengths[0], atol=1e-12)
    cosines = away[1:3] @ away[0] / lengths[1:3] / lengths[0]
    np.testing.assert_allclose(table["angle"][1:3], np.degrees(np.arccos(cosines)))
    assert table["angle"][0] == 0
    assert np.isnan(table["angle"][3])
    np.testing.assert_allclose(table["towards"][1:3], away[1:3] @ away[0] / lengths[0] ** 2)
    np.testing.assert_allclose(table["length"], np.linalg.norm(weights, axis=1))
    turned = np.abs(np.diff(table["angle"][:3])).sum()
    assert found.about["ways"]["line"] == {
        "farthest": pytest.approx(table["distance"].max()), "turning": pytest.approx(turned),
        "checkpoints": 4
    }  # fmt: skip
    assert "could not be reproduced" in found.about["note"]


def test_principal_components_are_scikit_learns() -> None:
    weights = np.random.default_rng(0).normal(size=(6, 40)).cumsum(0)
    away = weights - weights[-1]
    places, shares = principal(away @ away.T)
    theirs = import_module("sklearn.decomposition").PCA(5).fit(weights)
    np.testing.assert_allclose(shares, theirs.explained_variance_ratio_, atol=1e-10)
    expected = theirs.transform(weights)
    expected *= np.where(expected[-1] < expected[0], -1.0, 1.0)
    np.testing.assert_allclose(places, expected, atol=1e-8)
    assert (places[-1] >= places[0]).all()


def test_a_straight_path_has_one_component_and_no_angle() -> None:
    start, step = np.zeros(5), np.arange(5.0)
    weights = np.stack([start + i * step for i in range(4)])
    away = weights - weights[-1]
    distance, angle = polar(away @ away.T)
    np.testing.assert_allclose(distance, [1, 2 / 3, 1 / 3, 0], atol=1e-12)
    np.testing.assert_allclose(angle[:3], 0, atol=1e-5)
    np.testing.assert_allclose(principal(away @ away.T)[1], [1, 0, 0], atol=1e-12)


def test_the_end_is_the_one_without_a_checkpoint_wherever_it_stands() -> None:
    models = {"line": Line(3), "line@0": Line(0), "line@1": Line(1)}
    table = checkpoints(asked(models))
    assert list(table["checkpoint"]) == ["0", "1", "final"]
    assert table["distance"].iloc[-1] == 0


def test_a_run_by_name_equals_its_checkpoints_as_models() -> None:
    by_name = asked("nano:resnet")
    side_by_side = asked(["nano:resnet@initial", "nano:resnet@warmup", "nano:resnet"])
    np.testing.assert_allclose(
        checkpoints(by_name)[["distance", "angle"]],
        checkpoints(side_by_side)[["distance", "angle"]],
        rtol=1e-9,
        atol=1e-7,
    )
    assert list(checkpoints(by_name)["checkpoint"]) == ["initial", "warmup", "final"]
    ends = [
        flat(load_model(f"nano:resnet@{checkpoint}"))
        for checkpoint in ("initial", "warmup", "final")
    ]
    ratio = np.linalg.norm(ends[1] - ends[2]) / np.linalg.norm(ends[0] - ends[2])
    assert checkpoints(by_name)["distance"][1] == pytest.approx(ratio, rel=1e-9)


def test_every_epoch_in_order_and_none_twice(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write("recipe.json", {})
    (tmp_path / "weights").mkdir()
    for name in (
        "initial",
        "warmup",
        "33",
        "66",
        "final",
        "epoch-0002",
        "epoch-0010",
        "epoch-0001",
    ):
        run.save(f"weights/{name}.safetensors", {"w": torch.zeros(1)})
    assert ordered_checkpoints(run) == ["initial", "epoch-0001", "epoch-0002", "epoch-0010"]


def test_weights_that_do_not_fit_into_memory_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = {f"line@{i}": Line(i) for i in range(3)}
    usual = asked(models)
    monkeypatch.setattr(module, "CACHE_SIZE", 0)
    assert asked(models).table.equals(usual.table)


def test_models_that_are_no_checkpoints_of_one_training() -> None:
    with pytest.raises(
        VitreousError,
        match=r"'0' and '1' are not of one training: 'score.weight' is \(10, 3\) in one",
    ):
        asked({"line@0": Line(0), "line@1": Line(1, width=6)})


def test_unsuited_models_and_a_path_of_one_point() -> None:
    found = vitreous.analyse("nano:mixer", data(), [Trajectory()])
    assert "final weights only" in found.left_out["trajectory"]["nano:mixer"]
    alone = checkpoints(asked(Line(0)))
    assert len(alone) == 1
    assert np.isnan(alone["distance"][0])
    bare = vitreous.analyse(
        nn.Sequential(nn.Flatten(), nn.AvgPool1d(300)), data(), [Trajectory()], image=32
    )
    assert "no parameters" in bare.left_out["trajectory"]["Sequential"]


def test_no_labels_are_needed() -> None:
    unlabelled = vitreous.data.Dataset(data().images, torch.full((4,), -1), (), "pictures", "test")
    found = Trajectory()({"line@0": Line(0), "line": Line(1)}, unlabelled, image=32)
    assert len(checkpoints(found)) == 2


def test_weights_that_lack_a_parameter(tmp_path: Path) -> None:
    subject = vitreous.measure.subject.subjects(Line(0), image=32)[0]
    run = Run(tmp_path)
    run.write("recipe.json", {})
    (tmp_path / "weights").mkdir()
    run.save("weights/final.safetensors", {"score.weight": torch.zeros(10, 3)})
    with pytest.raises(VitreousError, match=r"lack 'norm.weight'"):
        module._from_file(run, "final", subject).read()
