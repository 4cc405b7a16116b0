"""What single results come to: a sentence or two each, as HTML, computed from their tables.

Two models are said to differ only where their intervals do not overlap, and a unit to change something only where the
interval of the change leaves out "no change".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from vitreous.report.words import escape, listed, measured, number, share, shares
from vitreous.results import Result

KINDS = {"attention": "attention", "conv": "convolutions", "mlp": "MLPs", "token-mlp": "token MLPs"}


class Mean(NamedTuple):
    """A value and its interval. That of a mean over units is the mean of theirs, which is never too narrow: where all
    units move together with the images drawn it is exact, otherwise they cancel in part."""

    value: float
    low: float
    high: float


Show = Callable[[float, float, float], str]
Finding = Callable[[Result], Iterator[str]]


def bold(name: object) -> str:
    return f"<b>{escape(name)}</b>"


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def by_model(rows: pd.DataFrame, *names: str) -> dict[str, Mean]:
    """For each model the mean over its rows of a value and its ends."""
    found = rows.groupby("model", sort=False, observed=True)[list(names or ("value", "low", "high"))].mean()
    return {str(name): Mean(*map(float, row)) for name, row in zip(found.index, found.to_numpy(), strict=True)}


def apart(one: Mean, other: Mean) -> bool:
    """Whether two intervals leave room between them."""
    return one.low > other.high or other.low > one.high


def ranked(found: Mapping[str, Mean], first: str, last: str, alike: str, show: Show) -> str:
    """Who comes first and who last, by their values, or that nobody can tell. `{}` is the value, `{model}` its owner,
    `{models}` all of them."""
    order = sorted(found, key=lambda name: -found[name].value)
    top, bottom = order[0], order[-1]
    ends = [show(*found[name]) for name in (top, bottom)]
    if len(order) == 1:
        return first.format(ends[0], model=bold(top)) + "."
    if not apart(found[top], found[bottom]):
        return alike.format(ends[1], ends[0], models=_all(list(found))) + "; the intervals overlap."
    close = [
        [bold(other) for other in order if other != name and not apart(found[name], found[other])]
        for name in (top, bottom)
    ]
    words = [f" ({listed(each)} too close to tell apart)" if each else "" for each in close]
    said = (first.format(ends[0], model=bold(top)), last.format(ends[1], model=bold(bottom)))
    return f"{said[0]}{words[0]}; {said[1]}{words[1]}."


def _all(names: list[str]) -> str:
    counts = {2: "the two", 3: "all three", 4: "all four", 5: "all five", 6: "all six"}
    return counts.get(len(names), f"all {len(names)}")


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
    row = min(records(result.table), key=lambda row: row["relative"])
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


def directions(rows: pd.DataFrame, low: str, high: str, same: float, down: str, what: str, up: str) -> str:
    """For each kind of unit, how many lower something, and how many raise it, for sure."""
    known = rows[rows[low].notna()]
    said: list[str] = []
    for kind, words in KINDS.items():
        part = known[known["kind"] == kind]
        falls, rises, s = int((part[high] < same).sum()), int((part[low] > same).sum()), "s" * (kind == "attention")
        if len(part):
            it = "it" if said else what
            said.append(f"{words} {down}{s} {it} in {falls} of {len(part)} units and {up}{s} it in {rises}")
    return (said[0][0].upper() + "; ".join(said)[1:] + ".") if said else ""


def variance(result: Result) -> Iterator[str]:
    yield directions(result.table, "ratio_low", "ratio_high", 1.0, "lower", "the variance of feature maps", "raise")


def fourier(result: Result) -> Iterator[str]:
    rows = result.table[result.table["highest"]]
    yield directions(rows, "change_low", "change_high", 0.0, "weaken", "fine detail", "strengthen")


def cka(result: Result) -> Iterator[str]:
    blocks: dict[str, Any] = result.about.get("block_structure", {})
    found = {name: Mean(each["value"], each["low"], each["high"]) for name, each in blocks.items()}
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
    found = {name: Mean(**each["hit_rate"]) for name, each in indices.items() if each.get("hit_rate")}
    if found:
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
        first, last = (f"{number(row['mean'])} in <code>{escape(row['unit'])}</code>" for row in (own[0], own[-1]))
        yield f"The mean gate of {bold(name)} is {first} and {last}."


def position_similarity(result: Result) -> Iterator[str]:
    said = [
        f"{number(row['value'], 2)} in {bold(row['model'])}"
        for row in records(result.table)
        if row["index"] == "distance"
    ]
    if said:
        yield f"The rank correlation of similarity and distance of two positions is {listed(said)}."


def _points(row: Mapping[str, Any]) -> str:
    """A difference of shares, in points of a hundred."""
    return measured(100 * row["value"], 100 * row["low"], 100 * row["high"], "points")


def lesion(result: Result) -> Iterator[str]:
    rows = records(result.table)
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        most, spared = max(own, key=lambda row: (row["value"], row["rise"])), [r for r in own if not r["low"] > 0]
        change = "without it" if most["change"] == "taken out" else f"with it changed ({escape(most['change'])})"
        yield (
            f"{bold(name)} depends most on <code>{escape(most['part'])}</code>: {change} accuracy falls by "
            f"{_points(most)}; {len(spared)} of {len(own)} changes, one at a time, "
            "cost nothing that could be told from chance."
        )


def stands(what: str) -> Finding:
    """Who keeps the highest accuracy when images are changed, in the mean over all changes."""

    def find(result: Result) -> Iterator[str]:
        yield ranked(
            by_model(result.table[result.table["overall"]]),
            f"{{model}} stands {what} best, with {{}} right in the mean",
            "{model} worst, with {}", f"How well {{models}} stand {what} is too close to tell: {{}} to {{}} are right",
            shares,
        )  # fmt: skip

    return find


def hessian(result: Result) -> Iterator[str]:
    images = result.about.get("options", {}).get("stream", "")
    for measure, what, show in (
        ("positive", "mean positive eigenvalue", measured),
        ("negative", "share of negative eigenvalues", shares),
    ):
        found = by_model(result.table[result.table[measure]].dropna(subset="value"))
        if found:
            yield ranked(
                found, f"On {images} images the {what} is largest in {{model}}, {{}}", "smallest in {model}, {}",
                f"On {images} images the {what} does not tell {{models}} apart: {{}} to {{}}", show,
            )  # fmt: skip


def landscape(result: Result) -> Iterator[str]:
    rings = result.table[result.table["part"] == "ring"]
    ends = {rings["radius"].max(): "Far from", rings["radius"].min(): "Close to"}
    for radius, where in sorted(ends.items()):
        found = by_model(rings[rings["radius"] == radius].dropna(subset="value"))
        if found:
            yield ranked(
                found, f"{where} the trained weights (radius {number(radius)}) the loss of {{model}} "
                "rises most, by {}", "that of {model} least, by {}",
                f"{where} the trained weights (radius {number(radius)}) the loss of {{models}} rises "
                "alike, by {} to {}", measured,
            )  # fmt: skip


def linear_probe(result: Result) -> Iterator[str]:
    """How deep a probe comes within reach of the best one: the first unit at nine tenths of it."""
    rows = records(result.table[result.table["whole"]])
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        best = max(own, key=lambda row: row["value"])
        first = min((row for row in own if row["value"] >= 0.9 * best["value"]), key=lambda row: row["depth"])
        yield (
            f"In {bold(name)} a linear map has {shares(best['value'], best['low'], best['high'])} of new images right "
            f"at best (<code>{escape(best['unit'])}</code>, {escape(best['token'])}), and nine tenths of that from "
            f"<code>{escape(first['unit'])}</code> on, at depth {first['depth']:.2f}."
        )


def erf(result: Result) -> Iterator[str]:
    rows = result.table[result.table["shown"]]
    early = rows.loc[(rows["depth"] - 0.25).abs().groupby(rows["model"], sort=False).idxmin()]
    yield ranked(
        by_model(early), "A quarter of the way in, {model} sees farthest: what a place depends on lies {} pixels away",
        "{model} nearest, {}", "How far {models} see a quarter of the way in is too close to tell: {} to {} pixels",
        measured,
    )  # fmt: skip


def similarity_to(result: Result) -> Iterator[str]:
    rows = result.table[result.table["value"].notna()]
    for name in dict.fromkeys(rows["model"]):
        own = records(rows[rows["model"] == name])
        most, least = max(own, key=lambda row: row["value"]), min(own, key=lambda row: row["value"])
        ends = (
            f"<code>{escape(row['unit'])}</code> (CKA {measured(row['value'], row['low'], row['high'])})"
            for row in (most, least)
        )
        yield f"{bold(name)} is most like {bold(most['reference'])} in {next(ends)} and least in {next(ends)}."


def cue_conflict(result: Result) -> Iterator[str]:
    decided = result.table[result.table["overall"] & result.table["value"].notna()]
    if len(decided):
        yield ranked(
            by_model(decided), "{model} goes by shape and not by texture most often, in {} of its decisions",
            "{model} least often, in {}", "How often {models} go by shape is too close to tell: in {} to {} of cases",
            shares,
        )  # fmt: skip


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
    "corruption": (stands("corruptions"), SHIFTED),
    "band_noise": (stands("noise in bands of frequency"), SHIFTED),
    "adversarial": (stands("attacks"), SHIFTED),
    "frequency_pass": (stands("filtered images"), SHIFTED),
    "occlusion": (stands("masked patches"), SHIFTED),
    "cue_conflict": (cue_conflict, SHIFTED),
    "linear_probe": (linear_probe, UNITS | {"whole", "token", "depth"}),
    "erf": (erf, UNITS | {"shown", "depth"}),
    "similarity_to": (similarity_to, UNITS | {"reference"}),
    "lesion": (lesion, UNITS | {"part", "change", "rise"}),
    "hessian": (hessian, {"positive", "negative", "value", "low", "high"}),
    "landscape": (landscape, {"part", "radius", "value", "low", "high"}),
}
"""What each question comes to, and the columns that takes."""

HEADLINES = (*tuple(FINDINGS)[:7], "lesion", "corruption", "hessian", "landscape")
"""What a page begins with."""


def findings(result: Result) -> list[str]:
    """The sentences of a result; none where it has not the columns they speak of."""
    if result.name not in FINDINGS or result.table.empty:
        return []
    find, needs = FINDINGS[result.name]
    return list(find(result)) if needs | {"model"} <= set(result.table.columns) else []
