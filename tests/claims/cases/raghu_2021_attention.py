"""Evidence for and against what Raghu et al. say of attention and receptive fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claims.synthetic import Case, item, result
from vitreous.claims.evidence import EvidenceItem
from vitreous.results import Result

UNIFORM = 16.0


def distances(*blocks: Sequence[float]) -> Result:
    """Relative distances of the heads of each block."""
    rows: list[dict[str, Any]] = []
    for number, heads in enumerate(blocks):
        mean = UNIFORM * sum(heads) / len(heads)
        unit = {
            "unit": f"blocks.{number}.attn",
            "kind": "attention",
            "depth": (2 * number + 1) / (2 * len(blocks) + 1),
        }
        ends = {"uniform": UNIFORM, "mean": mean, "mean_low": mean - 0.01, "mean_high": mean + 0.01}
        rows += [
            {**unit, **ends, "head": head, "value": UNIFORM * value}
            for head, value in enumerate(heads)
        ]
    return result("attention_distance", rows)


def heads(distance: Sequence[float], alike: Sequence[float]) -> EvidenceItem:
    """Windows of heads beside two stages of a ResNet, of which the second one is not asked
    about."""
    model, rows = {"model": "vit size=s"}, []
    for window, (far, value) in enumerate(zip(distance, alike, strict=True)):
        for unit, stage in enumerate((1, 1, 2)):
            shown = value if stage == 1 else 1 - value
            rows.append(
                {
                    **model,
                    "window": window,
                    "distance": far,
                    "other_model": "resnet",
                    "other_unit": f"{unit}",
                    "other_stage": stage,
                    "value": shown,
                }
            )
    return item("vit", result("local_heads", rows), size="s", other="resnet", beside="resnet")


def named(found: EvidenceItem, name: str) -> EvidenceItem:
    return EvidenceItem(found.facts, found.results, name, found.other)


def fields(*radii: float) -> Result:
    """From the first unit to the last."""
    rows = [
        {
            "depth": number / (len(radii) - 1),
            "position": position,
            "relative": value / 10,
            "area": 0.2,
            "value": value,
        }
        for number, radius in enumerate(radii)
        for position, value in (("centre", radius), ("upper left", 99.0))
    ]
    return result("erf", rows)


def trained(small: Sequence[float], large: Sequence[float], **facts: Any) -> list[EvidenceItem]:
    """Heads of the two lowest blocks after training on few images and on all; a third block looks
    at one place."""
    few: dict[str, Any] = {"fraction": 0.05, "schedule": "samples"}
    return [
        item("vit", distances(small[:2], small[2:], [0.01, 0.01]), **facts, **few),
        item("vit", distances(large[:2], large[2:], [0.01, 0.01]), **facts),
    ]


LOCAL, LOST = [0.8, 0.9, 0.2, 0.9], [0.8, 0.9, 0.7, 0.9]

CASES: dict[str, Case] = {
    "SLC-09": Case(
        [item("vit", distances([0.3, 0.9], [0.9, 0.9]), size="s")],
        [item("vit", distances([0.9, 0.95], [0.3, 0.9]), size="s")],
    ),
    "SLC-10": Case(
        [item("vit", distances([0.3, 0.5], [0.5, 0.7], [0.9, 0.9], [0.95, 0.95]), size="s")],
        [item("vit", distances([0.9, 0.9], [0.8, 0.8], [0.5, 0.5], [0.3, 0.3]), size="s")],
    ),
    "SLC-11": Case(trained(LOST, LOCAL, size="s"), trained(LOCAL, LOCAL, size="s")),
    "SLC-12": Case(
        [*trained(LOCAL, LOCAL), *trained(LOST, LOCAL, size="s")],
        [*trained(LOST, LOCAL), *trained(LOCAL, LOCAL, size="s")],
    ),
    "SLC-13": Case(
        [named(heads([8, 10, 12, 15], [0.6, 0.5, 0.4, 0.25]), "vit size=s")],
        [named(heads([8, 10, 12, 15], [0.3, 0.4, 0.5, 0.6]), "vit size=s")],
    ),
    "SLC-31": Case(
        [item("vit", fields(2, 7, 8, 8, 8)), item("resnet", fields(1, 3, 5, 7, 9))],
        [item("vit", fields(1, 2, 8, 9, 9)), item("resnet", fields(2, 3, 5, 7, 8))],
    ),
}
