"""Sentences that compare models, for reports: means by model, and which models are tied.

Two models measured on the same images differ if the interval of their paired difference excludes
zero; results without replicates, only if their intervals do not overlap. Otherwise they are tied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

from vitreous.results.intervals import Interval, change_of_sums, from_replicates
from vitreous.results.words import escape, format_estimate, format_number, join_words

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from vitreous.results.result import Result

KIND_PLURALS = {
    "attention": "attention",
    "conv": "convolutions",
    "mlp": "MLPs",
    "token-mlp": "token MLPs",
    "mixer": "global token mixers",
}
"""Kinds of units as the subject of a sentence."""
COUNTS = {2: "The two", 3: "All three", 4: "All four", 5: "All five", 6: "All six"}
NUMBER = re.compile(r"\[([^|\]]*)\|([^|\]]*)\]")
"""A singular and a plural in a clause, as `[has|have]`."""
MOST_LISTED = 4
"""Maximum number of models that a sentence lists with their numbers."""
MOST_TIED = 3
"""Maximum number of models named as tied with another; of more a sentence has the number."""


def bold(name: object) -> str:
    """The name in bold, escaped for HTML."""
    return f"<b>{escape(name)}</b>"


def code(name: object) -> str:
    """The name of a unit or option in a fixed-width font, escaped for HTML."""
    return f"<code>{escape(name)}</code>"


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as dicts."""
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def mean_by_model(
    rows: pd.DataFrame, columns: tuple[str, str, str] = ("value", "low", "high")
) -> dict[str, Interval]:
    """The mean over each model's rows of a value and the ends of its interval.

    The interval of the mean over units is the mean of their intervals. It is exact if the units are
    fully correlated over resamples of the images, and too wide otherwise, never too narrow.
    """
    means = rows.groupby("model", sort=False, observed=True)[list(columns)].mean()
    return {
        str(model): Interval(*map(float, row))
        for model, row in zip(means.index, means.to_numpy(), strict=True)
    }


def disjoint(one: Interval, other: Interval) -> bool:
    """Whether two intervals do not overlap; False if an end is NaN."""
    return bool(one.low > other.high or other.low > one.high)


@dataclass(frozen=True)
class Paired:
    """Means of several models on the same resamples of the same images.

    Parameters
    ----------
    draws
        The mean of each model over rows, as measured and on each resample (1 + replicates,).
    count
        Number of images.
    share
        Whether the mean is a share of images, such as those classified correctly. Then the interval
        depends on the number of images that change (see `paired_change`).
    """

    draws: Mapping[str, np.ndarray]
    count: int
    share: bool = False

    def differ(self, one: str, other: str) -> bool:
        """Whether the interval of the difference excludes zero."""
        difference = self.draws[one] - self.draws[other]
        value, drawn = float(difference[0]), difference[1:]
        if self.share:
            squares = self.count * (self.count * float(drawn.var()) + value**2)
            interval = change_of_sums(self.count * value, squares, self.count)
        else:
            interval = from_replicates(value, drawn, self.count)
        return bool(interval.low > 0 or interval.high < 0)


def pair_models(
    result: Result, rows: pd.DataFrame, column: str = "value", *, share: bool = False
) -> Paired | None:
    """The mean of each model over some rows of a result, on common resamples of the images.

    None if the column has no replicates. Models with a row without replicates are left out.
    """
    if column not in result.replicates:
        return None
    rows = rows[rows[column].notna()]
    places = result.table.index.get_indexer(rows.index)
    models = result.table["model"].to_numpy()[places]
    draws = {
        str(model): result.draws(column, places[models == model]).mean(1)
        for model in dict.fromkeys(models)
    }
    known = {model: drawn for model, drawn in draws.items() if isfinite(drawn.sum())}
    counts = rows.loc[rows["model"].isin(list(known)), "n"]
    return Paired(known, int(counts.min()) if known else 0, share)


def rank_models(
    means: Mapping[str, Interval],
    first: str,
    last: str,
    tied: str,
    show: Callable[[float, float, float], str] = format_estimate,
    *,
    alone: str = "{model}: {}",
    paired: Paired | None = None,
    name: Callable[[str], str] = bold,
) -> str:
    """A sentence on which model has the highest and which the lowest value, or that they are tied.

    Parameters
    ----------
    means
        Value and interval of each model; models whose value is not finite are left out.
    first, last
        Clauses on the model with the highest and the lowest value. `{model}` is its name, `{}` its
        value. If several are tied, these are their names and values, and of `[has|have]` the second
        word is used.
    tied
        The clause used if first and last are tied. `{models}` stands for "All three",
        the first `{}` for the lowest and the second for the highest value.
    show
        Turns value, low and high into text.
    alone
        The clause used if there is only one model.
    paired
        The models on the same resamples, to judge differences. Without it models are tied if
        their intervals overlap.
    name
        Turns the name of a model into HTML.

    Returns
    -------
    str
        HTML; empty if no model has a value.
    """
    known = {model: mean for model, mean in means.items() if isfinite(mean.mean)}
    if not known:
        return ""
    order = sorted(known, key=lambda model: -known[model].mean)
    top, bottom = order[0], order[-1]
    highest, lowest = show(*known[top]), show(*known[bottom])
    if len(order) == 1:
        return alone.format(highest, model=name(top)) + "."

    certain = bottom not in tied_with(top, known, paired)
    alike = _look_alike(known[top], known[bottom], show)
    if alike or not certain:
        why = "they differ by less than these digits show"
        if not certain:
            why = _why_tied(known[top], known[bottom], paired)
        if alike:
            widest = max((top, bottom), key=lambda model: known[model].high - known[model].low)
            lowest = highest = show(*known[widest])
        models = COUNTS.get(len(known), f"All {len(known)}")
        text = tied.format(lowest, highest, models=models)
        return f"{text.replace(f'{lowest} to {lowest}', lowest)} ({why})."

    highs, lows = (
        [model for model in order if model in tied_with(end, known, paired)]
        for end in (top, bottom)
    )
    both = [model for model in highs if model in lows]
    highs, lows = ([model for model in some if model not in both] for some in (highs, lows))
    clauses = [
        clause(text, [*map(name, group)], [show(*known[model]) for model in group])
        for text, group in ((first, highs), (last, lows[::-1]))
    ]
    between = _between(*([*map(name, some)] for some in (both, highs, lows)))
    return f"{between}{'; '.join(clauses)}."


def tied_with(model: str, means: Mapping[str, Interval], paired: Paired | None = None) -> list[str]:
    """The model, and all others whose difference from it is not certain."""

    def differ(other: str) -> bool:
        if paired is not None and model in paired.draws and other in paired.draws:
            return paired.differ(model, other)
        return disjoint(means[model], means[other])

    return [model, *(other for other in means if other != model and not differ(other))]


def name_tied(names: Sequence[str]) -> str:
    """Tied names as a subject, `a, b and c`; of many the first and the number of others."""
    if len(names) > MOST_TIED + 1:
        return f"{names[0]} and {len(names) - 1} others"
    return join_words(names)


def clause(text: str, models: Sequence[str], values: Sequence[str]) -> str:
    """A clause on one model or on several that are tied, and their values in the same order.

    `text` is written as the clauses of `rank_models`, and the names are HTML.
    """
    text = NUMBER.sub(r"\1" if len(models) == 1 else r"\2", text)
    different = list(dict.fromkeys(values))
    if len(different) == 1 or len(models) <= MOST_TIED + 1:
        value = join_words(different if len(different) == 1 else values)
    else:
        value = f"{values[0]} to {values[-1]}"
    return text.format(value, model=name_tied(models))


def _between(both: Sequence[str], highs: Sequence[str], lows: Sequence[str]) -> str:
    """A sentence on models that are tied with the highest and with the lowest."""
    if not both:
        return ""
    verb = "is" if len(both) == 1 else "are"
    return f"{name_tied(both)} {verb} tied with {join_words([highs[0], lows[-1]])}. "


def _why_tied(one: Interval, other: Interval, paired: Paired | None) -> str:
    if not all(map(isfinite, (*one, *other))):
        return "too few images for intervals"
    return "their intervals overlap" if paired is None else "no certain difference"


def _look_alike(one: Interval, other: Interval, show: Callable[[float, float, float], str]) -> bool:
    """Whether two values are the same in a sentence, where "from a to a" would say nothing."""
    if format_number(one.mean) == format_number(other.mean):
        return True
    return show(one.mean, nan, nan) == show(other.mean, nan, nan)


def pair_rows(result: Result, rows: pd.DataFrame, names: Sequence[str]) -> Paired | None:
    """Rows of a result, such as units, on common resamples of the images, by their names."""
    if "value" not in result.replicates or "n" not in rows:
        return None
    draws = result.draws("value", result.table.index.get_indexer(rows.index)).T
    known = {name: drawn for name, drawn in zip(names, draws, strict=True) if isfinite(drawn.sum())}
    return Paired(known, int(rows["n"].min()))


def list_by_model(values: Mapping[str, str], order: Mapping[str, float]) -> str:
    """What each model has, `1 in a and 2 in b`; of many models the smallest and the largest.

    `order` has the number behind each text.
    """
    if len(values) > MOST_LISTED:
        ends = sorted(order, key=lambda model: order[model])
        low, high = ends[0], ends[-1]
        return f"from {values[low]} in {bold(low)} to {values[high]} in {bold(high)}"
    return join_words([f"{text} in {bold(model)}" for model, text in values.items()])


def count_changes(
    rows: pd.DataFrame, low: str, high: str, neutral: float, lower: str, what: str, raise_: str
) -> str:
    """A sentence on how many units of each kind lower something, and how many raise it.

    A unit counts if the interval in the columns `low` and `high` excludes `neutral`. `lower`
    and `raise_` are the verbs, `what` is their object.
    """
    known = rows[rows[low].notna()]
    clauses: list[str] = []
    for kind, subject in KIND_PLURALS.items():
        units = known[known["kind"] == kind]
        if units.empty:
            continue
        falls, rises = int((units[high] < neutral).sum()), int((units[low] > neutral).sum())
        s = "s" if kind == "attention" else ""
        it = "it" if clauses else what
        rest = len(units) - falls - rises
        clauses.append(
            f"{subject} {lower}{s} {it} in {falls} of {len(units)} units and "
            f"{raise_}{s} it in {rises}" + (f" ({rest} uncertain)" if rest else "")
        )
    if not clauses:
        return ""
    text = "; ".join(clauses)
    return text[0].upper() + text[1:] + "."


def format_points(row: Mapping[str, Any], column: str = "value") -> str:
    """A difference of two shares with its interval, in percentage points."""
    prefix = "" if column == "value" else f"{column}_"
    value, low, high = row[column], row[f"{prefix}low"], row[f"{prefix}high"]
    return format_estimate(100 * value, 100 * low, 100 * high, "points")
