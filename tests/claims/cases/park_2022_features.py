"""Evidence for and against what Park and Kim say of feature maps: frequencies, variance, blocks of
layers, lesions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from claims.synthetic import SPREAD, Case, accuracy, item, result
from vitreous.claims.evidence import EvidenceItem
from vitreous.results import Result

FINE = 1e-5
"""Half the width of intervals of small numbers."""


def blocks(attention: Sequence[float], mlp: Sequence[float]) -> list[dict[str, Any]]:
    """Rows of the units of a ViT: what each does, by kind."""
    pairs = zip(attention, mlp, strict=True)
    return [
        {"kind": k, "stage": 1, "does": d}
        for pair in pairs
        for k, d in zip(("attention", "mlp"), pair, strict=True)
    ]


def stages(*rows: Sequence[float], kind: str = "conv") -> list[dict[str, Any]]:
    """Rows of the units of each stage: what each does."""
    return [
        {"kind": kind, "stage": stage, "does": does}
        for stage, row in enumerate(rows, 1)
        for does in row
    ]


def named(units: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every unit with a name, and without what it does."""
    kept = [{key: value for key, value in unit.items() if key != "does"} for unit in units]
    return [{"unit": f"unit{number}", **unit} for number, unit in enumerate(kept)]


def fourier(
    changes: Sequence[Mapping[str, Any]] = (),
    highs: Sequence[Mapping[str, Any]] = (),
    stem: float = 0,
) -> Result:
    """Units that change the highest frequency so much, or after which it is so high; others are
    below it."""
    units = changes or highs
    rows: list[dict[str, Any]] = [
        {"unit": "stem", "kind": "stem", "stage": 0, "value": stem, "change": float("nan")}
    ]
    for unit, row in zip(units, named(units), strict=True):
        value, change = (stem, unit["does"]) if changes else (unit["does"], 0.0)
        rows.append({**row, "value": value, "change": change})
    for row in rows:
        row |= {
            "change_low": row["change"] - SPREAD,
            "change_high": row["change"] + SPREAD,
            "highest": True,
        }
    low = [
        {**row, "highest": False, "value": 9.0 - 2 * row["value"], "change": -row["change"]}
        for row in rows
    ]
    return result("fourier", [{**row, "common": not row["highest"]} for row in [*rows, *low]])


def vit_frequencies(attention: Sequence[float], mlp: Sequence[float]) -> list[EvidenceItem]:
    return [item("vit", fourier(blocks(attention, mlp)), patch=2)]


PAPER_ATTENTION = (-0.11, 0.48, 0.37, -0.14, -0.18, -0.21, -0.12, -0.14, -0.03, 0.01, -0.10, -0.02)
PAPER_MLP = (-0.76, -0.36, -0.20, 0.01, 0.21, 0.13, 0.18, 0.13, 0.08, 0.05, -0.09, 0.30)
PAPER_HIGHS = ((-5.63, -5.42, -5.23), (-3.51, -3.66), (-2.61, -2.57), (-1.03, -1.09, -1.03))


def resnet_frequencies(*highs: Sequence[float], stem: float = -6.6) -> EvidenceItem:
    return item("resnet", fourier(highs=stages(*highs), stem=stem))


def ends(vit: float, resnet: float) -> list[EvidenceItem]:
    """The highest frequency at the end of each; both begin at −2."""
    spectra = fourier(highs=stages((-3.0, vit), kind="mlp"), stem=-2.0)
    return [item("vit", spectra, patch=2), resnet_frequencies((-1.5, resnet), stem=-2.0)]


def band_noise(gaps: Sequence[float]) -> list[EvidenceItem]:
    """Change of accuracy of ViT minus that of ResNet at 0.1π to 0.9π, in points."""
    rows: list[dict[str, Any]] = [
        {"model": "vit beside=resnet", "noisy": False, "frequency": float("nan"), "change": 0.0}
    ]
    for number, gap in enumerate(gaps, 1):
        for model, change in (("vit beside=resnet", -0.1 + gap / 100), ("resnet", -0.1)):
            rows.append({"model": model, "noisy": True, "frequency": number / 10, "change": change})
    ends = [
        {**row, "change_low": row["change"] - 2 * SPREAD, "change_high": row["change"] + 2 * SPREAD}
        for row in rows
    ]
    alone = [item("vit", accuracy(70)), item("resnet", accuracy(72))]
    return [item("vit", result("band_noise", ends), beside="resnet", other="resnet"), *alone]


def cues(model: str, shape: float, low_pass: float) -> EvidenceItem:
    """Decisions by shape in percent, and points lost where only low frequencies pass."""
    shares = [
        {
            "measure": "shape share",
            "overall": True,
            "value": shape / 100,
            "low": shape / 100,
            "high": shape / 100,
        }
    ]
    shares.append({**shares[0], "measure": "texture", "overall": False, "value": 0.3})
    passes = [
        {"filter": kind, "filtered": True, "cutoff": cut, "change": -lost / 100}
        for kind, lost in (("low-pass", low_pass), ("high-pass", 90 - low_pass))
        for cut in (0.2, 0.6)
    ]
    return item(
        model, result("cue_conflict", shares), result("frequency_pass", passes), data="SYN-A"
    )


def variance(units: Sequence[Mapping[str, Any]], ratios: bool = False) -> Result:
    """Units after which the variance is so large, or so much larger than before; in the latter case
    it follows."""
    value = 0.01
    rows: list[dict[str, Any]] = [
        {"unit": "stem", "kind": "stem", "stage": 0, "value": value, "ratio": float("nan")}
    ]
    for unit, row in zip(units, named(units), strict=True):
        ratio = unit["does"] if ratios else unit["does"] / value
        value = value * ratio if ratios else unit["does"]
        rows.append({**row, "value": value, "ratio": ratio})
    for row in rows:
        for name in ("value", "ratio"):
            low, high = ("low", "high") if name == "value" else ("ratio_low", "ratio_high")
            row |= {low: row[name] - FINE, high: row[name] + FINE}
    return result("variance", rows)


def resnet_variance(*rows: Sequence[float]) -> EvidenceItem:
    return item("resnet", variance(stages(*rows)))


PAPER_VARIANCE = ((0.20, 0.33, 0.46), (0.36, 0.50, 0.77), (0.37, 0.60, 0.84), (0.17, 0.19, 0.21))


def staged_attention(model: str, first: float, second: float, mlp: float = 1.3) -> EvidenceItem:
    """Two stages of two blocks: what attention makes of the variance in the first and the second,
    and what MLPs do."""
    units = [
        {"kind": kind, "stage": stage, "does": does}
        for stage in (1, 2)
        for kind, does in (("attention", first), ("mlp", mlp), ("attention", second), ("mlp", mlp))
    ]
    return item(model, variance(units, ratios=True))


def alike(model: str, index: float) -> EvidenceItem:
    """Block structure."""
    found = {"value": index, "low": index - 0.01, "high": index + 0.01}
    return item(model, result("cka", [{"value": 1.0}], block_structure={model: found}))


def lesion(model: str, change: str, **drops: Sequence[Sequence[float]]) -> EvidenceItem:
    """Points lost without each unit, by kind and stage."""
    rows = [unit | {"kind": kind} for kind, row in drops.items() for unit in stages(*row)]
    found = [
        {**row, "change": change, "value": u["does"] / 100}
        for u, row in zip(rows, named(rows), strict=True)
    ]
    return item(
        model,
        result(
            "lesion", [*found, *({**row, "change": "skip removed", "value": 0.5} for row in found)]
        ),
    )


def swin_lesion(
    attention: Sequence[Sequence[float]], mlp: Sequence[Sequence[float]]
) -> EvidenceItem:
    return lesion("swin", "taken out", attention=attention, mlp=mlp)


def resnet_lesion(*drops: Sequence[float]) -> EvidenceItem:
    return lesion("resnet", "identity", conv=drops)


SWIN_ATTENTION = ((3.0, 1.96), (0.42, 1.44), (0.23, 0.16, 0.39, 0.23, 0.60, 0.56), (1.09, 1.88))
SWIN_MLP = ((0.2, 0.43), (0.60, 0.22), (0.69, 0.28, 0.17, 0.22, 0.30, 0.0), (1.4, 1.00))
RESNET_DROPS = ((9.0, 8.0), (7.0, 4.0), (3.0, 1.0), (0.5, 0.9))

CASES: dict[str, Case] = {
    "HDV-26": Case(
        vit_frequencies(PAPER_ATTENTION, PAPER_MLP),
        vit_frequencies([-change for change in PAPER_ATTENTION], PAPER_MLP),
    ),
    "HDV-27": Case(
        vit_frequencies(PAPER_ATTENTION, PAPER_MLP),
        vit_frequencies([-0.4, -0.4, -0.4, *PAPER_ATTENTION[3:]], PAPER_MLP),
    ),
    "HDV-28": Case(
        vit_frequencies(PAPER_ATTENTION, PAPER_MLP),
        vit_frequencies(PAPER_ATTENTION, [change - 0.3 for change in PAPER_MLP]),
    ),
    "HDV-29": Case(
        [resnet_frequencies(*PAPER_HIGHS)],
        [resnet_frequencies((-5.23, -5.42, -5.63), *PAPER_HIGHS[1:])],
    ),
    "HDV-30": Case(ends(vit=-2.5, resnet=-1.0), ends(vit=-1.5, resnet=-1.0)),
    "HDV-31": Case(
        [
            item("swin", fourier(blocks([0.1, -0.1], [0, 0]))),
            *vit_frequencies([-0.2, -0.1], [0, 0]),
        ],
        [
            item("swin", fourier(blocks([-0.3, -0.1], [9, 9]))),
            *vit_frequencies([-0.2, -0.1], [0, 0]),
        ],
    ),
    "HDV-32": Case(
        band_noise([-0.5, -3.3, -2.2, -2.7, -1.3, 0.3, 3.4, 9.3, 10.6]),
        band_noise([-0.5, -3.3, -2.2, -2.7, -1.3, 0.3, 1.0, 1.0, 1.5]),
    ),
    "HDV-33": Case(
        [cues("vit", 80, low_pass=10), cues("resnet", 40, low_pass=30)],
        [cues("vit", 45, low_pass=10), cues("resnet", 40, low_pass=30)],
    ),
    "HDV-34": Case(
        [item("vit", variance(blocks([0.9] * 11 + [1.1], [1.2] * 12), ratios=True))],
        [item("vit", variance(blocks([0.9] * 8 + [1.1] * 4, [0.8] * 12), ratios=True))],
    ),
    "HDV-35": Case(
        [
            item("vit", variance(blocks([0.9] * 12, [1.2] * 8 + [0.9] * 4), ratios=True)),
            resnet_variance(*PAPER_VARIANCE),
        ],
        [
            item("vit", variance(blocks([0.9] * 12, [1.2] * 8 + [0.9] * 4), ratios=True)),
            resnet_variance(*(row[::-1] for row in PAPER_VARIANCE)),
        ],
    ),
    "HDV-36": Case(
        [resnet_variance(*PAPER_VARIANCE[:3], (0.21, 0.17))],
        [resnet_variance((0.46, 0.6, 0.2), (0.8, 0.4), *PAPER_VARIANCE[2:])],
    ),
    "HDV-37": Case(
        [resnet_variance(*PAPER_VARIANCE)],
        [resnet_variance(*PAPER_VARIANCE[:3], (0.9, 1.0))],
    ),
    "HDV-38": Case(
        [staged_attention("pit", 0.9, 1.0, mlp=0.9), staged_attention("swin", 0.99, 1.05)],
        [staged_attention("pit", 0.9, 1.0, mlp=0.9), staged_attention("swin", 0.99, 1.05, mlp=0.9)],
    ),
    "HDV-39": Case(
        [alike("vit", 0.05), alike("resnet", 0.3), alike("pit", 0.25), alike("swin", 0.2)],
        [alike("vit", 0.25), alike("resnet", 0.3), alike("pit", 0.1), alike("swin", 0.2)],
    ),
    "HDV-40": Case(
        [resnet_lesion(*RESNET_DROPS)],
        [resnet_lesion(*RESNET_DROPS[::-1])],
    ),
    "HDV-41": Case(
        [swin_lesion(SWIN_ATTENTION, SWIN_MLP)],
        [swin_lesion([row[::-1] for row in SWIN_ATTENTION], SWIN_MLP)],
    ),
    "HDV-42": Case(
        [swin_lesion(SWIN_ATTENTION, SWIN_MLP), resnet_lesion(*RESNET_DROPS)],
        [
            swin_lesion([row[::-1] for row in SWIN_ATTENTION], SWIN_MLP),
            resnet_lesion(*RESNET_DROPS),
        ],
    ),
}
