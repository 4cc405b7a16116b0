"""Evidence for and against what Raghu et al. say of single tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from claims.cases.raghu_2021_similarity import layers
from claims.synthetic import Case, accuracy, item, result
from vitreous.claims.evidence import EvidenceItem
from vitreous.results import Result

SIDE = 4


def index(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def localisation(**models: tuple[float, float]) -> Result:
    """Hit rate and contrast of models by name."""
    indices = {
        name: {"grid": [SIDE, SIDE], "hit_rate": index(hits), "contrast": index(contrast)}
        for name, (hits, contrast) in models.items()
    }
    rows = [{"model": name, "value": 0.0} for name in models]
    return result("localisation", rows, indices=indices)


def places(vit: tuple[float, float], resnet: tuple[float, float]) -> list[EvidenceItem]:
    facts = {"model": "vit", "beside": "resnet", "data": "cifar10", "seed": 0}
    return [
        EvidenceItem(facts, {"localisation": localisation(vit=vit, resnet=resnet)}, "vit", "resnet")
    ]


def contrasts(with_class: float, pooled: float) -> list[EvidenceItem]:
    gap = {"vit pool=gap": (0.5, pooled)}
    return [
        item("vit", localisation(vit=(0.5, with_class))),
        item("vit", localisation(**gap), pool="gap"),
    ]


def edges(to_edge: float, to_inside: float) -> list[EvidenceItem]:
    """Own patches are alike in any case."""
    inside = np.zeros((SIDE, SIDE), dtype=bool)
    inside[1:-1, 1:-1] = True
    maps = (
        np.where(inside.ravel()[None, :], to_inside, to_edge) + 0.001 * np.arange(SIDE**2)[:, None]
    )
    np.fill_diagonal(maps, 1.0)
    found = localisation(vit=(0.5, 0.1))
    return [
        item(
            "vit",
            Result(
                found.name,
                found.table,
                found.columns,
                arrays={"vit": maps.reshape(4 * [SIDE])},
                about=found.about,
            ),
        )
    ]


def probes(tokens: Mapping[str, tuple[float, float]]) -> Result:
    """Accuracies in percent of 10 images a class, of the first half and after it; other probes are
    of no account."""
    rows: list[dict[str, Any]] = []
    for unit in layers()[:-1]:
        for token, (early, late) in tokens.items():
            value = (early if unit["depth"] < 0.6 else late) / 100
            rows += [
                {**unit, "token": token, "shots": shots, "value": v}
                for shots, v in (("10", value), ("all", 0.99))
            ]
    return result("linear_probe", rows)


def read(model: str, tokens: Mapping[str, tuple[float, float]], **facts: Any) -> EvidenceItem:
    return item(model, probes(tokens), **facts)


def single(pooled: float, with_class: float, resnet: float) -> list[EvidenceItem]:
    given = [("vit", pooled, {"pool": "gap"}), ("vit", with_class, {}), ("resnet", resnet, {})]
    return [read(model, {SINGLE: (1.0, value)}, **facts) for model, value, facts in given]


def rates(*percents: float) -> list[EvidenceItem]:
    """With a class token at two rates, pooled at two."""
    facts: list[dict[str, Any]] = [{}, {"rate": 0.4}, {"pool": "gap"}, {"pool": "gap", "rate": 0.4}]
    return [
        item("vit", accuracy(percent), **each)
        for percent, each in zip(percents, facts, strict=True)
    ]


SINGLE, MEAN, FIRST, CLASS = (
    "each position alone",
    "mean over positions",
    "first position",
    "class token",
)

CASES: dict[str, Case] = {
    "SLC-19": Case(places((0.9, 0.2), (0.1, 0.05)), places((0.5, 0.1), (0.4, 0.15))),
    "SLC-20": Case(edges(0.3, 0.1), edges(0.1, 0.3)),
    "SLC-21": Case(contrasts(0.3, 0.05), contrasts(0.3, 0.38)),
    "SLC-22": Case(single(57, 14, 48), single(57, 50, 48)),
    "SLC-23": Case(
        [read("vit", {CLASS: (40, 70), MEAN: (41, 55)})],
        [read("vit", {CLASS: (40, 70), MEAN: (41, 75)})],
    ),
    "SLC-24": Case(
        [read("vit", {FIRST: (10, 68), MEAN: (40, 70)}, pool="gap")],
        [read("vit", {FIRST: (38, 68), MEAN: (40, 70)}, pool="gap")],
    ),
    "SLC-25": Case(rates(70, 65, 60, 70.5), rates(70, 65, 60, 74)),
}
