"""Evidence for and against what Park and Kim say of learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claims.synthetic import Case, accuracy, item, result, training
from vitreous.claims.evidence import EvidenceItem

ERRORS = {"resnet": 17.3, "swin": 23.3, "pit": 24.0, "vit": 33.5, "mixer": 35.4}
LOSSES = {"resnet": 2.09, "swin": 2.23, "pit": 2.30, "vit": 2.52, "mixer": 2.57}


def trained(model: str, error: float, loss: float = 2.0, **facts: Any) -> EvidenceItem:
    """A test error in percent, and a training loss that began higher."""
    epochs = [
        {"measure": "train_nll", "epoch": epoch, "value": value}
        for epoch, value in ((1, 9.0), (100, loss))
    ]
    return item(model, accuracy(100 - error), training(epochs), **facts)


def zoo(
    errors: Mapping[str, float] = ERRORS, losses: Mapping[str, float] = LOSSES
) -> list[EvidenceItem]:
    return [trained(model, errors[model], losses[model]) for model in errors]


def amounts(
    vit: tuple[float, float], resnet: tuple[float, float] = (10.0, 10.0)
) -> list[EvidenceItem]:
    """Errors with few images of SYN-E and with many."""
    models = (("vit", vit), ("resnet", resnet))
    return [
        trained(model, error, data="SYN-E", fraction=share)
        for model, errors in models
        for error, share in zip(errors, (0.1, None), strict=True)
    ]


def shares(
    errors: tuple[float, ...], losses: tuple[float, ...], same_samples: float
) -> list[EvidenceItem]:
    found = [
        trained("vit", error, loss, fraction=share)
        for error, loss, share in zip(errors, losses, (None, 0.3, 0.1, 0.02), strict=True)
    ]
    return [*found, trained("vit", 60.0, same_samples, fraction=0.02, schedule="samples")]


def longer(error: float) -> list[EvidenceItem]:
    vit = [trained("vit", error, fraction=0.2, epochs=4), trained("vit", 40.0, fraction=0.2)]
    return [*vit, trained("resnet", 20.0, fraction=0.2)]


def confidence(vit: float, resnet: float = -0.1) -> list[EvidenceItem]:
    """Minus accuracy, with augmentation; without, both models are over-confident."""

    def calibrated(model: str, value: float, **facts: Any) -> EvidenceItem:
        rows = [
            {"measure": measure, "overall": True, "value": value}
            for measure in ("ECE", "signed ECE")
        ]
        return item(model, result("calibration", rows), **facts)

    without = [calibrated(model, 0.08, augment="none") for model in ("vit", "resnet")]
    return [*without, calibrated("vit", vit), calibrated("resnet", resnet)]


def mixing(mixer: float, agnostic: float, near: float) -> list[EvidenceItem]:
    """Test errors of Mixer, of attention that knows no image, and of attention within 5 × 5; ViT
    has 33.5 %."""
    return [
        trained("mixer", mixer, 2.57),
        trained("vit", 33.5, 2.52),
        trained("vit", 33.0, pool="gap"),
        trained("vit", agnostic, pool="gap", mixer="mean"),
        trained("vit", near, kernel=5),
    ]


CASES: dict[str, Case] = {
    "HDV-01": Case(zoo(), zoo({**ERRORS, "vit": 18.0, "mixer": 17.0})),
    # memorised: the training loss of what errs most is the lowest
    # weaker: the order is kept, but one model alone has the error and another the low loss
    "HDV-02": Case(
        zoo(),
        zoo(losses={**LOSSES, "vit": 0.3, "mixer": 0.2}),
        zoo(
            dict(zip(ERRORS, (20.0, 20.1, 20.2, 20.3, 60.0), strict=True)),
            dict(zip(LOSSES, (1.0, 2.50, 2.51, 2.52, 2.53), strict=True)),
        ),
    ),
    "HDV-03": Case(
        [*amounts((30.0, 14.0)), *zoo()],
        [
            *amounts((30.0, 30.0)),
            *zoo(losses=dict(zip(LOSSES, [2.5, 2.4, 2.3, 2.2, 2.1], strict=True))),
        ],
    ),
    # overfitted: with fewer images the error rises and the training loss falls
    "HDV-04": Case(
        shares((30.0, 45.0, 60.0, 80.0), (2.5, 2.7, 2.9, 3.2), 2.8),
        shares((30.0, 45.0, 60.0, 80.0), (2.5, 2.0, 1.0, 0.2), 1.0),
    ),
    "HDV-05": Case(longer(30.0), longer(18.0)),
    "HDV-18": Case(mixing(35.4, 38.0, 32.0), mixing(35.4, 33.0, 40.0)),
    "HDV-49": Case(confidence(-0.1), confidence(+0.02)),
}
