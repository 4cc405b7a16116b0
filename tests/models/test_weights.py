"""Where weights come from: said by whoever loads them, for as long as nobody trains them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import nn

import vitreous
from vitreous.models.loading import load_model
from vitreous.models.weights import mark, weights_of


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("test_vit", "random"),
        ("vit_nano", "random"),
        ("tv:squeezenet1_1", "random"),
        ("nano:vit", "trained"),
        ("nano:resnet@warmup", "trained"),
    ],
)
def test_of_a_name(name: str, weights: str) -> None:
    assert weights_of(load_model(name)) == weights
    specimen = vitreous.open(name)
    assert specimen.weights == weights
    unit = (
        next(unit.name for unit in specimen.units if unit.skip) if "squeeze" not in name else None
    )
    if unit is not None:
        assert specimen.without(unit).weights == weights


def test_a_run_begins_with_random_weights_and_ends_with_trained_ones(tmp_path: Path) -> None:
    data = vitreous.data.load("world:shapes", size=32)
    recipe = vitreous.recipes.named("quick").but(epochs=1, batch=32, warmup=0.0, keep="checkpoints")
    vitreous.train("vit_nano", data, recipe, test=data, out=tmp_path / "run", show=False)
    assert weights_of(load_model(f"run:{tmp_path / 'run'}@initial")) == "random"
    assert weights_of(load_model(f"run:{tmp_path / 'run'}")) == "trained"


def test_training_by_other_code_ends_it() -> None:
    model = vitreous.build("vit_nano")
    assert weights_of(model) == "random"
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):  # the head begins at zero: only the second step reaches what lies before it
        assert weights_of(model) == "random"
        nn.functional.cross_entropy(
            model(torch.rand(2, 3, 32, 32)), torch.tensor([0, 1])
        ).backward()
        optimiser.step()
    assert weights_of(model) == "unknown"


def test_a_module_of_unknown_origin() -> None:
    """Norms as they are initialised: no training has touched them. Without any, nobody knows."""
    for name in ("test_vit", "test_resnet", "test_efficientnet"):
        assert weights_of(timm.create_model(name)) == "random"
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    assert weights_of(plain) == "unknown"
    normed = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    assert weights_of(normed) == "random"
    normed(torch.rand(4, 3, 8, 8))  # one batch in training mode is enough to move the running mean
    assert weights_of(normed) == "unknown"


def test_other_weights_loaded_into_a_model() -> None:
    trained: Any = load_model("nano:vit")
    model = mark(vitreous.build(**trained.config), "random")
    assert weights_of(model) == "random"
    model.load_state_dict(trained.state_dict())
    assert weights_of(model) == "unknown"
