"""Evidence for and against what Park and Kim say of curvature."""

from __future__ import annotations

from typing import Any

import numpy as np

from claims.synthetic import Case, hessian, item, result
from vitreous.claims.evidence import EvidenceItem
from vitreous.results import Result

Curved = tuple[float, float]
"""Share of negative eigenvalues, and mean of the positive ones."""


def warm(model: str, nep: float, ape: float = 50.0, **facts: Any) -> EvidenceItem:
    return item(model, hessian(nep, ape), checkpoint="warmup", **facts)


def checkpoints(model: str, *found: Curved, **facts: Any) -> list[EvidenceItem]:
    """After warm-up, a third, two thirds, and in the end."""
    return [
        item(model, hessian(*each), checkpoint=at, **facts)
        for each, at in zip(found, ("warmup", "33", "66", None), strict=True)
    ]


def landscape(near: float, far: float, worse: float = 0.0, norms: float = 100.0) -> Result:
    """Rises at radius 0.1 and 0.8; far out NaN is a loss that is not finite."""
    blank = {
        "measure": "NLL",
        "radius": np.nan,
        "value": 0.0,
        "low": np.nan,
        "high": np.nan,
        "l2": 0.0,
        "norms": 0.0,
    }
    rows: list[dict[str, Any]] = []
    for radius, value in ((0.1, near), (0.8, far)):
        ends = {"radius": radius, "value": value, "low": 0.95 * value, "high": 1.05 * value}
        rows.append(
            {**blank, **ends, "part": "ring", "l2": norms / 10, "norms": norms, "rise": value}
        )
        rows.append({**blank, **ends, "part": "point", "rise": value, "value": 2.0 + value})
    rows.append(
        {**blank, "part": "whole", "measure": "share of points worse than guessing", "value": worse}
    )
    table = [{"rise": np.nan, **row} for row in rows]
    return result(
        "landscape", [{**row, "rise_low": row["rise"], "rise_high": row["rise"]} for row in table]
    )


def ground(vit: Result, resnet: Result) -> list[EvidenceItem]:
    return [item("vit", vit), item("resnet", resnet)]


def trajectory(distances: tuple[float, ...], angles: tuple[float, ...]) -> Result:
    """Of checkpoints before the last, at which the distance is zero and there is no angle."""
    places = [*zip(distances, angles, strict=True), (0.0, np.nan)]
    rows = [
        {
            "part": "checkpoint",
            "drawn": True,
            "distance": distance,
            "angle": angle,
            "value": distance,
        }
        for distance, angle in places
    ]
    return result(
        "trajectory",
        [*rows, {"part": "component", "distance": np.nan, "angle": np.nan, "value": 0.9}],
    )


def ways(vit: Result, resnet: Result) -> list[EvidenceItem]:
    return [*ground(vit, resnet), item("resnet", resnet, optimiser="sgd")]


def stages(pit: float, near: float) -> list[EvidenceItem]:
    return [
        warm("pit", pit),
        warm("vit", 0.1),
        item("pit", landscape(near, 1)),
        item("vit", landscape(0.3, 1)),
    ]


def augmented(with_it: Curved, without: Curved) -> list[EvidenceItem]:
    settings = ((None, with_it), ("none", without))
    return [
        warm(model, *found, augment=kind) for model in ("vit", "resnet") for kind, found in settings
    ]


def clean(vit: float) -> list[EvidenceItem]:
    """Mean positive eigenvalue of ViT on clean images; that of ResNet is 100, and augmented they
    have 90 and 100."""
    augmented = [item("vit", hessian(ape=90.0)), item("resnet", hessian(ape=100.0))]
    cleaned = (("vit", vit), ("resnet", 100.0))
    return [
        *augmented,
        *(item(model, hessian(ape=ape), measured="clean") for model, ape in cleaned),
    ]


def little(resnet: float, vit: float) -> list[EvidenceItem]:
    """Negative eigenvalues with 6 % of the images."""
    return [
        warm("resnet", resnet, fraction=0.06),
        warm("resnet", 0.0),
        warm("vit", vit, fraction=0.06),
        warm("vit", 0.07),
        warm("vit", 0.1, fraction=0.06, schedule="samples"),
    ]


RESNET = checkpoints("resnet", (0.0, 290.0), (0.0, 330.0), (0.0, 670.0), (0.0, 850.0))
VIT = checkpoints("vit", (0.07, 36.0), (0.05, 100.0), (0.02, 310.0), (0.0, 430.0))
SWIN = checkpoints("swin", (0.2, 10.0), (0.2, 12.0), (0.1, 14.0), (0.1, 15.0))
SMOOTH = trajectory((1.0, 0.99, 0.42), (0.0, 7.0, 62.0))
ERRATIC = trajectory((1.0, 1.4, 1.5, 0.77), (0.0, 67.0, 80.0, 92.0))
CASES: dict[str, Case] = {
    "HDV-06": Case(
        [warm("vit", 0.07), warm("resnet", 0.0)], [warm("vit", 0.0), warm("resnet", 0.01)]
    ),
    "HDV-07": Case(little(0.0, 0.26)[2:], little(0.0, 0.08)[2:]),
    # convex enough, but more data helps it more than ViT
    "HDV-08": Case(little(0.005, 0.26), little(0.2, 0.075)),
    # sharper than ResNet in the end, though not at first
    "HDV-09": Case([*VIT, *RESNET], [*VIT[:3], item("vit", hessian(ape=900.0)), *RESNET]),
    # neither sharpens
    "HDV-10": Case([*VIT, *RESNET], [*VIT[:3], item("vit", hessian(0.0, 30.0)), *RESNET]),
    "HDV-11": Case(
        ground(landscape(0.30, 2.56), landscape(0.21, np.nan, worse=0.4)),
        ground(landscape(0.30, 5.0, worse=0.5), landscape(0.21, 5.5, worse=0.4)),
    ),
    "HDV-12": Case(ways(SMOOTH, ERRATIC), ways(ERRATIC, SMOOTH)),
    "HDV-21": Case(stages(0.02, 0.1), stages(0.2, 0.5)),
    # grows late as much as ViT
    "HDV-22": Case([*SWIN, *VIT], [*SWIN[:3], item("swin", hessian(0.1, 40.0)), *VIT]),
    "HDV-50": Case(augmented((0.1, 40.0), (0.02, 100.0)), augmented((0.0, 140.0), (0.02, 100.0))),
    "HDV-51": Case(clean(220.0), clean(60.0)),
}
