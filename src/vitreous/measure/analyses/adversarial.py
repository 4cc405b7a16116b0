"""How little has to be changed in an image to mislead a model: FGSM and PGD within an L∞ ball (A4.17).

    FGSM    x + ε · sign ∇ₓ loss(x)
    PGD     x₀ uniform in the ball;  xₖ₊₁ = clip(xₖ + α · sign ∇ₓ loss(xₖ)),      α = 2.5 ε / steps
    ball    |x' − x| ≤ ε and 0 ≤ x' ≤ 1 for every pixel and channel

ε is in levels, 1/255 of the range of pixels, whatever the model's normalisation. Of the points that PGD visits the one
with the largest loss is kept for each image. Gradients are taken of the input alone. (Goodfellow et al., ICLR 2015;
Madry et al., ICLR 2018. The code of Park and Kim has ε = 0.007 and 0.3 of normalised inputs.)

The loss is cross-entropy, log(1 + exp m) with m = log Σ_{others} exp score − score of the label. It grows with m and
its gradient points where that of m does, so attacks climb m itself: cross-entropy of a very sure model is flat in
floating point, and an attack on it would stand still.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.data.draws import Draws
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Bench, Found
from vitreous.measure.probe import Batch
from vitreous.measure.robustness.shifts import (
    CLEAN,
    MEASURES,
    Shifted,
    check_shares,
    guessing,
    levels,
    marks,
    table,
)
from vitreous.measure.subject import Subject, logits
from vitreous.results import Column, Result, View

__all__ = ["Adversarial"]

ATTACKS = ("fgsm", "pgd")


@dataclass
class Adversarial(Shifted):
    """How little has to be changed in an image to mislead a model."""

    epsilons: Sequence[float] = (0.5, 1, 2, 4, 8)
    """Radii of the ball, in levels of 255."""
    attacks: Sequence[str] = ATTACKS
    """One step (`fgsm`), many (`pgd`), or both."""
    steps: int = 10
    """Of PGD."""

    name = "adversarial"
    ids = ("A4.17",)
    limit = 128

    def __post_init__(self) -> None:
        check_shares("The radii of attacks, in levels,", self.epsilons, 0, 255)
        for attack in self.attacks:
            if attack not in ATTACKS:
                raise UnknownName("attack", attack, ATTACKS, f"There are {', '.join(ATTACKS)}.")
        if not self.attacks or len(set(self.attacks)) < len(self.attacks):
            raise VitreousError(
                f"The attacks are {list(self.attacks)}; name at least one, none twice."
            )
        if self.steps < 1:
            raise VitreousError(f"PGD was asked to take {self.steps} steps; it takes at least one.")

    def shifts(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [f"{attack} {epsilon:g}" for attack in self.attacks for epsilon in self.epsilons]

    def shifted(self, subject: Subject, batch: Batch, shift: str) -> Tensor:
        attack, epsilon = shift.split()
        images = subject.prepare(batch.images)
        mean, std = levels(subject, images)
        labels = batch.labels.to(images.device)
        start = Draws(f"attack {batch.seed}", int(batch.rows[0]), len(batch), images.device)
        found = self.attacked(
            subject, images * std + mean, labels, attack, float(epsilon) / 255, start
        )
        return (found - mean) / std

    def attacked(
        self,
        subject: Subject,
        pixels: Tensor,
        labels: Tensor,
        attack: str,
        epsilon: float,
        start: Draws,
    ) -> Tensor:
        """Pixels in [0, 1], changed by at most epsilon each so that the loss grows."""
        pixels = pixels.clamp(0, 1)
        low, high = (pixels - epsilon).clamp(min=0), (pixels + epsilon).clamp(max=1)
        if attack == "fgsm":
            _, slope = _climb(subject, pixels, labels)
            return torch.clamp(pixels + epsilon * slope.sign(), low, high)
        moved = pixels + start.uniform(*pixels.shape[1:], low=-epsilon, high=epsilon).to(
            pixels.dtype
        )
        at = torch.clamp(moved, low, high)
        worst, most = at, at.new_full((len(at),), -torch.inf)
        for _ in range(self.steps):
            loss, slope = _climb(subject, at, labels)
            worst, most = _worse(worst, most, at, loss)
            at = torch.clamp(at + (2.5 * epsilon / self.steps) * slope.sign(), low, high)
        return _worse(worst, most, at, _loss(subject, at, labels))[0]

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        rows: list[dict[str, Any]] = []
        for subject in asked:
            of, where = marks(found, subject, bench), {"model": subject.name}
            every = self.shifts(subject, bench)
            overall = {"attack": "all", "epsilon": float("nan"), "attacked": False, "overall": True}
            rows.append({**where, **overall, **of.mean_row(every)})
            for attack in self.attacks:
                which = {"attack": attack, "attacked": True, "overall": False}
                rows.append({**where, **which, "epsilon": 0.0, **of.row(CLEAN)})
                rows += [
                    {**where, **which, "epsilon": float(epsilon), **of.row(f"{attack} {epsilon:g}")}
                    for epsilon in self.epsilons
                ]
        return Result(self.name, table(rows, COLUMNS), COLUMNS, _views(bench))


def _loss(subject: Subject, pixels: Tensor, labels: Tensor) -> Tensor:
    """(b,) how far the other classes are ahead of the label: m, of which cross-entropy is log(1 + exp m)."""
    mean, std = levels(subject, pixels)
    scores = logits(subject.specimen((pixels - mean) / std))
    assert scores is not None
    others = scores.scatter(1, labels[:, None], -torch.inf).logsumexp(1)
    return others - scores.gather(1, labels[:, None])[:, 0]


def _climb(subject: Subject, pixels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(b,) losses, and where each grows fastest; nothing but the pixels gets a gradient."""
    with torch.enable_grad():
        at = pixels.detach().requires_grad_()
        loss = _loss(subject, at, labels)
        (slope,) = torch.autograd.grad(loss.sum(), at)
    return loss.detach(), slope


def _worse(worst: Tensor, most: Tensor, at: Tensor, loss: Tensor) -> tuple[Tensor, Tensor]:
    """For every image the point with the larger loss, and that loss."""
    more = loss > most
    return torch.where(more[:, None, None, None], at, worst), torch.where(more, loss, most)


COLUMNS = (
    Column("model", "category", "The model."),
    Column("attack", "order", "fgsm takes one step, pgd several."),
    Column(
        "epsilon",
        "quantity",
        "How far each pixel and channel may move; 0 for clean images.",
        "levels of 255",
    ),
    Column("attacked", "category", "Whether the row is about one attack and radius."),
    Column("overall", "category", "Whether the row is the mean over attacks and radii."),
    *MEASURES,
)


def _views(bench: Bench) -> tuple[View, ...]:
    return (
        View(
            "line",
            x="epsilon",
            y="value",
            colour="model",
            facet="attack",
            low="low",
            high="high",
            limits=(0, 1),
            references=guessing(bench),
            where="attacked",
            title="Accuracy under attack",
            how_to_read="From left to right pixels may be changed more; 0 is the clean image, and 8 levels are hardly "
            "seen by the eye. A model whose line falls at once can be misled by next to nothing.",
        ),
        View(
            "line",
            x="epsilon",
            y="nll",
            colour="model",
            facet="attack",
            low="nll_low",
            high="nll_high",
            where="attacked",
            title="Loss under attack",
            how_to_read="The mean negative logarithm of the probability of the right class. Where it goes on growing "
            "after accuracy is gone, the model gets ever surer of what is wrong.",
        ),
    )
