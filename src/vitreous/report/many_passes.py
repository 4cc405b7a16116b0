"""What results of analyses come to: a sentence or two each, as HTML, computed from their tables."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.report.comparing import Finding, Mean, bold, by_model, points, ranked, records
from vitreous.report.words import escape, measured, number, shares
from vitreous.results import Result


def lesion(result: Result) -> Iterator[str]:
    rows = records(result.table.dropna(subset="value"))
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        most, spared = (
            max(own, key=lambda row: (row["value"], row["rise"])),
            [r for r in own if not r["low"] > 0],
        )
        change = (
            "without it"
            if most["change"] == "taken out"
            else f"with it changed ({escape(most['change'])})"
        )
        yield (
            f"{bold(name)} depends most on <code>{escape(most['part'])}</code>: {change} accuracy falls by "
            f"{points(most)}; {len(spared)} of {len(own)} changes, one at a time, "
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
    rows = records(result.table[result.table["whole"]].dropna(subset="value"))
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        best = max(own, key=lambda row: row["value"])
        first = min(
            (row for row in own if row["value"] >= 0.9 * best["value"]),
            key=lambda row: row["depth"],
        )
        yield (
            f"In {bold(name)} a linear map has {shares(best['value'], best['low'], best['high'])} of new images right "
            f"at best (<code>{escape(best['unit'])}</code>, {escape(best['token'])}), and nine tenths of that from "
            f"<code>{escape(first['unit'])}</code> on, at depth {first['depth']:.2f}."
        )


def erf(result: Result) -> Iterator[str]:
    rows = result.table[result.table["shown"] & result.table["value"].notna()]
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


def mc_dropout(result: Result) -> Iterator[str]:
    """Better or worse by NLL, which both accuracy and calibration enter."""
    for row in records(result.table[result.table["overall"]]):
        change = Mean(row["nll_change"], row["nll_change_low"], row["nll_change_high"])
        word = (
            "for the better"
            if change.high < 0
            else "for the worse"
            if change.low > 0
            else "not for sure"
        )
        yield (
            f"The mean over {row['passes']} passes with dropout changes the NLL of {bold(row['model'])} by "
            f"{measured(*change)}, {word}, and its accuracy by {points(row, 'change')}."
        )


def ensemble(result: Result) -> Iterator[str]:
    """Beside the best member, by NLL."""
    rows = records(result.table[result.table["single"]])
    whole = next(row for row in rows if row["part"] == "ensemble")
    members = [row for row in rows if row["part"] == "member"]
    best = min(members, key=lambda row: row["nll"])
    change = Mean(best["nll_change"], best["nll_change_low"], best["nll_change_high"])
    word = (
        "less than"
        if change.low > 0
        else "more than"
        if change.high < 0
        else "too close to tell from that of"
    )
    yield (
        f"The mean of {len(members)} models has {shares(whole['value'], whole['low'], whole['high'])} right and an NLL "
        f"of {measured(whole['nll'], whole['nll_low'], whole['nll_high'])}, {word} the best of them alone, "
        f"{bold(best['model'])}, with {measured(best['nll'], best['nll_low'], best['nll_high'])}."
    )
    pairs = result.table[result.table["pair"] & (result.table["model"] != result.table["other"])]
    if pairs.empty:
        return
    most = max(records(pairs), key=lambda row: row["disagreement"])
    ends = shares(most["disagreement"], most["disagreement_low"], most["disagreement_high"])
    yield f"{bold(most['model'])} and {bold(most['other'])} differ most often, on {ends} of the images."
