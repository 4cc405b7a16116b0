"""Evidence for and against what Park and Kim say of AlterNet, of smoothing, and of what stands in
for attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claims.synthetic import Case, accuracy, hessian, item, result
from vitreous.claims.evidence import EvidenceItem
from vitreous.claims.park_2022.alternet import BUILD_UP, FEW_SHARE
from vitreous.results import Result

PAPER = (82.48, 83.45, 83.66, 83.77, 84.02, 83.80)


def built(percents: Sequence[float], **facts: Any) -> list[EvidenceItem]:
    """AlterNets with 0 to 5 attention blocks."""
    pairs = zip(BUILD_UP, percents, strict=True)
    return [item("alternet", accuracy(percent), msas=msas, **facts) for msas, percent in pairs]


def trained(gain: float, count: int, **other: Any) -> list[EvidenceItem]:
    """So many trainings of AlterNet and of one that differs, and how much better AlterNet is, in
    points."""
    return [
        each
        for seed in range(count)
        for each in (
            item("alternet", accuracy(84 + 0.1 * seed), seed=seed),
            item("alternet", accuracy(84 + 0.1 * seed - gain), seed=seed, **other),
        )
    ]


def overall(name: str, percent: float) -> Result:
    """Mean accuracy over what is done to images."""
    return result(
        name, [{"overall": True, "value": percent / 100}, {"overall": False, "value": 0.9}]
    )


def calibrated(ece: float, nll: float = 1.0) -> Result:
    rows = [{"measure": m, "overall": True, "value": v} for m, v in (("ECE", ece), ("NLL", nll))]
    return result("calibration", [*rows, {"measure": "gap", "overall": False, "value": 0.5}])


def robust(gain: float, corrupted: float) -> list[EvidenceItem]:
    """By how many points AlterNet is better than ResNet on clean and on corrupted images."""
    return [
        item("alternet", accuracy(82 + gain), overall("corruption", 65 + corrupted)),
        item("alternet", accuracy(82), overall("corruption", 65), msas=BUILD_UP[0]),
    ]


def curved(ape: float, nep: float) -> list[EvidenceItem]:
    """AlterNet; ResNet has a mean positive eigenvalue of 569."""
    return [
        item("alternet", hessian(nep=nep, ape=ape), checkpoint="warmup"),
        item("alternet", hessian(nep=0.0, ape=569.0), msas=BUILD_UP[0], checkpoint="warmup"),
    ]


def _shares(few: float, many: float) -> list[tuple[dict[str, Any], float, float]]:
    return [({"fraction": FEW_SHARE, "schedule": "samples"}, few, 40), ({}, many, 80)]


def leads(few: float, many: float) -> list[EvidenceItem]:
    """Of AlterNet over Swin, with few and with all images."""
    return [
        each
        for facts, lead, swin in _shares(few, many)
        for each in (
            item("alternet", accuracy(swin + lead), **facts),
            item("swin", accuracy(swin), **facts),
        )
    ]


def blurred(
    end: float,
    ece: float = 0.04,
    nll: float = 0.8,
    corrupted: float = 61,
    ape: float = 90,
    start: float = 80.0,
) -> list[EvidenceItem]:
    """A ResNet with blur at the end of stages; without, all is a little worse, and so it is with
    blur at the start."""

    def trainings(
        place: str | None, percent: float, ece: float, nll: float, corrupted: float, ape: float
    ) -> EvidenceItem:
        results = (
            accuracy(percent),
            calibrated(ece, nll),
            overall("corruption", corrupted),
            hessian(ape=ape),
        )
        return item("alternet", *results, msas="0,0,0,0", blur=place)

    others = [
        trainings(None, 80, 0.05, 1.0, 60, 100),
        trainings("start", start, 0.05, 1.0, 60, 100),
    ]
    return [*others, trainings("end", end, ece, nll, corrupted, ape)]


def mixed(attention: float, pool: float, none: float) -> list[EvidenceItem]:
    """Accuracies by what mixes tokens."""
    found = {None: attention, "pool": pool, "identity": none}
    return [
        item("vit", accuracy(percent), pool="gap", mixer=mixer) for mixer, percent in found.items()
    ]


def disturbed(
    model: str, clean: float, ece: float, corruption: float, occlusion: float, fgsm: float
) -> EvidenceItem:
    rows = [
        {"attack": attack, "attacked": True, "epsilon": epsilon, "value": percent / 100}
        for attack, epsilon, percent in (
            ("fgsm", 0.0, clean),
            ("fgsm", 2.0, fgsm),
            ("fgsm", 8.0, fgsm),
            ("pgd", 2.0, 0),
        )
    ]
    means = [overall("corruption", corruption), overall("occlusion", occlusion)]
    return item(model, accuracy(clean), calibrated(ece), *means, result("adversarial", rows))


def exact(**values: float) -> list[EvidenceItem]:
    rows = [
        {"measure": name, "value": value, "low": value, "high": value}
        for name, value in values.items()
    ]
    return [item("identities", result("identities", rows), data="")]


def reaching(swin: float, near: float) -> list[EvidenceItem]:
    """Errors of Swin and of neighbourhoods; global attention has 33 with a class token and 29
    pooled by the mean."""
    errors = {("swin",): swin, ("vit",): 33.0, ("vit", "gap"): 29.0}
    found = [
        item(name, accuracy(100 - e), pool=(*pool, None)[0]) for (name, *pool), e in errors.items()
    ]
    return [*found, item("vit", accuracy(100 - near), kernel=5)]


RESNET = disturbed("resnet", 80, ece=0.05, corruption=50, occlusion=40, fgsm=20)
CASES: dict[str, Case] = {
    "HDV-43": Case(built(PAPER), built((82.48, 82.2, 82.6, 82.5, 82.4, 82.0))),
    "HDV-44": Case(trained(0.5, 5, msas="0,0,2,2"), trained(-0.5, 5, msas="0,0,2,2")),
    "HDV-45": Case(robust(1.54, 1.69), robust(1.54, -1.0)),
    "HDV-46": Case(curved(434, 0.005), curved(434, 0.05)),
    "HDV-47": Case(
        [*built(PAPER), *built((60, 62, 61, 60, 59, 58), fraction=FEW_SHARE)],
        [*built((82, 84, 83, 82, 81, 80)), *built((60, 60, 60, 61, 62, 61), fraction=FEW_SHARE)],
    ),
    "HDV-48": Case(leads(9, 3), leads(3, 9)),
    "HDV-52": Case(blurred(81), blurred(79)),
    "HDV-53": Case(mixed(70, 68, 50), mixed(70, 64, 66)),
    "HDV-54": Case(
        [disturbed("vit", 79, ece=0.02, corruption=60, occlusion=50, fgsm=30), RESNET],
        [disturbed("vit", 81, ece=0.02, corruption=40, occlusion=45.5, fgsm=30), RESNET],
    ),
    "HDV-55": Case(
        exact(attention_as_ensemble_difference=1e-16, blur_as_attention_difference=0.0),
        exact(attention_as_ensemble_difference=1e-16, blur_as_attention_difference=1e-3),
    ),
    "HDV-56": Case(reaching(swin=23.3, near=28), reaching(swin=23.3, near=30)),
    "HDV-57": Case(
        [*trained(0.5, 3, order="falling"), *trained(0.4, 3, order="constant")[1::2]],
        [*trained(0.5, 3, order="falling"), *trained(-0.5, 3, order="constant")[1::2]],
    ),
    "HDV-58": Case(trained(0.5, 3, placement="start"), trained(-0.5, 3, placement="start")),
}
