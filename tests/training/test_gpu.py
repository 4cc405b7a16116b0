"""What only a GPU can show; skipped elsewhere. The mathematics is the CPU's, which the other tests
check."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from training.toy import RECIPE, go, images
from vitreous.distributed import Processes
from vitreous.training.objectives import Classify
from vitreous.training.optim import optimiser
from vitreous.training.step import Step, order

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def steps(recorded: bool, count: int = 12) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Weights and losses after some steps, as a graph or without."""
    from vitreous.models import build

    torch.manual_seed(0)
    recipe = RECIPE.but(**{"model.drop_path": 0.0})
    objective = Classify(build("vit_nano", image=16, classes=3, depth=1)).cuda().train()
    data = images().to("cuda")
    step = Step(
        objective, optimiser(objective, recipe), data, recipe,
        batch=16, seed=0, precision="fp32", processes=Processes(), compile=False,
    )  # fmt: skip
    step.uses_graph = recorded
    losses = []
    for number in range(count):
        step(number, order(70, 4, 16, 1, 0, number // 4)[number % 4], 1e-3)
        losses.append(step.take_sums()["train_nll"])
    return objective.state_dict(), losses


def test_a_recorded_step_is_the_step() -> None:
    """The same numbers are drawn at every replay as without recording: weights agree, and losses
    step by step."""
    plain, graph = steps(recorded=False), steps(recorded=True)
    assert graph[1] == pytest.approx(plain[1], rel=1e-4)
    for key, value in plain[0].items():
        assert torch.allclose(graph[0][key], value, atol=1e-4), key


def test_training_on_the_gpu(tmp_path: Path) -> None:
    trained = go(tmp_path, RECIPE.but(epochs=12, ema=None), device="cuda", compile=False)
    assert trained.records[-1]["test_nll"] < trained.records[0]["test_nll"]
