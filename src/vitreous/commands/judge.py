"""What `vitreous claims judge` does: judge saved results, print verdicts, write a page or table.

Nothing here needs torch.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from math import isfinite, isnan
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vitreous import claims
from vitreous.claims.claim import Verdict, find, judge
from vitreous.claims.facts import parse_roles
from vitreous.claims.reading import judged, load
from vitreous.claims.together import summary
from vitreous.commands.claim_tables import need_text, short_number
from vitreous.errors import VitreousError
from vitreous.measure.inspection import Inspection
from vitreous.report import check_report_path
from vitreous.report.effect import threshold_sign
from vitreous.report.guard import Guard
from vitreous.report.judgement import Judgement, warnings
from vitreous.report.verdicts import SIGNS
from vitreous.storage.atomic_files import explain_write_errors

COLOURS = {"supported": "green", "refuted": "red", "inconclusive": "yellow"}
FIELDS = (
    "claim", "paper", "verdict", "sentence", "part", "says", "effect", "low", "high", "side",
    "threshold", "reported", "trainings", "so", "data", "scale", "missing", "notes",
)  # fmt: skip
"""Columns of the CSV table; a row is one part of a claim."""


def judge_folder(
    folder: Path,
    only: str | None,
    roles: Sequence[str],
    out: Path | None,
    table: Path | None,
    console: Console,
) -> None:
    """Judge the results saved in a folder, print the verdicts and write what is asked for.

    Parameters
    ----------
    folder
        Of a study or of an inspection.
    only
        Ids of claims, separated by commas (default: all).
    roles
        What models are, as `NAME=FACTS`.
    out, table
        Where to write the page and the CSV table, if at all.
    console
        Where to print.
    """
    if out is not None:
        check_report_path(out)
    every = claims.every()
    wanted = every if only is None else [find(every, id) for id in parse_ids(only)]
    evidence = load(folder, parse_roles(roles))
    for sentence in warnings(evidence.not_judged):
        console.print(sentence, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if not evidence.exhibits:
        why = "no model in it has been measured yet; run the study again, and it resumes"
        why = "give it a trained model" if evidence.not_judged else why
        raise VitreousError(f"There is nothing to judge in {str(folder)!r}: {why}.")
    verdicts = judge(evidence, wanted)
    guard = Guard()
    note_failures(verdicts, guard)
    written = []
    if table is not None:
        with explain_write_errors(table):
            table.parent.mkdir(parents=True, exist_ok=True)
            table.write_text(verdicts_csv(verdicts), encoding="utf-8")
        written.append(table)
    what = "The table on the terminal"
    guard.run(what, lambda: print_verdicts(verdicts, console), lambda _: None)
    if out is not None:
        from vitreous.report.page import write  # charts come with it, which a table does not need

        judgement = Judgement(verdicts, evidence.exhibits)
        written.insert(0, write(Inspection({}), out, judgement=judgement, guard=guard))
    if written:
        console.print(f"Wrote {', '.join(map(str, written))}", highlight=False, soft_wrap=True)
    guard.check()


def note_failures(verdicts: Sequence[Verdict], guard: Guard) -> None:
    """Add the claims whose check failed to what could not be rendered."""
    for verdict in verdicts:
        if verdict.failed:
            guard.failures[f"The verdict on {verdict.claim.id}"] = verdict.failed


def parse_ids(text: str) -> list[str]:
    """Return the ids in `HDV-26,slc-03`, in capitals and each once."""
    ids = list(dict.fromkeys(id.strip().upper() for id in text.split(",") if id.strip()))
    if not ids:
        raise VitreousError(f"--only takes ids of claims, for example HDV-26,SLC-03, not {text!r}.")
    return ids


def judge_inspection(inspection: Inspection, roles: Mapping[str, str]) -> Judgement | None:
    """Judge all claims on an inspection; None if none of them could be judged."""
    evidence = judged(inspection, roles)
    judgement = Judgement(judge(evidence, claims.every()), evidence.exhibits, inspected=True)
    return judgement if judgement.measured else None


def print_verdicts(verdicts: Sequence[Verdict], console: Console | None = None) -> None:
    """Print a table with a row for each claim, and a paragraph on all of them."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("claim", no_wrap=True)
    table.add_column("", ratio=1)
    table.add_column("verdict", no_wrap=True)
    for name in ("effect", "threshold", "paper", "trainings"):
        table.add_column(name, justify="right", no_wrap=True)
    for verdict in verdicts:
        table.add_row(*_cells(verdict))
    console = console or Console()
    console.print(table)
    console.print()
    console.print(summary(verdicts), highlight=False, markup=False)


def _cells(verdict: Verdict) -> Iterable[Text]:
    """Yield the cells of a claim's row."""
    part, claim = verdict.deciding, verdict.claim
    sentence = Text(claim.sentence)
    if part is not None:
        judged_parts = [each.outcome for each in verdict.parts if each.outcome is not None]
        held = f" ({judged_parts.count('supported')} of {len(judged_parts)} parts hold)"
        sentence.append(f"\n{part.says}{held if len(judged_parts) > 1 else ''}", "dim")
    for note in verdict.notes:
        sentence.append(f"\n{note}", "yellow")
    if verdict.missing:
        first, *others = map(need_text, verdict.missing)
        more = f" and {len(others)} more" if others else ""
        sentence.append(f"\nMissing: {first}{more}. {verdict.command} measures it.", "yellow")
    if claim.withdrawn:
        sentence.append(f"\nWithdrawn: {claim.withdrawn}", "red")
    yield Text(claim.id, "cyan")
    yield sentence
    yield Text(f"{SIGNS[verdict.outcome]} {verdict.outcome}", COLOURS[verdict.outcome])
    effect = threshold = paper = ""
    if part is not None:
        threshold = f"{threshold_sign(part)} {short_number(part.threshold)}"
        paper = short_number(part.paper)
        if isfinite(part.effect):
            interval = f"[{short_number(part.low)}, {short_number(part.high)}]"
            effect = f"{short_number(part.effect)} {interval}"
    yield Text(effect)
    yield Text(threshold)
    yield Text(paper)
    yield Text(str(verdict.seeds or ""))


def verdicts_csv(verdicts: Sequence[Verdict]) -> str:
    """Return all parts of all claims as CSV, numbers with all their digits."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    for verdict in verdicts:
        claim = verdict.claim
        source = f"{claim.paper.authors} ({claim.paper.year})"
        missing, notes = "; ".join(map(str, verdict.missing)), "; ".join(verdict.notes)
        for number, part in enumerate(verdict.parts, 1):
            side = threshold_sign(part) if part.threshold is not None else ""
            effects = (part.effect, part.low, part.high)
            writer.writerow([
                claim.id, source, verdict.outcome, claim.sentence, number, part.says,
                *(None if isnan(value) else value for value in effects),
                side, part.threshold, part.paper, part.seeds, part.outcome or "noted",
                verdict.data, verdict.scale, missing, notes,
            ])  # fmt: skip
    return text.getvalue()
