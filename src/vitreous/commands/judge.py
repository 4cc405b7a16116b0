"""What `vitreous claims judge` does: judge stored results, print the verdicts, write a page or a table of them.

Nothing here needs torch.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console

from vitreous import claims
from vitreous.claims.claim import Verdict, find, judge
from vitreous.claims.evidence import Evidence
from vitreous.claims.facts import parse_roles
from vitreous.claims.reading import judged, load
from vitreous.commands.claim_tables import print_verdicts
from vitreous.errors import VitreousError
from vitreous.measure.inspection import Inspection
from vitreous.report.guard import Guard
from vitreous.report.verdicts import Judgement, warnings
from vitreous.storage.atomic_files import explain_write_errors

FIELDS = (
    "claim", "paper", "verdict", "sentence", "part", "says", "effect", "low", "high", "side", "threshold", "reported",
    "trainings", "so", "data", "scale", "missing", "notes",
)  # fmt: skip
"""Columns of the table; a row is a part of a claim."""


def judge_folder(
    folder: Path,
    only: str | None,
    roles: Sequence[str],
    out: Path | None,
    table: Path | None,
    console: Console,
) -> None:
    """Judge what lies in a folder; `only` is a list of ids."""
    if out is not None:
        from vitreous.report import check_ending
        from vitreous.report.page import write

        check_ending(out)
    wanted = claims.every() if only is None else [find(claims.every(), id) for id in named(only)]
    evidence = load(folder, parse_roles(roles))
    for sentence in warnings(evidence.not_judged):
        console.print(sentence, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if not evidence.exhibits and evidence.not_judged:
        raise VitreousError(
            f"There is nothing to judge in {str(folder)!r}: give it a trained model."
        )
    if not evidence.exhibits:
        raise VitreousError(
            f"There is nothing to judge in {str(folder)!r}: no model in it has been measured yet; run the study "
            "again, which goes on where it was stopped."
        )
    verdicts = judge(evidence, wanted)
    guard = Guard()
    note_failures(verdicts, guard)
    wrote = []
    if table is not None:
        with explain_write_errors(table):
            table.parent.mkdir(parents=True, exist_ok=True)
            table.write_text(rows(verdicts), encoding="utf-8")
        wrote.append(table)
    guard.run(
        "The table on the terminal", lambda: print_verdicts(verdicts, console), lambda _: None
    )
    if out is not None:
        judged = Judgement(verdicts, evidence.exhibits)
        wrote.insert(0, write(Inspection({}), out, judgement=judged, guard=guard))
    if wrote:
        console.print(f"Wrote {', '.join(map(str, wrote))}", highlight=False, soft_wrap=True)
    guard.check()


def note_failures(verdicts: Sequence[Verdict], guard: Guard) -> None:
    """Claims whose check failed, beside what else could not be rendered."""
    guard.failures |= {
        f"The verdict on {each.claim.id}": each.failed for each in verdicts if each.failed
    }


def named(only: str) -> list[str]:
    """`HDV-26,SLC-03`, once each."""
    found = list(dict.fromkeys(id.strip().upper() for id in only.split(",") if id.strip()))
    if not found:
        raise VitreousError(f"--only takes ids of claims, HDV-26,SLC-03 for one, and not {only!r}.")
    return found


def judgement(inspection: Inspection, roles: Mapping[str, str]) -> Judgement | None:
    """Of an inspection; none where nothing could be judged."""
    evidence: Evidence = judged(inspection, roles)
    found = Judgement(judge(evidence, claims.every()), evidence.exhibits, inspected=True)
    return found if found.measured else None


def rows(verdicts: Sequence[Verdict]) -> str:
    """All parts of all claims as CSV; numbers with all their digits."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    for verdict in verdicts:
        claim = verdict.claim
        head = (
            claim.id,
            f"{claim.paper.authors} ({claim.paper.year})",
            verdict.outcome,
            claim.sentence,
        )
        last = (
            verdict.data,
            verdict.scale,
            "; ".join(map(str, verdict.missing)),
            "; ".join(verdict.notes),
        )
        for number, part in enumerate(verdict.parts, 1):
            side = (
                {"at least": "≥>", "at most": "≤<"}[part.side][part.strict]
                if part.threshold is not None
                else ""
            )
            found = [
                None if value != value else value for value in (part.effect, part.low, part.high)
            ]
            own = (
                number,
                part.says,
                *found,
                side,
                part.threshold,
                part.paper,
                part.seeds,
                part.outcome or "noted",
            )
            writer.writerow((*head, *own, *last))
    return text.getvalue()
