"""Attacks on linear models, whose worst case is known, and what no attack may do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from measure.analyses.shifted import Linear, answered, chosen, noise
from vitreous.data.random_streams import RandomStreams
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analyses.adversarial import Adversarial, fgsm, pgd
from vitreous.measure.subject import USUAL, subjects

QUICK: dict[str, Any] = {"epsilons": (1, 8), "steps": 2}

TWO = Linear(2)
MEAN, STD = (torch.tensor(given, dtype=torch.float64).view(3, 1, 1) for given in USUAL)


@torch.no_grad()
def worst(pixels: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """Margin of the right over the wrong class of a linear model of two classes, after the worst
    change there is."""
    towards = (
        (TWO.head.weight[1] - TWO.head.weight[0]).view(3, 8, 8)
        / STD
        * (1 - 2 * labels).view(-1, 1, 1, 1)
    )
    moved = torch.where(
        towards > 0, (pixels + epsilon).clamp(max=1), (pixels - epsilon).clamp(min=0)
    )
    scores = TWO((moved - MEAN) / STD)
    return (scores[:, 1] - scores[:, 0]) * (2 * labels - 1)


@pytest.mark.parametrize("attack", ["fgsm", "pgd"])
def test_attacks_find_the_worst_case_of_a_linear_model(attack: str) -> None:
    data = answered(TWO, 50, 8, 2)
    found = Adversarial((1, 4, 16), (attack,), steps=10)(TWO, data).table
    data = chosen(data)
    for epsilon in (1, 4, 16):
        margin = worst(data.images.double() / 255, data.labels, epsilon / 255)
        row = found[found["epsilon"] == epsilon].iloc[0]
        assert row["value"] == pytest.approx(float((margin > 0).double().mean()))
        assert row["nll"] == pytest.approx(float(nn.functional.softplus(-margin).mean()), rel=1e-5)
    values = found[found["attacked"]]["value"].tolist()
    assert values[0] > values[-1]


class Bent(nn.Module):
    """Something that is not linear, with a first layer that could be given gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.image_size = 8
        self.first, self.last = nn.Linear(192, 32), nn.Linear(32, 4)
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.last(nn.functional.gelu(self.first(3 * images.flatten(1))))
        return scores


@torch.no_grad()
def test_no_attack_leaves_the_ball_or_the_range_and_pgd_finds_more_than_fgsm() -> None:
    (subject,) = subjects(Bent())
    data = noise(30)
    pixels = data.images.double() / 255
    pixels[:4], pixels[4:8] = 0, 1
    losses = {}
    start = RandomStreams("attack 0", 0, 30, torch.device("cpu"))
    attacked = {
        "fgsm": fgsm(subject, pixels, data.labels, 0.03),
        "pgd": pgd(subject, pixels, data.labels, 0.03, 20, start),
    }
    for attack, found in attacked.items():
        assert float((found - pixels).abs().max()) <= 0.03 + 1e-12
        assert float((found - pixels).abs().max()) > 0.029
        assert float(found.min()) >= 0
        assert float(found.max()) <= 1
        scores = subject.specimen((found - MEAN) / STD)
        losses[attack] = nn.functional.cross_entropy(scores, data.labels, reduction="none")
    clean = nn.functional.cross_entropy(
        subject.specimen((pixels - MEAN) / STD), data.labels, reduction="none"
    )
    assert bool((losses["pgd"] > clean).all())
    assert float(losses["pgd"].mean()) > float(losses["fgsm"].mean())


def test_parameters_get_no_gradients() -> None:
    model = Bent()
    model.first.weight.grad = torch.ones_like(model.first.weight)
    Adversarial((1,), steps=2)(model, noise(6))
    assert torch.equal(model.first.weight.grad, torch.ones_like(model.first.weight))
    assert model.first.bias.grad is None
    assert model.last.weight.grad is None


def test_a_model_that_is_very_sure_can_be_attacked_too() -> None:
    """In floating point its cross-entropy is flat, and an attack that climbs that stands still."""
    sure = Linear(2)
    data = answered(sure, 40, 8, 2)
    plain = Adversarial((4, 16), steps=3)(sure, data).table["value"].tolist()
    sure.head.weight.data.mul_(1000)
    sure.head.bias.data.mul_(1000)
    images = ((chosen(data).images.double() / 255 - MEAN) / STD).requires_grad_()
    nn.functional.cross_entropy(sure(images), chosen(data).labels, reduction="sum").backward()
    assert images.grad is not None
    assert bool((images.grad == 0).flatten(1).all(1).any())
    sure.zero_grad()
    assert Adversarial((4, 16), steps=3)(sure, data).table["value"].tolist() == plain


def test_bad_options() -> None:
    with pytest.raises(UnknownName, match="pdg"):
        Adversarial(attacks=("pdg",))
    with pytest.raises(VitreousError, match="0 is not"):
        Adversarial((0, 1))
    with pytest.raises(VitreousError, match="at least one"):
        Adversarial(steps=0)
    with pytest.raises(VitreousError, match="none twice"):
        Adversarial(attacks=("pgd", "pgd"))
