"""Evidence for and against what d'Ascoli et al. say of accuracies, exact properties and masked
models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from claims.synthetic import Case, accuracy, item, result, training
from vitreous.claims.evidence import EvidenceItem
from vitreous.results import Result

TENTH = {"fraction": 0.1, "schedule": "samples"}


def scored(model: str, *percents: float, **facts: Any) -> list[EvidenceItem]:
    """As many trainings as there are accuracies."""
    return [item(model, accuracy(each), seed=seed, **facts) for seed, each in enumerate(percents)]


def both(convit: float, deit: float, **facts: Any) -> list[EvidenceItem]:
    return [*scored("convit", convit, **facts), *scored("deit", deit, **facts)]


def shares(gaps: Iterable[float]) -> list[EvidenceItem]:
    """DeiT and a ConViT that is so much better, on 5, 10, 30 and 100 % of the images."""
    fractions = (0.05, 0.1, 0.3, None)
    return [
        each
        for gap, share in zip(gaps, fractions, strict=True)
        for each in both(50 + gap, 50, schedule="samples", fraction=share)
    ]


def rates(convit: Iterable[float], deit: Iterable[float]) -> list[EvidenceItem]:
    return [
        each
        for model, accuracies in (("convit", convit), ("deit", deit))
        for rate, percent in zip((0.5, None, 2.0), accuracies, strict=True)
        for each in scored(model, percent, rate=rate)
    ]


SATURATED = {"a": 82.2, "b": 82.0, "c": 81.4, "d": 81.6, "e": 79.1, "f": 78.6, "g": 73.7}
FEW = {"a": 59.7, "b": 57.4, "c": 56.9, "d": 54.6, "e": 47.8, "f": 54.3, "g": 44.8}


def table(
    letters: str, full: Mapping[str, float] | None = None, tenth: Mapping[str, float] | None = None
) -> list[EvidenceItem]:
    """Rows of Table 3 with the paper's accuracies, but for those given; two trainings each."""
    return [
        each
        for accuracies, facts in (
            ({**SATURATED, **(full or {})}, {}),
            ({**FEW, **(tenth or {})}, TENTH),
        )
        for letter in letters
        for each in scored(
            "convit", accuracies[letter], accuracies[letter] + 0.2, ablation=letter, **facts
        )
    ]


def grid(by_layer: float, by_strength: float) -> list[EvidenceItem]:
    """Accuracies that change by so many points with each step of the two factors."""
    cells = [
        each
        for i, layers in enumerate((3, 6, 9))
        for j, strength in enumerate((0.01, 0.1, None))
        for each in scored(
            "convit", 77 + by_layer * (1 + i) + by_strength * j, gpsa=layers, strength=strength
        )
    ]
    return [*scored("convit", 77, gpsa=0), *cells]


def learning(*percents: float) -> Result:
    """The record of so many epochs and one before, by test accuracy."""
    return training(
        [
            {"measure": "test_error", "epoch": epoch, "value": 1 - each / 100}
            for epoch, each in enumerate(percents)
        ]
    )


def losses(*values: float) -> list[EvidenceItem]:
    rows = [
        {"measure": "test_nll", "epoch": epoch, "value": value}
        for epoch, value in enumerate(values)
    ]
    return [item("convit", training(rows), accuracy(82))]


def head_start(most: Iterable[float], none: Iterable[float]) -> list[EvidenceItem]:
    return [item("convit", learning(*most), gpsa=9), item("convit", learning(*none), gpsa=0)]


def timed(convit: float, deit: float) -> list[EvidenceItem]:
    return [
        item(model, result("cost", [{"value": speed, "low": speed - 5, "high": speed + 5}]))
        for model, speed in (("convit", convit), ("deit", deit))
    ]


def exact(**measures: float) -> list[EvidenceItem]:
    rows = [
        {"measure": name, "value": value, "low": value, "high": value}
        for name, value in measures.items()
    ]
    return [item("identities", result("identities", rows), data="")]


def finer(convit: float, deit: float, offsets: float = 1e-15) -> list[EvidenceItem]:
    return [
        *scored("convit", convit, positions="none", resolution=64),
        *scored("convit", 80, positions="none"),
        *scored("deit", deit, resolution=64, embedding="truncated"),
        *exact(offsets_on_a_new_grid=offsets),
    ]


def lesion(drops: Mapping[str, Iterable[float]]) -> Result:
    """Points of accuracy lost by the change, layer by layer."""
    return result(
        "lesion",
        [
            {
                "kind": "attention",
                "change": change,
                "unit": f"blocks.{layer}.attn",
                "value": drop / 100,
            }
            for change, lost in drops.items()
            for layer, drop in enumerate(lost)
        ],
    )


def unembedded(convit: float, deit: float) -> list[EvidenceItem]:
    taken = {"taken out": [50.0, 50.0]}
    return [
        item(model, lesion({**taken, "masked": [drop]}))
        for model, drop in (("convit", convit), ("deit", deit))
    ]


def masked(content: Iterable[float], position: Iterable[float]) -> list[EvidenceItem]:
    drops = {"content masked up to here": content, "position masked up to here": position}
    return [item("convit", lesion({"taken out": [50.0], **drops}))]


def ungated(early: float, end: float, content: float) -> list[EvidenceItem]:
    """Positional attention without gates: its accuracy early and at the end, and what its lower
    layers lose without content. ConViT has 80 % in the end, and DeiT 30 and 75 %."""
    changed = lesion(
        {"mean over images": [content, content, 60.0, 60.0], "offset alone": [60.0] * 4}
    )
    psa = item("convit", learning(10, early, *[end] * 4), accuracy(end), changed, psa=True)
    return [psa, *scored("convit", 80), item("deit", learning(10, 30, *[75] * 4), accuracy(75))]


CASES: dict[str, Case] = {
    "CVT-01": Case(
        exact(psa_convolution_difference=1e-7, psa_convolution_rises=0),
        exact(psa_convolution_difference=1e-7, psa_convolution_rises=1),
    ),
    "CVT-02": Case(
        [*scored("convit", 81, 82, 81.5), *scored("deit", 80, 80.5, 80.2)],
        [*scored("convit", 80, 80, 80.1), *scored("deit", 80.2, 80.5, 80.3)],
    ),
    "CVT-03": Case(timed(734, 1442), timed(1500, 1442)),
    "CVT-04": Case(both(59.6, 48.0, **TENTH), both(49, 48, **TENTH)),
    "CVT-05": Case(shares([13, 11.6, 7.6, 1.5]), shares([5, 8, 11, 18])),
    "CVT-06": Case(
        [*both(60, 48, size="s", **TENTH), *both(55, 48, **TENTH)],
        [*both(60, 58, size="s", **TENTH), *both(55, 48, **TENTH)],
    ),
    "CVT-07": Case(
        [*scored("convit", 80), *scored("deit", 80.5, distilled=True)],
        [*scored("convit", 80), *scored("deit", 82, distilled=True)],
    ),
    "CVT-17": Case(grid(by_layer=1, by_strength=0.5), grid(by_layer=1, by_strength=-0.5)),
    "CVT-18": Case(
        head_start([10, 40, *[80] * 13], [10, 22, *[70] * 13]),
        head_start([10, 40, *[80] * 13], [10, 39, *[70] * 13]),
    ),
    "CVT-19": Case(table("de"), table("de", tenth={"d": 48})),
    "CVT-20": Case(table("bcd"), table("bcd", full={"c": 84})),
    "CVT-21": Case(table("abcd"), table("abcd", tenth={"a": 57})),
    "CVT-22": Case(table("ef"), table("ef", full={"f": 76})),
    "CVT-23": Case(table("efg"), table("efg", tenth={"g": 53})),
    "CVT-24": Case(ungated(early=40, end=72, content=0.2), ungated(early=40, end=72, content=20)),
    "CVT-25": Case(
        exact(gpsa_parameter_share=1.6e-5, gpsa_parameters=450),
        exact(gpsa_parameter_share=0.02, gpsa_parameters=6e5),
    ),
    "CVT-26": Case(
        exact(gpsa_row_sum_error=1e-16, gpsa_mixture_difference=1e-16, gpsa_position_share=0.731),
        exact(gpsa_row_sum_error=1e-16, gpsa_mixture_difference=1e-16, gpsa_position_share=0.269),
    ),
    "CVT-27": Case(finer(convit=70, deit=50), finer(convit=60, deit=50)),
    "CVT-28": Case(
        [*scored("convit", 80), *scored("convit", 78, cls="inside")],
        [*scored("convit", 80), *scored("convit", 81, cls="inside")],
    ),
    "CVT-29": Case(unembedded(convit=6.0, deit=33.9), unembedded(convit=20, deit=33.9)),
    "CVT-30": Case(
        masked(
            [5, 8, 10.8, 25, 38, 45, 55, 65, 70, 71.8], [4, 7, 9.6, 15, 20, 22, 24, 25, 26, 26.3]
        ),
        masked([0, 0, 1, 1, 2, 2, 3, 4, 5, 6], [1, 2, 3, 10, 20, 30, 40, 50, 60, 65]),
    ),
    "CVT-32": Case(losses(4.6, 1.0, 0.8, 0.9), losses(4.6, 1.0, 0.9, 0.8)),
    "CVT-33": Case(rates([80, 81, 80.5], [75, 79, 72]), rates([75, 81, 70], [78, 79, 77])),
}
