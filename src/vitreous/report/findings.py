"""What single results come to: a sentence or two each, as HTML, computed from their tables.

Two models are said to differ only where their intervals do not overlap, and a unit to change something only where the
interval of the change leaves out "no change".
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

import pandas as pd

from vitreous.report import many_passes
from vitreous.report.comparing import Finding, Mean, bold, by_model, ranked, records
from vitreous.report.words import escape, listed, measured, number, share, shares
from vitreous.results import Result

KINDS = {
    "attention": "attention",
    "conv": "convolutions",
    "mlp": "MLPs",
    "token-mlp": "token MLPs",
    "mixer": "global token mixers",
}


def accuracy(result: Result) -> Iterator[str]:
    rows = result.table[result.table["overall"] & (result.table["measure"] == "top-1")]
    yield ranked(
        by_model(rows), "{model} is right most often, on {} of the images", "{model} least often, on {}",
        "Accuracy does not tell {models} apart: {} to {} of the images are right", shares,
    )  # fmt: skip


def cost(result: Result) -> Iterator[str]:
    rows = records(result.table)
    light, quick = min(rows, key=lambda row: row["gflops"]), max(rows, key=lambda row: row["value"])
    speed = measured(quick["value"], quick["low"], quick["high"])
    yield (
        f"{bold(light['model'])} needs the fewest operations, {number(light['gflops'])} GFLOPs an image; "
        f"{bold(quick['model'])} was the fastest here, {speed} images a second."
    )


def _far(result: Result, unit: str) -> Iterator[str]:
    layers = result.table.drop_duplicates(["model", "unit"])
    relative = by_model(result.table, "relative", "relative", "relative")
    found = by_model(layers, "mean", "mean_low", "mean_high")
    seen = {mean: name for name, mean in found.items()}

    def show(value: float, low: float, high: float) -> str:
        name = seen[Mean(value, low, high)]
        return f"{measured(value, low, high, unit)}, {100 * relative[name].value:.0f}\u00a0% of uniform attention"

    yield ranked(
        found, "{model} looks farthest, on average {}", "{model} nearest, {}",
        "How far {models} look is too close to tell apart: {} to {}", show,
    )  # fmt: skip


def attention_distance(result: Result) -> Iterator[str]:
    yield from _far(result, "px")


def nonlocality(result: Result) -> Iterator[str]:
    yield from _far(result, "patches")


def attention_entropy(result: Result) -> Iterator[str]:
    known = records(result.table.dropna(subset=["relative", "value"]))
    if not known:
        return
    row = min(known, key=lambda row: row["relative"])
    yield (
        f"The most focused head is head {escape(row['head'])} of <code>{escape(row['unit'])}</code> in "
        f"{bold(row['model'])}: {measured(row['value'], row['low'], row['high'], 'bits')} of "
        f"{number(row['uniform'])} that uniform attention would have."
    )


def head_diversity(result: Result) -> Iterator[str]:
    yield ranked(
        by_model(result.table), "The heads of {model} differ most from each other, by {} in the mean",
        "those of {model} least, by {}", "How much heads differ does not tell {models} apart: {} to {}", measured,
    )  # fmt: skip


def directions(
    rows: pd.DataFrame, low: str, high: str, same: float, down: str, what: str, up: str
) -> str:
    """For each kind of unit, how many lower something, and how many raise it, for sure."""
    known = rows[rows[low].notna()]
    said: list[str] = []
    for kind, words in KINDS.items():
        part = known[known["kind"] == kind]
        falls, rises, s = (
            int((part[high] < same).sum()),
            int((part[low] > same).sum()),
            "s" * (kind == "attention"),
        )
        if len(part):
            it = "it" if said else what
            said.append(
                f"{words} {down}{s} {it} in {falls} of {len(part)} units and {up}{s} it in {rises}"
            )
    return (said[0][0].upper() + "; ".join(said)[1:] + ".") if said else ""


def variance(result: Result) -> Iterator[str]:
    yield directions(
        result.table,
        "ratio_low",
        "ratio_high",
        1.0,
        "lower",
        "the variance of feature maps",
        "raise",
    )


def fourier(result: Result) -> Iterator[str]:
    rows = result.table[result.table["highest"]]
    yield directions(rows, "change_low", "change_high", 0.0, "weaken", "fine detail", "strengthen")


def cka(result: Result) -> Iterator[str]:
    blocks: dict[str, Any] = result.about.get("block_structure", {})
    found = {name: Mean.of(each) for name, each in blocks.items()}
    if found:
        yield ranked(
            found, "{model} falls apart most into stages: units of one are more alike than units of two, by {} CKA",
            "{model} is the most uniform, {}", "How far {models} fall apart into stages is too close to tell: {} to {}",
            measured,
        )  # fmt: skip
    between = result.table[result.table["across"]]
    if len(between):
        pairs = between.groupby("pair", sort=False, observed=True)["value"].mean()
        if len(pairs) > 1:
            most, least = str(pairs.idxmax()), str(pairs.idxmin())
            yield (
                f"Of two models, {bold(most)} are the most alike (mean CKA {number(pairs.max(), 2)} over all pairs of "
                f"units) and {bold(least)} the least ({number(pairs.min(), 2)})."
            )


def localisation(result: Result) -> Iterator[str]:
    indices: dict[str, Any] = result.about.get("indices", {})
    found = {
        name: Mean.of(each["hit_rate"]) for name, each in indices.items() if each.get("hit_rate")
    }
    if any(isfinite(mean.value) for mean in found.values()):
        chance = max(float(each["chance"]) for each in indices.values())
        said = ranked(
            found, "Final tokens of {model} know best where they are: {} of them resemble the picture at their own "
            "place most", "those of {model} least, {}",
            "How many final tokens resemble the picture at their own place most is too close to tell apart: {} to {}",
            shares,
        )  # fmt: skip
        yield f"{said[:-1]}; chance is {share(chance)}."


def skip_ratio(result: Result) -> Iterator[str]:
    spatial = result.table[result.table["token"] == "spatial"]
    yield ranked(
        by_model(spatial if len(spatial) else result.table),
        "Skips carry most in {model}: {} times what branches add, mean over units", "least in {model}: {} times",
        "How much skips carry is too close to tell apart: {} to {} times what branches add", measured,
    )  # fmt: skip


def calibration(result: Result) -> Iterator[str]:
    rows = result.table[result.table["overall"]]
    found = by_model(rows[rows["measure"] == "ECE"])
    yield ranked(
        {name: Mean(-mean.value, -mean.high, -mean.low) for name, mean in found.items()},
        "{model} is best calibrated: its confidence is off by {} in the mean", "{model} worst, by {}",
        "Which of {models} is best calibrated is too close to tell: off by {1} to {0}",
        lambda value, low, high: shares(-value, -high, -low),
    )  # fmt: skip
    signed = by_model(rows[rows["measure"] == "signed ECE"])
    shy = [bold(name) for name, mean in signed.items() if mean.high < 0]
    proud = [bold(name) for name, mean in signed.items() if mean.low > 0]
    for words, names in (("Less sure than right", shy), ("Surer than right", proud)):
        if names:
            yield f"{words}: {listed(names)}."


def gates(result: Result) -> Iterator[str]:
    rows = records(result.table)
    for name in dict.fromkeys(row["model"] for row in rows):
        own = sorted((row for row in rows if row["model"] == name), key=lambda row: row["depth"])
        first, last = (
            f"{number(row['mean'])} in <code>{escape(row['unit'])}</code>"
            for row in (own[0], own[-1])
        )
        yield f"The mean gate of {bold(name)} is {first} and {last}."


def position_similarity(result: Result) -> Iterator[str]:
    said = [
        f"{number(row['value'], 2)} in {bold(row['model'])}"
        for row in records(result.table)
        if row["index"] == "distance"
    ]
    if said:
        yield f"The rank correlation of similarity and distance of two positions is {listed(said)}."


MEASURE, UNITS = {"measure", "overall", "value", "low", "high"}, {"unit", "value", "low", "high"}
HEADS = {"unit", "relative", "uniform", "head", "mean", "mean_low", "mean_high"}
SHIFTED = {"overall", "value", "low", "high"}
FINDINGS: dict[str, tuple[Finding, set[str]]] = {
    "accuracy": (accuracy, MEASURE),
    "calibration": (calibration, MEASURE),
    "attention_distance": (attention_distance, HEADS),
    "variance": (variance, {"kind", "ratio_low", "ratio_high"}),
    "fourier": (fourier, {"kind", "highest", "change_low", "change_high"}),
    "cka": (cka, {"pair", "across", "value"}),
    "localisation": (localisation, set()),
    "skip_ratio": (skip_ratio, UNITS | {"token"}),
    "cost": (cost, {"gflops", "value", "low", "high"}),
    "nonlocality": (nonlocality, HEADS),
    "attention_entropy": (attention_entropy, HEADS),
    "head_diversity": (head_diversity, UNITS),
    "gates": (gates, {"unit", "depth", "mean"}),
    "position_similarity": (position_similarity, {"index", "value"}),
    "corruption": (many_passes.stands("corruptions"), SHIFTED),
    "band_noise": (many_passes.stands("noise in bands of frequency"), SHIFTED),
    "adversarial": (many_passes.stands("attacks"), SHIFTED),
    "frequency_pass": (many_passes.stands("filtered images"), SHIFTED),
    "occlusion": (many_passes.stands("masked patches"), SHIFTED),
    "cue_conflict": (many_passes.cue_conflict, SHIFTED),
    "linear_probe": (many_passes.linear_probe, UNITS | {"whole", "token", "depth"}),
    "erf": (many_passes.erf, UNITS | {"shown", "depth"}),
    "similarity_to": (many_passes.similarity_to, UNITS | {"reference"}),
    "ensemble": (
        many_passes.ensemble,
        {"single", "pair", "part", "nll", "nll_change", "disagreement", "value"},
    ),
    "mc_dropout": (
        many_passes.mc_dropout,
        {"overall", "passes", "nll_change", "nll_change_low", "change_low"},
    ),
    "lesion": (many_passes.lesion, UNITS | {"part", "change", "rise"}),
    "hessian": (many_passes.hessian, {"positive", "negative", "value", "low", "high"}),
    "landscape": (many_passes.landscape, {"part", "radius", "value", "low", "high"}),
}
"""What each question comes to, and the columns that takes."""

HEADLINES = (*tuple(FINDINGS)[:7], "lesion", "corruption", "hessian", "landscape")
"""What a page begins with."""


def findings(result: Result) -> list[str]:
    """The sentences of a result; none where it has not the columns they speak of."""
    if result.name not in FINDINGS or result.table.empty:
        return []
    find, needs = FINDINGS[result.name]
    if not needs | {"model"} <= set(result.table.columns):
        return []
    return [sentence for sentence in find(result) if sentence]
