"""How little has to be changed in an image to mislead a model: FGSM and PGD within an L∞ ball.

    FGSM    x + ε · sign ∇ₓ loss(x)
    PGD     x₀ uniform in the ball;  xₖ₊₁ = clip(xₖ + α · sign ∇ₓ loss(xₖ)),      α = 2.5 ε / steps
    ball    |x' − x| ≤ ε and 0 ≤ x' ≤ 1 for every pixel and channel

ε is in levels, 1/255 of the range of pixels, whatever the model's normalisation. PGD returns, for
each image, the visited point with the largest loss. Only the input gets a gradient. (Goodfellow et
al., ICLR 2015; Madry et al., ICLR 2018. The code of Park & Kim 2022 uses ε = 0.007 and 0.3 on
normalised inputs.)

The loss is cross-entropy, log(1 + exp m) with m = log Σ_{others} exp score − score of the label. It
increases with m, and both gradients have the same direction. The attacks maximise m, because the
cross-entropy of a very confident model is constant in floating point and has no gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.data.random_streams import RandomStreams
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Bench, PieceNumbers
from vitreous.measure.probe import Batch
from vitreous.measure.report_section import Section
from vitreous.measure.robustness.shifts import (
    CLEAN,
    MEASURES,
    ShiftAnalysis,
    ShiftScores,
    chance_level,
    channel_statistics,
    check_options,
    rank_by_mean_accuracy,
)
from vitreous.measure.subject import Subject, logits
from vitreous.results import Column, Result, View, tabulate

__all__ = ["Adversarial"]

ATTACKS = ("fgsm", "pgd")


@dataclass
class Adversarial(ShiftAnalysis):
    """Accuracy under attacks that may change every pixel by at most ε."""

    epsilons: Sequence[float] = (0.5, 1, 2, 4, 8)
    """Radii ε of the attack, in levels of 255."""
    attacks: Sequence[str] = ATTACKS
    """`fgsm` (one step), `pgd` (many steps), or both."""
    steps: int = 10
    """Steps of PGD."""

    name = "adversarial"
    ids = ("A4.17",)
    section = Section(
        "robustness",
        "How small a change fools them?",
        "Every pixel may change by a few levels of 255, in the direction in which the loss grows: "
        "in one step (FGSM) or in several (PGD).",
        order=3,
    )
    limit = 128

    def __post_init__(self) -> None:
        check_options("The radii of attacks, in levels,", self.epsilons, 0, 255)
        for attack in self.attacks:
            if attack not in ATTACKS:
                raise UnknownName("attack", attack, ATTACKS, f"There are {', '.join(ATTACKS)}.")
        if not self.attacks or len(set(self.attacks)) < len(self.attacks):
            raise VitreousError(
                f"The attacks are {list(self.attacks)}; name at least one, none twice."
            )
        if self.steps < 1:
            raise VitreousError(f"PGD has {self.steps} steps; it needs at least one.")

    def shifts(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [f"{attack} {epsilon:g}" for attack in self.attacks for epsilon in self.epsilons]

    def shift_images(self, subject: Subject, batch: Batch, shift: str) -> Tensor:
        attack, epsilon = shift.split()
        images = subject.prepare(batch.images)
        mean, std = channel_statistics(subject, images)
        pixels = (images * std + mean).clamp(0, 1)
        labels = batch.labels.to(images.device)
        radius = float(epsilon) / 255
        if attack == "fgsm":
            attacked = fgsm(subject, pixels, labels, radius)
        else:
            start = RandomStreams(
                f"attack {batch.seed}", int(batch.rows[0]), len(batch), images.device
            )
            attacked = pgd(subject, pixels, labels, radius, self.steps, start)
        return (attacked - mean) / std

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        rows: list[dict[str, Any]] = []
        for subject in subjects:
            scores, model = ShiftScores(computed[subject.name], bench), {"model": subject.name}
            overall = {"attack": "all", "epsilon": float("nan"), "attacked": False, "overall": True}
            rows.append({**model, **overall, **scores.mean_row(self.shifts(subject, bench))})
            for attack in self.attacks:
                which = {**model, "attack": attack, "attacked": True, "overall": False}
                rows.append({**which, "epsilon": 0.0, **scores.row(CLEAN)})
                for epsilon in self.epsilons:
                    values = scores.row(f"{attack} {epsilon:g}")
                    rows.append({**which, "epsilon": float(epsilon), **values})
        table, replicates = tabulate(rows, COLUMNS)
        return Result(self.name, table, COLUMNS, _views(bench), replicates=replicates)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        yield rank_by_mean_accuracy(result, "attacks")


def fgsm(subject: Subject, pixels: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """Move each of the pixels (b, c, h, w) in [0, 1] by epsilon so that the loss grows."""
    _, slope = _loss_and_gradient(subject, pixels, labels)
    low, high = _ball(pixels, epsilon)
    return torch.clamp(pixels + epsilon * slope.sign(), low, high)


def pgd(
    subject: Subject,
    pixels: Tensor,
    labels: Tensor,
    epsilon: float,
    steps: int,
    start: RandomStreams,
) -> Tensor:
    """Climb the loss within the ball; return the visited point with the largest loss, per image."""
    low, high = _ball(pixels, epsilon)
    noise = start.uniform(*pixels.shape[1:], low=-epsilon, high=epsilon).to(pixels.dtype)
    at = torch.clamp(pixels + noise, low, high)
    worst, largest = at, at.new_full((len(at),), -torch.inf)
    for _ in range(steps):
        loss, slope = _loss_and_gradient(subject, at, labels)
        worst, largest = _larger(worst, largest, at, loss)
        at = torch.clamp(at + (2.5 * epsilon / steps) * slope.sign(), low, high)
    return _larger(worst, largest, at, _loss(subject, at, labels))[0]


def _ball(pixels: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return the lowest and highest value that each pixel may take."""
    return (pixels - epsilon).clamp(min=0), (pixels + epsilon).clamp(max=1)


def _loss(subject: Subject, pixels: Tensor, labels: Tensor) -> Tensor:
    """Return the margin m (b,) of the other classes over the label."""
    mean, std = channel_statistics(subject, pixels)
    scores = logits(subject.specimen((pixels - mean) / std))
    assert scores is not None
    others = scores.scatter(1, labels[:, None], -torch.inf).logsumexp(1)
    return others - scores.gather(1, labels[:, None])[:, 0]


def _loss_and_gradient(subject: Subject, pixels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the losses (b,) and their gradients; parameters get none."""
    with torch.enable_grad():
        at = pixels.detach().requires_grad_()
        loss = _loss(subject, at, labels)
        (slope,) = torch.autograd.grad(loss.sum(), at)
    return loss.detach(), slope


def _larger(worst: Tensor, largest: Tensor, at: Tensor, loss: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for every image, the point with the larger loss, and that loss."""
    more = loss > largest
    return torch.where(more[:, None, None, None], at, worst), torch.where(more, loss, largest)


COLUMNS = (
    Column("model", "category", "The model."),
    Column("attack", "order", "`fgsm`, `pgd`, or `all` for the mean."),
    Column(
        "epsilon",
        "quantity",
        "Radius ε; 0 for clean images.",
        "levels of 255",
    ),
    Column("attacked", "category", "Whether the row is about one attack and radius."),
    Column("overall", "category", "Whether the row is the mean over attacks and radii."),
    *MEASURES,
)


def _views(bench: Bench) -> tuple[View, ...]:
    lines: dict[str, Any] = {
        "x": "epsilon", "colour": "model", "facet": "attack", "where": "attacked",
    }  # fmt: skip
    return (
        View(
            "line", y="value", low="low", high="high", limits=(0, 1),
            references=chance_level(bench),
            title="Accuracy under attack",
            how_to_read="Pixels may change more from left to right; 0 is the clean image, and 8 "
            "levels are hardly visible. If a line drops at once, tiny changes mislead the model.",
            **lines,
        ),
        View(
            "line", y="nll", low="nll_low", high="nll_high",
            title="Loss under attack",
            how_to_read="Mean negative log-likelihood of the true class. Where it keeps growing "
            "after accuracy has reached zero, the model becomes more confident in wrong answers.",
            **lines,
        ),
    )  # fmt: skip
