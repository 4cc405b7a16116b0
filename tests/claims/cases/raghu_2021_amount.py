"""Evidence for and against what Raghu et al. say of the amount of data."""

from __future__ import annotations

from typing import Any

from claims.cases.raghu_2021_similarity import layers
from claims.cases.raghu_2021_tokens import CLASS, MEAN, probes, read
from claims.synthetic import Case, accuracy, item, result
from vitreous.claims.evidence import EvidenceItem
from vitreous.results import Result

FEW: dict[str, Any] = {"fraction": 0.05, "schedule": "samples"}
TENTH: dict[str, Any] = {**FEW, "fraction": 0.1}
THIRD: dict[str, Any] = {**FEW, "fraction": 0.3}


def similar(first: float, last: float) -> Result:
    """CKA from the first unit to the last, in a straight line; stem and head resemble nothing."""
    rows = [
        {
            **unit,
            "value": 0.0
            if unit["kind"] in ("stem", "head")
            else first + (last - first) * unit["depth"],
        }
        for unit in layers()
    ]
    return result("similarity_to", rows)


def by_data(small: tuple[float, float], larger: tuple[float, float]) -> list[EvidenceItem]:
    """Trained on a tenth; besides on few images and on all."""
    beside, large_beside = "vit seed=1", "vit size=s seed=1"
    return [
        item("vit", similar(*small), **TENTH, beside=beside),
        item("vit", similar(*larger), size="s", **TENTH, beside=large_beside),
        item("vit", similar(0.8, 0.3), **FEW, beside=beside),
        item("vit", similar(0.95, 0.9), beside=beside),
    ]


def features(
    few: tuple[float, float, float], every: tuple[float, float, float]
) -> list[EvidenceItem]:
    """Accuracies after the first block, up to the middle, and after it."""
    return [
        item("vit", _probed(*values), size="s", **facts)
        for values, facts in ((few, FEW), (every, {}))
    ]


def _probed(first: float, middle: float, last: float) -> Result:
    found = probes({MEAN: (middle, last)})
    table = found.table.copy()
    low = (table["depth"] < 0.2) & (table["shots"] == "10")
    for name in ("value", "low", "high"):
        table.loc[low, name] += (first - middle) / 100
    return Result(found.name, table, found.columns, about=found.about)


def amounts(*percents: float) -> list[EvidenceItem]:
    facts: tuple[dict[str, Any], ...] = ({}, FEW, TENTH, THIRD)
    values = (percents[-1], *percents[:-1])
    return [
        read("vit", {CLASS: (10, value)}, **each) for value, each in zip(values, facts, strict=True)
    ]


BEFORE: dict[str, Any] = {"pretrained": "labels", "source": "tiny100"}


def tuned(whole: float, head: float) -> list[EvidenceItem]:
    return [
        item("vit", accuracy(whole), **BEFORE),
        item("vit", accuracy(head), tuned="head", **BEFORE),
    ]


def fine_tuned(first: float, last: float) -> list[EvidenceItem]:
    beside = "vit pretrained=labels source=tiny100 checkpoint=start"
    return [item("vit", similar(first, last), beside=beside, **BEFORE)]


CASES: dict[str, Case] = {
    "SLC-26": Case(by_data((0.95, 0.5), (0.95, 0.3)), by_data((0.95, 0.9), (0.95, 0.85))),
    "SLC-27": Case(features((20, 30, 40), (25, 60, 80)), features((20, 55, 40), (50, 60, 80))),
    "SLC-28": Case(
        [read("vit", {MEAN: (60, 80)}, size="s"), read("resnet", {MEAN: (40, 80)})],
        [read("vit", {MEAN: (40, 70)}, size="s"), read("resnet", {MEAN: (60, 80)})],
    ),
    "SLC-29": Case(amounts(30, 45, 60, 75), amounts(80, 65, 60, 75)),
    "SLC-30": Case(tuned(70, 50), tuned(70, 69)),
    "SLC-32": Case(fine_tuned(1.0, 0.6), fine_tuned(0.7, 1.0)),
}
