"""Evidence for and against what Raghu et al. say of similar layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from claims.synthetic import Case, item, result
from vitreous.claims.evidence import EvidenceItem
from vitreous.results import Result

Alike = Callable[[float, float], float]
BLOCKS = 6


def layers(kinds: tuple[str, ...] = ("attention", "mlp")) -> list[dict[str, Any]]:
    """Stem, blocks and head, with their depths."""
    names = ["stem", *(kind for _ in range(BLOCKS) for kind in kinds), "head"]
    return [
        {
            "unit": f"{number}",
            "kind": kind,
            "depth": number / (len(names) - 1),
            "site": "out",
            "layer": f"{number}",
        }
        for number, kind in enumerate(names)
    ]


CONVS = ("conv", "conv")


def cka(alike: Alike, kinds: tuple[str, ...] = ("attention", "mlp"), **about: Any) -> Result:
    """Of one model with itself; stem and head resemble nothing, and nobody may read them."""
    rows = []
    for one in layers(kinds):
        for other in layers(kinds):
            ends = {one["kind"], other["kind"]} & {"stem", "head"}
            value = 1.0 if one is other else -1.0 if ends else alike(one["depth"], other["depth"])
            rows.append(
                {
                    **one,
                    **{f"other_{k}": v for k, v in other.items()},
                    "within": True,
                    "value": value,
                }
            )
    return result("cka", rows, **about)


def with_structure(model: str, value: float, **facts: Any) -> EvidenceItem:
    blocks = {"value": value, "low": value - 0.01, "high": value + 0.01}
    return item(model, cka(lambda a, b: 0.5, block_structure={model: blocks}), **facts)


def crossed(name: str, other: str, alike: Alike, turned: bool = False, **about: Any) -> Result:
    """Of a model with a convolutional one; `turned` if that one stands first."""
    rows = []
    for one in layers():
        for there in layers(CONVS):
            value = (
                2.0
                if {one["kind"], there["kind"]} & {"stem", "head"}
                else alike(one["depth"], there["depth"])
            )
            first, second = ({"model": name, **one}, {"model": other, **there})[
                :: -1 if turned else 1
            ]
            rows.append(
                {
                    **first,
                    **{f"other_{k}": v for k, v in second.items()},
                    "within": False,
                    "value": value,
                }
            )
    return result("cka", rows, **about)


def pair(model: str, other: str, alike: Alike, turned: bool = False, **facts: Any) -> EvidenceItem:
    name = " ".join([model, *(f"{k}={v}" for k, v in facts.items())])
    structure = {name: {"value": 0.1, "low": 0.0, "high": 0.2}}
    found = crossed(name, other, alike, turned, block_structure=structure)
    return EvidenceItem(
        {"model": model, **facts, "beside": other, "data": "cifar10", "seed": 0},
        {"cka": found},
        name,
        other,
    )


def closest_at(depth: float) -> Alike:
    """Every layer of the other model is most like the layer at this depth."""
    return lambda own, there: 0.9 - abs(own - depth)


def staged(one: float, other: float) -> float:
    """Two blocks."""
    return 0.9 if (one < 0.5) == (other < 0.5) else 0.1


def identities(**values: float) -> list[EvidenceItem]:
    rows = [
        {"measure": name, "value": value, "low": value, "high": value}
        for name, value in values.items()
    ]
    return [item("identities", result("identities", rows), data="")]


def fading(depth: float, fall: float) -> Alike:
    """Resembles layers of the other model up to a depth."""
    return lambda own, there: 0.6 - abs(own - there) / 10 - (fall if own > depth else 0.0)


EVEN: Alike = lambda one, other: 0.8 - 0.1 * abs(one - other)  # noqa: E731

CASES: dict[str, Case] = {
    "SLC-01": Case(
        identities(cka_rotated=1e-12, cka_with_itself=1e-13, cka_stretched=0.3),
        identities(cka_rotated=1e-12, cka_with_itself=1e-13, cka_stretched=1e-9),
    ),
    "SLC-02": Case(
        identities(cka_minibatch_difference=0.002, cka_biased_difference=0.5),
        identities(cka_minibatch_difference=0.5, cka_biased_difference=0.5),
    ),
    "SLC-03": Case(
        [item("vit", cka(EVEN)), item("resnet", cka(staged, CONVS))],
        [item("vit", cka(staged)), item("resnet", cka(EVEN, CONVS))],
    ),
    "SLC-04": Case(
        [with_structure("resnet", 0.4), with_structure("vit", 0.1)],
        [with_structure("resnet", 0.3), with_structure("vit", 0.4)],
    ),
    "SLC-05": Case(
        [item("vit", cka(EVEN)), item("resnet", cka(staged, CONVS))],
        [item("vit", cka(EVEN)), item("resnet", cka(EVEN, CONVS))],
    ),
    "SLC-06": Case(
        [pair("vit", "resnet", closest_at(0.2), turned=True)],
        [pair("vit", "resnet", closest_at(0.6))],
    ),
    "SLC-07": Case(
        [pair("vit", "resnet", closest_at(0.5))],
        [pair("vit", "resnet", closest_at(0.9), turned=True)],
    ),
    "SLC-08": Case(
        [
            pair("vit", "resnet", fading(0.66, 0.3)),
            pair("vit", "resnet", fading(0.66, 0.1), pool="gap"),
        ],
        [
            pair("vit", "resnet", fading(0.66, 0.3)),
            pair("vit", "resnet", fading(0.66, 0.5), pool="gap"),
        ],
    ),
    "SLC-33": Case(
        [
            pair("mixer", "vit", lambda a, b: 0.5),
            pair("mixer", "resnet", lambda a, b: 0.3, turned=True),
        ],
        [
            pair("mixer", "vit", lambda a, b: 0.3, turned=True),
            pair("mixer", "resnet", lambda a, b: 0.5),
        ],
    ),
}
