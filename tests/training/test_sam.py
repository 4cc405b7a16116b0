"""Sharpness-aware minimisation (A3.08) against a closed form and an implementation of its own in
float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from vitreous.config import Recipe
from vitreous.models import build
from vitreous.training.optim import optimiser, sam_perturbation


def test_closed_form_on_a_quadratic() -> None:
    """L = w^T H w / 2: the gradient above is H (w + rho H w / |H w|)."""
    root = torch.randn(4, 4, dtype=torch.float64)
    hessian = root @ root.T
    model = nn.Linear(4, 1, bias=False).double()
    w = model.weight

    def loss() -> Tensor:
        return (w @ hessian @ w.T).sum() / 2

    loss().backward()
    start = w.detach().clone()
    slope = start @ hessian
    with sam_perturbation(model, 0.7):
        assert w.grad is None
        torch.testing.assert_close(w.detach(), start + 0.7 * slope / slope.norm())
        loss().backward()
    assert torch.equal(w, start)
    torch.testing.assert_close(w.grad, (start + 0.7 * slope / slope.norm()) @ hessian)


def by_hand(
    start: list[Tensor], loss: Callable[[list[Tensor], int], Tensor], steps: int, rho: float
) -> list[Tensor]:
    """SGD at lr 0.1 with the gradient of the ascended point, functional and in float64."""
    weights = [w.double() for w in start]
    for step in range(steps):
        at = [w.clone().requires_grad_() for w in weights]
        slope = torch.autograd.grad(loss(at, step), at)
        length = torch.cat([g.flatten() for g in slope]).norm()
        above = [
            (w + rho * g / length).requires_grad_() for w, g in zip(weights, slope, strict=True)
        ]
        slope = torch.autograd.grad(loss(above, step), above)
        weights = [w - 0.1 * g for w, g in zip(weights, slope, strict=True)]
    return weights


def test_several_steps_against_an_implementation_of_its_own() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    inputs, labels = torch.randn(5, 16, 6).double(), torch.randint(3, (5, 16))
    names = [name for name, _ in model.named_parameters()]

    def loss(weights: list[Tensor], step: int) -> Tensor:
        logits = torch.func.functional_call(
            model, dict(zip(names, weights, strict=True)), inputs[step]
        )
        return nn.functional.cross_entropy(logits, labels[step])

    expected = by_hand([p.detach() for p in model.parameters()], loss, 5, rho=0.3)
    moving = optimiser(model, Recipe(optimiser="sgd", lr=0.1, momentum=0.0, weight_decay=0.0))
    for step in range(5):
        moving.zero_grad()
        loss(list(model.parameters()), step).backward()
        with sam_perturbation(model, 0.3):
            loss(list(model.parameters()), step).backward()
        moving.step()
    for found, right in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(found.detach(), right, rtol=1e-10, atol=1e-12)


def test_weights_come_back_bit_by_bit_also_after_an_error() -> None:
    """Where adding and subtracting would not: weights of very different sizes, in float32."""
    model = build("vit_ti/4", image=16, classes=10, depth=1, init="timm")
    with torch.no_grad():
        model.get_parameter("norm.weight").mul_(1e-6)
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def moved() -> list[str]:
        return [
            name
            for name, value in model.state_dict().items()
            if not torch.equal(value, before[name])
        ]

    def fall() -> None:
        with sam_perturbation(model, 100.0):
            assert len(moved()) > 15
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fall()
    assert moved() == []


def test_a_gradient_of_zero_moves_nothing() -> None:
    model = nn.Linear(3, 2)
    (0 * model(torch.ones(1, 3)).sum()).backward()
    start = model.weight.detach().clone()
    with sam_perturbation(model, 0.05):
        assert torch.equal(model.weight, start)


def test_frozen_parameters_stay() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    model(torch.ones(2, 3)).sum().backward()
    with sam_perturbation(model, 1.0):
        assert model[0].weight.grad is None
        model(torch.ones(2, 3)).sum().backward()
    assert model[0].weight.grad is None


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, BatchNormAct2d])
def test_running_statistics_are_those_of_the_first_pass(norm: type[nn.Module]) -> None:
    model, images = (
        nn.Sequential(nn.Conv2d(3, 4, 3), norm(4), nn.Conv2d(4, 1, 3)),
        torch.randn(8, 3, 8, 8),
    )
    model(images).square().mean().backward()
    after_first = {name: value.clone() for name, value in model.named_buffers()}
    with sam_perturbation(model, 0.5):
        above = model(images)
        assert torch.equal(above, model.train()(images)), "still normalised by the batch"
        above.square().mean().backward()
    assert len(after_first) == 3
    assert all(torch.equal(value, after_first[name]) for name, value in model.named_buffers())
    model(images)
    assert int(model.get_buffer("1.num_batches_tracked")) == 2, "and tracked again afterwards"


def test_mixed_precision_sees_the_climbed_weights() -> None:
    """Inside one autocast region too, whose cache would otherwise give the old weights to the
    second pass."""
    torch.manual_seed(1)
    model, x = nn.Linear(16, 4), torch.randn(8, 16)
    with torch.autocast("cpu", torch.bfloat16):
        first = model(x)
        first.float().square().sum().backward()
        with sam_perturbation(model, 2.0):
            assert model.weight.dtype == torch.float32
            second = model(x)
            moved = (x.bfloat16() @ model.weight.T.bfloat16() + model.bias.bfloat16()).detach()
        third = model(x)
    assert not torch.allclose(first, second, atol=0.1)
    torch.testing.assert_close(second, moved, atol=0.05, rtol=0.05)
    assert torch.equal(first, third)


def test_compiled_models_notice() -> None:
    """Neither the sam_perturbation weights nor the sleeping statistics are missed by a compiled
    model."""
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 1, 3))
        run = torch.compile(model, backend="eager") if compiled else model
        images = torch.randn(4, 3, 8, 8)
        for _ in range(2):
            model.zero_grad()
            run(images).square().mean().backward()
            with sam_perturbation(model, 0.5):
                run(images).square().mean().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        results.append([*gradients, *(b.double() for b in model.buffers())])
    torch.testing.assert_close(results[0], results[1])
