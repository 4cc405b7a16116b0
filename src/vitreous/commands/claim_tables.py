"""The output of `vitreous claims list` and `vitreous claims show`. Nothing here needs torch."""

from __future__ import annotations

import re
from inspect import cleandoc
from math import isfinite

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vitreous import claims
from vitreous.claims.book import Claim, Paper, find_claim
from vitreous.claims.conflicts import concerning
from vitreous.claims.effects import Effect
from vitreous.claims.evidence import Need, Query, Scale
from vitreous.claims.power import assumed_truth, detectable_effect, largest_spread, power
from vitreous.claims.verdicts import ENOUGH_SEEDS
from vitreous.errors import UnknownName

SCALES: dict[Scale, str] = {
    "hundred": "with a hundred classes",
    "ten": "with ten classes",
    "sanity": "on synthetic images",
}


def print_claims(
    paper: str | None = None, study: str | None = None, console: Console | None = None
) -> None:
    """Print one line for each claim, of a paper or of a study if given."""
    chosen = select_claims(paper, study)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, ratio in (("claim", None), ("", 1), ("study", None), ("small", None)):
        table.add_column(name, ratio=ratio, no_wrap=ratio is None)
    heading: Paper | None = None
    for claim in chosen:
        if claim.paper != heading:
            heading = claim.paper
            table.add_row("", Text(f"{heading.authors} ({heading.year}), {heading.title}", "bold"))
        small = claim.task or "✓" * claim.sanity
        table.add_row(Text(claim.id, "cyan"), _sentence_with_remarks(claim), claim.study, small)
    console = console or Console()
    console.print(table)
    count = sum(claim.sanity for claim in chosen)
    console.print(
        f"{len(chosen)} claim{'s' * (len(chosen) != 1)}; {count} with a small version, on "
        "synthetic images or by computing alone. `vitreous claims show ID` says how one is "
        "judged.",
        highlight=False,
        markup=False,
    )


def select_claims(paper: str | None = None, study: str | None = None) -> list[Claim]:
    """Return the claims of a paper (`VIT` or `dosovitskiy_2021`) and of a study."""
    selected = claims.every_claim()
    papers = {claim.paper.key: claim.paper for claim in selected}
    files = dict(zip(claims.PAPERS, papers, strict=False))  # books of other packages follow
    if paper is not None:
        key = files.get(paper.lower(), paper.upper())
        if key not in papers:
            raise UnknownName("paper", paper, [*papers, *files], f"Papers are {', '.join(papers)}.")
        selected = [claim for claim in selected if claim.paper.key == key]
    if study is not None:
        ids = {claim.id for claim in claims.claims_of_study(study)}
        selected = [claim for claim in selected if claim.id in ids]
    return selected


def _sentence_with_remarks(claim: Claim) -> Text:
    remarks = []
    if claim.withdrawn:
        remarks.append("withdrawn")
    if claim.large:
        remarks.append("at large scale")
    return Text.assemble(claim.sentence, (f" ({', '.join(remarks)})" if remarks else "", "dim"))


def print_claim(id: str, console: Console | None = None) -> None:
    """Print everything about one claim, and how it is judged."""
    claim = find_claim(claims.every_claim(), id)
    paper = claim.paper
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    number = f", arXiv {paper.arxiv}" if paper.arxiv else ""
    source = f"{paper.authors} ({paper.year}), {paper.title}{number}: {claim.place}"
    table.add_row("where", Text(source))
    table.add_row("reported", Text(claim.reported))
    if claim.value is not None:
        where = ", on data of many classes" if claim.many_classes else ""
        table.add_row("paper's value", Text(f"{claim.value:g} ({claim.unit}){where}"))
    for criterion in _criteria(claim):
        table.add_row("reproduced if", Text(criterion))
    if power := _power(claim):
        table.add_row("power", Text(power))
    table.add_row("needs", Text("\n".join(map(need_text, claim.needs()))))
    table.add_row("study", Text(claim.command))
    for name, text in _remarks(claim).items():
        table.add_row(name, Text(text))
    console = console or Console()
    console.print(Text.assemble((claim.id, "bold cyan"), "  ", (claim.sentence, "bold")))
    console.print(Padding(table, (0, 0, 0, 2)))


def need_text(need: Need) -> str:
    """Return what a claim needs, as `accuracy of vit pool=gap`."""
    return "exact properties" if need.result == "identities" else str(need)


def _criteria(claim: Claim) -> list[str]:
    """Return the criteria of a claim's effects, one text for all scales that agree."""
    scales_by_text: dict[str, list[Scale]] = {}
    for scale in SCALES:
        if scale == "sanity" and not claim.sanity:
            continue
        effects = [e for e in claim.evaluate(Query(scale=scale)) if e.direction is not None]
        supporting = (f"supported by {criterion_text(each)}" for each in effects[1:])
        text = "\n".join([*map(criterion_text, effects[:1]), *supporting])
        scales_by_text.setdefault(text, []).append(scale)
    if len(scales_by_text) == 1:
        return list(scales_by_text)
    return [
        f"{' and '.join(SCALES[scale] for scale in scales)}:\n{text}"
        for text, scales in scales_by_text.items()
    ]


def criterion_text(effect: Effect) -> str:
    """Return when an effect is reproduced, as `error of ...: more than 0 for certain (paper:
    16.2)`."""
    paper = f" (paper: {short_number(effect.paper)})" if effect.paper is not None else ""
    return f"{effect.label}: {effect.criterion}{paper}"


def _power(claim: Claim) -> str:
    """Return the largest standard deviation between trainings at which three of them have 80 %
    power; "" for exact claims and for tests over units instead of trainings."""
    effect = next(e for e in claim.evaluate(Query(scale="ten")) if e.direction is not None)
    few = effect.quantity is not None and effect.quantity.few is not None
    if few or all(need.result == "identities" for need in claim.needs()):
        return ""
    truth = assumed_truth(effect)
    if truth is None:
        least = detectable_effect(ENOUGH_SEEDS, 1.0)
        return (
            f"with {ENOUGH_SEEDS} trainings 80 % to be certain of an effect {least:.2g} times as "
            "large as the standard deviation between trainings"
        )

    def certain(spread: float) -> float:
        return power(effect, truth, ENOUGH_SEEDS, spread, certain=True)

    size = effect.bound if effect.direction == "within" else abs(effect.distance(truth))
    return (
        f"if {short_number(truth) or '0'} is true, {ENOUGH_SEEDS} trainings have 80 % while their "
        f"standard deviation is at most {short_number(largest_spread(certain, size or 1.0))}"
        f"{' (of the logarithm)' if effect.ratio else ''}"
    )


def _remarks(claim: Claim) -> dict[str, str]:
    """Return the rows of the table that not every claim has, by heading."""
    remarks = {"in detail": _join_lines(claim.check.__doc__ or "")}
    remarks["only if"] = "\n".join(map(str, claim.requires))
    if any(claim.has_control(scale) for scale in SCALES):
        remarks["control"] = "compared with the same networks before training"
    if claim.large:
        remarks["scale"] = (
            "the paper speaks of ImageNet or more; small data have an analogue of it only"
        )
    remarks["withdrawn"] = claim.withdrawn
    remarks["disputed"] = "\n".join(
        f"{each.sentence} Here: {each.treated}" for each in concerning(claim.id)
    )
    return {name: text for name, text in remarks.items() if text}


def _join_lines(docstring: str) -> str:
    """Join the lines of each paragraph; indented lines stay as they are."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", cleandoc(docstring))


def short_number(value: float | None) -> str:
    """Format with three significant digits, or all before the point; "" if there is no value."""
    if value is None or not isfinite(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
