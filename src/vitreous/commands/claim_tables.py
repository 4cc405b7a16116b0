"""What `vitreous claims` prints: the list, one claim in full, and verdicts. Without torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc
from math import isfinite

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vitreous import claims
from vitreous.claims.claim import Claim, Paper, Part, Verdict, find
from vitreous.claims.conflicts import concerning
from vitreous.claims.evidence import Look, Need, Scale
from vitreous.claims.together import summary
from vitreous.errors import UnknownName

SIGNS = {"supported": ("✓", "green"), "refuted": ("✗", "red"), "inconclusive": ("?", "yellow")}
SCALES: dict[Scale, str] = {
    "hundred": "with a hundred classes", "ten": "with ten classes", "sanity": "in the embedded world",
}  # fmt: skip


def list_claims(
    paper: str | None = None, study: str | None = None, console: Console | None = None
) -> None:
    """One line for each claim: of a paper, or of what a study is to decide, if asked for."""
    chosen = choose(paper, study)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, ratio in (("claim", None), ("", 1), ("study", None), ("small", None)):
        table.add_column(name, ratio=ratio, no_wrap=ratio is None)
    heading: Paper | None = None
    for claim in chosen:
        if claim.paper != heading:
            heading = claim.paper
            table.add_row("", Text(f"{heading.authors} ({heading.year}), {heading.title}", "bold"))
        table.add_row(
            Text(claim.id, "cyan"),
            _with_marks(claim),
            claim.study,
            claim.task or "✓" * claim.sanity,
        )
    console = console or Console()
    console.print(table)
    small = sum(claim.sanity for claim in chosen)
    console.print(
        f"{len(chosen)} claim{'s' * (len(chosen) != 1)}; {small} with a small version, on a task of the embedded world "
        "or by computing alone. `vitreous claims show ID` says how one is judged.",
        highlight=False, markup=False,
    )  # fmt: skip


def choose(paper: str | None = None, study: str | None = None) -> list[Claim]:
    """The claims of a paper (`VIT`, `dosovitskiy_2021`) and of a study."""
    every = claims.every()
    papers = {claim.paper.key: claim.paper for claim in every}
    files = dict(zip(claims.PAPERS, papers, strict=True))
    if paper is not None:
        key = files.get(paper.lower(), paper.upper())
        if key not in papers:
            raise UnknownName("paper", paper, [*papers, *files], f"Papers are {', '.join(papers)}.")
        every = [claim for claim in every if claim.paper.key == key]
    if study is not None:
        about = {claim.id for claim in claims.of_study(study)}
        every = [claim for claim in every if claim.id in about]
    return every


def _with_marks(claim: Claim) -> Text:
    marks = [
        *(["withdrawn"] if claim.withdrawn else []),
        *(["at large scale"] if claim.large else []),
    ]
    return Text.assemble(claim.sentence, (f" ({', '.join(marks)})" if marks else "", "dim"))


def show_claim(id: str, console: Console | None = None) -> None:
    """All that is known of one claim, and how it is judged."""
    claim = find(claims.every(), id)
    console = console or Console()
    paper = claim.paper
    console.print(Text.assemble((claim.id, "bold cyan"), "  ", (claim.sentence, "bold")))
    told = Table(box=None, show_header=False, pad_edge=False)
    told.add_column(style="dim", no_wrap=True)
    told.add_column()
    told.add_row(
        "where",
        Text(f"{paper.authors} ({paper.year}), {paper.title}, arXiv {paper.arxiv}: {claim.place}"),
    )
    told.add_row("reported", Text(claim.reported))
    for words in _criteria(claim):
        told.add_row("supported if", Text(words))
    told.add_row("needs", Text("\n".join(map(_told, claim.needs()))))
    told.add_row("study", Text(f"vitreous study {claim.study}"))
    for name, text in _remarks(claim).items():
        told.add_row(name, Text(text))
    console.print(Padding(told, (0, 0, 0, 2)))


def _told(need: Need) -> str:
    return "exact properties" if need.result == "identities" else str(need)


def _criteria(claim: Claim) -> list[str]:
    """Thresholds in words, once for scales that agree."""
    found: dict[str, list[Scale]] = {}
    for scale in SCALES:
        if scale != "sanity" or claim.sanity:
            parts = [part for part in claim.check(Look(scale=scale)) if part.threshold is not None]
            found.setdefault("\n".join(f"{part.says}: {asked(part)}" for part in parts), []).append(
                scale
            )
    if len(found) == 1:
        return list(found)
    return [
        f"{' and '.join(SCALES[each] for each in scales)}:\n{text}"
        for text, scales in found.items()
    ]


def _remarks(claim: Claim) -> dict[str, str]:
    said = {"in detail": _flowing(claim.check.__doc__ or "")}
    said["trainings"] = f"at least {claim.seeds} of each model" if claim.seeds > 1 else ""
    said["scale"] = (
        "the paper speaks of ImageNet or more; small data have an analogue of it only"
        if claim.large
        else ""
    )
    said["withdrawn"] = claim.withdrawn
    found = concerning(claim.id)
    said["disputed"] = "\n".join(
        f"{each.id}  {each.sentence} Here: {each.treated}" for each in found
    )
    return {name: text for name, text in said.items() if text}


def _flowing(text: str) -> str:
    """A docstring, its lines joined to paragraphs; what is indented stays as it is."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", cleandoc(text))


def asked(part: Part) -> str:
    """A threshold in words."""
    paper = f" (paper: {number(part.paper)})" if part.paper is not None else ""
    return f"{part.asks} {number(part.threshold)}{paper}"


def number(value: float | None) -> str:
    """Three digits, or all before the point."""
    if value is None or not isfinite(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_verdicts(verdicts: Sequence[Verdict], console: Console | None = None) -> None:
    """A row for each claim, and a paragraph on all of them."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("claim", no_wrap=True)
    table.add_column("", ratio=1)
    table.add_column("verdict", no_wrap=True)
    for name in ("effect", "asked for", "paper", "trainings"):
        table.add_column(name, justify="right", no_wrap=True)
    for verdict in verdicts:
        table.add_row(*_row(verdict))
    console = console or Console()
    console.print(table)
    console.print()
    console.print(summary(verdicts), highlight=False, markup=False)


def _row(verdict: Verdict) -> Iterable[Text]:
    symbol, colour = SIGNS[verdict.outcome]
    part = verdict.deciding
    known = part is not None and isfinite(part.effect)
    said = Text(verdict.claim.sentence)
    if part is not None:
        said.append(f"\n{part.says}{_others(verdict)}", "dim")
    for note in (*verdict.notes, *([_missing(verdict)] if verdict.missing else [])):
        said.append(f"\n{note}", "yellow")
    if verdict.claim.withdrawn:
        said.append(f"\nWithdrawn: {verdict.claim.withdrawn}", "red")
    yield Text(verdict.claim.id, "cyan")
    yield said
    yield Text(f"{symbol} {verdict.outcome}", colour)
    yield Text(
        f"{number(part.effect)} [{number(part.low)}, {number(part.high)}]" if part and known else ""
    )
    yield Text(f"{_sign(part)} {number(part.threshold)}" if part else "")
    yield Text(number(part.paper) if part else "")
    yield Text(str(verdict.seeds or ""))


def _sign(part: Part) -> str:
    return {
        ("at least", False): "≥",
        ("at least", True): ">",
        ("at most", False): "≤",
        ("at most", True): "<",
    }[part.side, part.strict]


def _others(verdict: Verdict) -> str:
    """How many more effects stand behind it, and how they came out."""
    judged = [part.outcome for part in verdict.parts if part.outcome is not None]
    met = sum(outcome == "supported" for outcome in judged)
    return f" ({met} of {len(judged)} parts hold)" if len(judged) > 1 else ""


def _missing(verdict: Verdict) -> str:
    first, *more = map(_told, verdict.missing)
    return f"Missing: {first}{f' and {len(more)} more' if more else ''}. {verdict.command} measures it."
