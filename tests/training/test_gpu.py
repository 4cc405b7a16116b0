"""What only a GPU can show; skipped elsewhere. The mathematics is the CPU's, which the other tests
check."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from training.toy import RECIPE, go, images
from vitreous.distributed import Processes
from vitreous.training.evaluate import trained_attention
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


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tokens", [64, 65, 192])
def test_gradients_of_attention_are_finite_where_all_scores_are_low(
    tokens: int, masked: bool
) -> None:
    """By cuDNN the queries' gradient is NaN for 64 and 192 tokens, with a mask at least."""
    width, score = 48, -120.0
    query, key, value = (
        torch.randn(2, 4, tokens, width, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )
    query, key = query * 0.1, key * 0.1
    query[..., 0], key[..., 0] = 1.0, score * width**0.5
    given = query, key, value = tuple(each.requires_grad_() for each in (query, key, value))
    mask = torch.ones(tokens, tokens, dtype=torch.bool, device="cuda") if masked else None
    with trained_attention():
        attended = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
    gradients = torch.autograd.grad(attended.float().square().sum(), given)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
