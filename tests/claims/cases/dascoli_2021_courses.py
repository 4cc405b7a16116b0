"""Evidence for and against what d'Ascoli et al. say of nonlocality, gates and heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from claims.synthetic import Case, item, result, training
from vitreous.claims.evidence import EvidenceItem
from vitreous.results import Result

Layers = Sequence[float]
"""One number a layer."""
GATED = 10
UNIFORM, LOCAL = [4.1] * 12, [1.8] * 12
HALF_CLOSED = [0.47, 0.45, 0.42, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01]


def record(nonlocality: Mapping[int, Layers], gates: Mapping[int, Layers] | None = None) -> Result:
    """Both by epoch; two heads that differ by a fifth. The published logger sees something else."""
    courses = (
        ("nonlocality", "true", nonlocality),
        (
            "nonlocality",
            "official",
            {epoch: [3.0] * len(layers) for epoch, layers in nonlocality.items()},
        ),
        ("gate", "", gates or {}),
    )
    rows: list[dict[str, Any]] = [
        {
            "measure": measure,
            "reading": reading,
            "epoch": epoch,
            "layer": layer,
            "head": head,
            "value": value * (0.9 + 0.2 * head),
        }
        for measure, reading, course in courses
        for epoch, layers in course.items()
        for layer, value in enumerate(layers)
        for head in (0, 1)
    ]
    return training(rows)


def deit(*epochs: tuple[int, Layers]) -> list[EvidenceItem]:
    return [item("deit", record(dict([(0, UNIFORM), *epochs])))]


def convit(
    end: Layers, gates: Layers = HALF_CLOSED, early: Layers = LOCAL, **facts: Any
) -> list[EvidenceItem]:
    """At epochs 0, 10 and 100; 10 of 12 layers are gated, the others look everywhere throughout."""
    far = [4.0, 4.0]
    courses = {0: [*LOCAL[:GATED], *far], 10: [*early[:GATED], *far], 100: [*end[:GATED], *far]}
    return [item("convit", record(courses, {0: [0.731] * GATED, 100: gates}), **facts)]


def head_diversity(layers: Layers) -> Result:
    rows = [
        {"unit": f"blocks.{i}.attn", "kind": "attention", "value": value}
        for i, value in enumerate(layers)
    ]
    return result("head_diversity", rows)


def heads(convit: Layers, deit: Layers) -> list[EvidenceItem]:
    return [item("convit", head_diversity(convit)), item("deit", head_diversity(deit))]


def distilled(distilled: float, plain: float) -> list[EvidenceItem]:
    def looking(patches: float) -> Result:
        rows = [
            {"unit": f"blocks.{i}.attn", "head": head, "value": patches}
            for i in range(3)
            for head in (0, 1)
        ]
        return result("nonlocality", rows)

    return [item("deit", looking(distilled), distilled=True), item("deit", looking(plain))]


RISING = [1.0, 1.2, 1.5, 1.8, 2.2, 2.5, 2.8, 3.0, 3.2, 3.3, 3.5, 3.6]
ESCAPED = [2.9, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7, 2.8]
FIRST_AHEAD, FIRST_BEHIND = [2.5, *[1.9] * 9], [1.8, *[2.2] * 9]
DIPPED = [3.0] * 12

CASES: dict[str, Case] = {
    # the refuted DeiT becomes local too, but only long after the fifth epoch
    "CVT-08": Case(deit((4, DIPPED), (100, LOCAL)), deit((4, UNIFORM), (100, DIPPED))),
    # the refuted one has the order, and its upper layers are never more local than at the end
    "CVT-09": Case(deit((4, [1.0] * 12), (100, RISING)), deit((4, UNIFORM), (100, RISING[::-1]))),
    # eight of ten are enough, eight of all twelve would not be
    "CVT-10": Case(convit([1.7, *ESCAPED[1:]]), convit([1.7] * 10)),
    # layers that are not gated look farther in ConViT, and do not count
    "CVT-11": Case(
        [*convit(ESCAPED), *deit((0, [1.0] * 12), (100, [*[3.0] * 10, 1.0, 1.0]))],
        [*convit(ESCAPED), *deit((100, [*[2.0] * 10, 4.1, 4.1]))],
    ),
    "CVT-12": Case(convit(ESCAPED), convit(RISING)),
    "CVT-13": Case(convit(ESCAPED), convit(ESCAPED, gates=[0.6] * 3 + [0.75] * 7)),
    "CVT-14": Case(convit(ESCAPED), convit(ESCAPED, gates=HALF_CLOSED[::-1])),
    "CVT-15": Case(
        [*convit(ESCAPED), *convit(ESCAPED, gates=[0.5] * 8 + [0.0] * 2, size="s")],
        [*convit(ESCAPED), *convit(ESCAPED, gates=[0.5] * 4 + [0.0] * 6, size="s")],
    ),
    "CVT-16": Case(
        heads([2.0, 2.0, 2.0], [0.9, 0.8, 0.7]), heads([0.5, 2.0, 0.1], [2.0, 0.8, 2.0])
    ),
    "CVT-31": Case(distilled(2.5, 3.0), distilled(3.2, 3.0)),
    "CVT-34": Case(
        convit([4.0, *ESCAPED[1:]], early=FIRST_AHEAD), convit(ESCAPED, early=FIRST_BEHIND)
    ),
}
