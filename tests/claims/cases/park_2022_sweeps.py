"""Evidence for and against what Park and Kim say of settings that they vary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claims.cases.park_2022_curvature import landscape, warm
from claims.cases.park_2022_learning import trained
from claims.synthetic import Case, accuracy, hessian, item, result, training
from vitreous.claims.evidence import EvidenceItem

KERNELS, SIDES, HEADS, WIDTHS = (3, 5, 8), (2, None, 8), (1, 2, 4, 8, 16), (16, 32, 64, 128)


def pooled(nep: float, best: float) -> list[EvidenceItem]:
    """Mean pooling: negative eigenvalues, and error at the lower learning rate; a class token has
    0.2 and 33 %."""
    mean = [
        warm("vit", nep, pool="gap"),
        trained("vit", 40.0, pool="gap"),
        trained("vit", best, pool="gap", rate=0.4),
    ]
    return [*mean, warm("vit", 0.2), trained("vit", 33.0), trained("vit", 34.0, rate=0.4)]


def sharpness_aware(vit: float, resnet: float, ape: float) -> list[EvidenceItem]:
    """Accuracy with SAM, where without it ViT has 70 and ResNet 80 %, and the mean positive
    eigenvalue of ViT."""

    def trainings(model: str, percent: float, curved: float, **facts: Any) -> EvidenceItem:
        return item(model, accuracy(percent), hessian(ape=curved), augment="none", **facts)

    without = [trainings("vit", 70.0, 100.0), trainings("resnet", 80.0, 100.0)]
    return [
        *without,
        *(trainings("vit", vit, ape, sam=radius) for radius in (0.05, 0.2)),
        trainings("resnet", resnet, 90.0, sam=0.05),
    ]


def kernels(
    errors: Sequence[float], losses: Sequence[float] = (2.45, 2.41, 2.47)
) -> list[EvidenceItem]:
    """Three trainings of each, a little apart."""
    return [
        trained("vit", error + 0.02 * seed, loss + 0.001 * seed, kernel=kernel, seed=seed)
        for kernel, error, loss in zip(KERNELS, errors, losses, strict=True)
        for seed in range(3)
    ]


def early(
    name: str, settings: Sequence[Any], neps: Sequence[float], apes: Sequence[float], **facts: Any
) -> list[EvidenceItem]:
    return [
        warm("vit", nep, ape, **{name: value}, **facts)
        for value, nep, ape in zip(settings, neps, apes, strict=True)
    ]


def robust(percent: float) -> list[EvidenceItem]:
    """Of 5 × 5 on corrupted images; 3 × 3 has 50 %."""

    def trainings(kernel: int, share: float) -> EvidenceItem:
        rows = [
            {"kind": "mean", "overall": True, "value": share},
            {"kind": "clean", "overall": False, "value": 0.7},
        ]
        return item("vit", accuracy(70.0), result("corruption", rows), kernel=kernel)

    return [trainings(5, percent / 100), trainings(3, 0.5)]


def patches(errors: Sequence[float]) -> list[EvidenceItem]:
    return [trained("vit", error, patch=side) for side, error in zip(SIDES, errors, strict=True)]


def heads(neps: Sequence[float], apes: Sequence[float]) -> list[EvidenceItem]:
    """Of a fixed width each; in a model of fixed width it is the other way round."""
    fixed = early("heads", HEADS, neps[::-1], apes[::-1], width="fixed")
    return [*early("heads", HEADS, neps, apes, head_dim=64), *fixed]


def sizes(ape: float, far: float, loss: float) -> list[EvidenceItem]:
    """Of the larger ViT; the smaller has 50, 2.0 and 2.5."""

    def trainings(rise: float, norms: float, value: float, **facts: Any) -> EvidenceItem:
        record = training([{"measure": "train_nll", "epoch": 100, "value": value}])
        return item("vit", landscape(0.1, rise, norms=norms), record, **facts)

    ends = [trainings(far, 200.0, loss, size="s"), trainings(2.0, 100.0, 2.5)]
    return [
        *ends,
        warm("vit", 0.1, ape, size="s"),
        warm("vit", 0.1),
        warm("resnet", 0.0, size="s"),
        warm("resnet", 0.0),
    ]


FALLING = (0.5, 0.4, 0.3, 0.2, 0.1)
CASES: dict[str, Case] = {
    # at the recipe's own learning rate mean pooling is worse, at its own it is better
    "HDV-13": Case(pooled(0.1, 30.0), pooled(0.3, 36.0)),
    "HDV-14": Case(sharpness_aware(73.0, 80.5, 60.0), sharpness_aware(70.5, 82.0, 95.0)),
    "HDV-15": Case(kernels((27.89, 28.05, 28.94)), kernels((27.89, 28.94, 28.05))),
    "HDV-16": Case(
        early("kernel", KERNELS, (0.31, 0.185, 0.32), (50, 57, 53)),
        early("kernel", KERNELS, (0.1, 0.185, 0.32), (50, 57, 53)),
    ),
    "HDV-17": Case(robust(53.0), robust(50.1)),
    "HDV-19": Case(patches((33.5, 28.9, 35.0)), patches((25.0, 28.9, 35.0))),
    "HDV-20": Case(
        early("patch", SIDES, (0.3, 0.1, 0.05), (20, 40, 80)),
        early("patch", SIDES, (0.3, 0.1, 0.05), (80, 40, 20)),
    ),
    "HDV-23": Case(
        heads(FALLING, (90, 70, 60, 50, 40)), heads(FALLING[::-1], (90, 70, 60, 50, 40))
    ),
    "HDV-24": Case(
        early("head_dim", WIDTHS, FALLING[:4], (90, 70, 60, 50), heads=3),
        early("head_dim", WIDTHS, FALLING[:4], (50, 60, 70, 90), heads=3),
    ),
    "HDV-25": Case(sizes(40.0, 2.0, 2.3), sizes(60.0, 2.0, 2.3)),
}
