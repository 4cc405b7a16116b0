"""Evidence for and against what Raghu et al. say of skips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from claims.cases.raghu_2021_similarity import EVEN, Alike, cka, layers
from claims.synthetic import Case, accuracy, item, result
from vitreous.claims.evidence import EvidenceItem
from vitreous.results import Result

Ratio = Callable[[float], float]


def skips(of_class: Ratio | None, of_space: Ratio, stages: int = 1) -> Result:
    """Skip over branch by depth; units of a ResNet are in stages, whose first ones are not asked
    about."""
    rows: list[dict[str, Any]] = []
    inner = layers()[1:-1]
    for number, unit in enumerate(inner):
        stage = 1 + number * stages // len(inner)
        first = stages > 1 and stage > 1 and rows[-1]["stage"] != stage
        found = {"class": of_class, "spatial": of_space}
        rows += [
            {
                **unit,
                "stage": stage,
                "token": token,
                "value": 99.0 if first else ratio(unit["depth"]),
            }
            for token, ratio in found.items()
            if ratio is not None
        ]
    return result("skip_ratio", rows)


def changing(early: float, late: float) -> Ratio:
    return lambda depth: early if depth < 0.5 else late


def cut(block: int) -> Alike:
    """Falls apart where that block begins."""
    begins = [unit["depth"] for unit in layers() if unit["kind"] == "attention"][block - 1]
    return lambda one, other: 0.9 if (one < begins) == (other < begins) else 0.4


def embedded(model: str, found: Result, **facts: Any) -> EvidenceItem:
    return item(model, found, data="SYN-B", **facts)


def ratios(vit: float, resnet: float, before: float) -> list[EvidenceItem]:
    """Trained, and of ViT over ResNet before training."""
    return [
        embedded("vit", skips(None, lambda depth: vit)),
        embedded("resnet", skips(None, lambda depth: resnet, stages=3)),
        embedded("vit", skips(None, lambda depth: before), checkpoint="start"),
        embedded("resnet", skips(None, lambda depth: 1.0, stages=3), checkpoint="start"),
    ]


def skipless(intact: Alike, *without: Alike) -> list[EvidenceItem]:
    return [
        embedded("vit", cka(intact)),
        *(
            embedded("vit", cka(alike), skipless=block)
            for block, alike in zip((2, 4), without, strict=True)
        ),
    ]


def accurate(intact: float, six: float, nine: float) -> list[EvidenceItem]:
    return [
        item("vit", accuracy(intact)),
        item("vit", accuracy(six), skipless=6),
        item("vit", accuracy(nine), skipless=9),
    ]


CASES: dict[str, Case] = {
    "SLC-14": Case(
        [item("vit", skips(changing(8, 1), changing(2, 3)))],
        [item("vit", skips(changing(1, 8), changing(2, 3)))],
    ),
    "SLC-15": Case(
        [item("vit", skips(changing(8, 1), changing(2, 3)))],
        [item("vit", skips(changing(1, 1), changing(2, 3)))],
    ),
    "SLC-16": Case(ratios(vit=5, resnet=2, before=1.0), ratios(vit=5, resnet=2, before=2.0)),
    "SLC-17": Case(skipless(EVEN, cut(2), cut(4)), skipless(cut(2), EVEN, EVEN)),
    "SLC-18": Case(accurate(80, 76, 77), accurate(80, 79.9, 60)),
}
