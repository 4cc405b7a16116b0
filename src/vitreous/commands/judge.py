"""`vitreous claims judge`: judge saved results, print the verdicts, write a page or a table.

Nothing here needs torch.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from io import StringIO
from math import isfinite, nan
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vitreous import claims
from vitreous.claims.book import Claim, find_claim
from vitreous.claims.effects import Effect
from vitreous.claims.facts import parse_roles
from vitreous.claims.loading import add_control, evidence_of, load_evidence
from vitreous.claims.statistics import Interval95
from vitreous.claims.verdicts import ENOUGH_SEEDS, OUTCOMES, Verdict, judge, summarise
from vitreous.commands.claim_tables import need_text, short_number
from vitreous.commands.output_files import named_outputs, written_sentence
from vitreous.errors import VitreousError
from vitreous.measure.inspection import Inspection
from vitreous.report.effect import what_training_adds
from vitreous.report.guard import Guard
from vitreous.report.judgement import Judgement, warnings
from vitreous.report.report_path import check_report_path
from vitreous.report.verdicts import SIGNS
from vitreous.results.latex import escape_latex, latex_number, latex_table
from vitreous.results.words import format_number
from vitreous.storage.atomic_files import explain_write_errors, write_bytes

COLOURS = {
    "reproduced": "green",
    "weaker": "cyan",
    "mixed": "yellow",
    "no effect": "magenta",
    "opposite": "red",
    "holds untrained": "blue",
    "undecided": "bright_black",
    "not testable here": "bright_black",
    "identity": "green",
}
ONCE = "¹"
"""Marks effects of fewer trainings than a verdict should rest on."""
EFFECT_WIDTH, SHARE_WIDTH = 24, 13
"""Columns of most effects and shares of the paper's, so that groups are aligned."""
DECIDED = tuple(each for each in OUTCOMES if each not in ("undecided", "not testable here"))


def judge_folder(
    folder: Path,
    only: str | None,
    roles: Sequence[str],
    out: Sequence[Path],
    everything: bool,
    console: Console,
    *,
    approximate: bool = False,
) -> None:
    """Judge the results saved in a folder, print the verdicts and write the files in `out`.

    Parameters
    ----------
    folder
        Of a study or of an inspection.
    only
        Ids of claims, or keys of papers and books, separated by commas (default: all).
    roles
        What models are, as `NAME=FACTS`.
    out
        Files to write: a page (.html), a table (.csv, .tex) or all of it as data (.json).
    everything
        Print every claim, not only those that were decided.
    console
        Where to print.
    approximate
        Accept results of older versions, which have intervals but no replicates.
    """
    for path in out:
        _check_ending(path)
    every = claims.every_claim()
    wanted = every if only is None else choose_claims(every, only)
    evidence = load_evidence(folder, parse_roles(roles), approximate=approximate)
    for sentence in warnings(evidence.not_judged):
        console.print(sentence, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if not evidence.items:
        why = "no model in it has been measured yet; run the study again, and it resumes"
        why = "no model in it can be judged, as said above" if evidence.not_judged else why
        raise VitreousError(f"There is nothing to judge in {str(folder)!r}: {why}.")
    verdicts = judge(evidence, wanted)
    guard = Guard()
    note_failures(verdicts, guard)
    what = "The table on the terminal"
    show_all = everything or only is not None
    guard.run(what, lambda: print_verdicts(verdicts, console, show_all), lambda _: None)
    outputs = named_outputs(out)
    for output in outputs:
        _write(output.path, Judgement(verdicts, evidence.items), guard)
    if outputs:
        written = written_sentence(outputs)
        console.print(written, highlight=False, markup=False, soft_wrap=True)
    guard.check()


def _check_ending(path: Path) -> None:
    if path.suffix.lower() not in TABLES:
        check_report_path(path)


def _write(path: Path, judgement: Judgement, guard: Guard) -> None:
    ending = path.suffix.lower()
    if ending in TABLES:
        text = TABLES[ending](judgement.verdicts)
        with explain_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, text.encode())
        return
    from vitreous.report.page import write  # charts come with it, which a table does not need

    write(Inspection({}), path, judgement=judgement, guard=guard)


def note_failures(verdicts: Sequence[Verdict], guard: Guard) -> None:
    """Record the claims whose check raised in the guard, which reports them at the end."""
    for verdict in verdicts:
        if verdict.failed:
            guard.not_judged[verdict.claim.id] = verdict.failed


def parse_ids(text: str) -> list[str]:
    """Return the ids in `HDV-26,slc-03`, in capitals and each once."""
    ids = list(dict.fromkeys(id.strip().upper() for id in text.split(",") if id.strip()))
    if not ids:
        raise VitreousError(f"--only takes ids of claims, for example HDV-26,SLC-03, not {text!r}.")
    return ids


def choose_claims(every: Sequence[Claim], text: str) -> list[Claim]:
    """Return the claims that `HDV-26,REG` names: by id, or all of a paper or book by its key."""
    chosen: dict[str, Claim] = {}
    for id in parse_ids(text):
        of_paper = [claim for claim in every if claim.paper.key.upper() == id]
        chosen |= {claim.id: claim for claim in of_paper or [find_claim(every, id)]}
    return list(chosen.values())


def judge_inspection(inspection: Inspection, roles: Mapping[str, str]) -> Judgement | None:
    """Judge all claims on an inspection; None if it lacks the main effect of every claim."""
    evidence = evidence_of(inspection, roles)
    if inspection.control is not None:
        evidence = add_control(evidence, inspection.control)
    verdicts = judge(evidence, claims.every_claim())
    judgement = Judgement(verdicts, evidence.items, inspected=True)
    any_measured = any(v.main is not None and isfinite(v.main.measured.value) for v in verdicts)
    return judgement if any_measured else None


def why_not_judged(inspection: Inspection, roles: Mapping[str, str]) -> str:
    """Return why `judge_inspection` judged nothing: the models' roles are unknown, or no claim
    reads what was measured."""
    reasons = warnings(evidence_of(inspection, roles).not_judged)
    return " ".join(reasons) or "No finding can be judged: none reads what was measured."


def print_verdicts(
    verdicts: Sequence[Verdict], console: Console | None = None, everything: bool = True
) -> None:
    """Print the verdicts, grouped by outcome, what was decided first.

    Parameters
    ----------
    verdicts
        In any order.
    console
        Where to print (default: standard output).
    everything
        Also print what is undecided, not testable or not measured, and every note.
    """
    console = console or Console()
    console.print(summarise(verdicts), highlight=False, markup=False)
    console.print()
    listed = [v for v in verdicts if everything or (v.measured and v.outcome in DECIDED)]
    for outcome in OUTCOMES:
        group = [v for v in listed if v.outcome == outcome and v.measured]
        if group:
            heading = f"{SIGNS[outcome]} {outcome} ({len(group)})"
            console.print(Text(heading, f"bold {COLOURS[outcome]}"))
            console.print(_group_table(group, everything))
    if lacking := [v for v in listed if not v.measured]:
        console.print(Text(f"  not measured ({len(lacking)})", f"bold {COLOURS['undecided']}"))
        console.print(_group_table(lacking, everything))
    if any(verdict.seen_once for verdict in listed):
        console.print(
            f"\n{ONCE} seen once: fewer than {ENOUGH_SEEDS} trainings", style="dim", highlight=False
        )
    hidden = sum(v.outcome not in DECIDED or not v.measured for v in verdicts)
    if hidden and not everything:
        console.print(
            f"\n{hidden} more are undecided, not testable here or not measured; --all shows them.",
            style="dim",
            highlight=False,
        )


def _group_table(verdicts: Sequence[Verdict], everything: bool) -> Table | Padding:
    """Return the rows of one outcome, without its heading."""
    if verdicts[0].outcome == "identity" and not everything:  # exact computations: ids will do
        ids = ", ".join(verdict.claim.id for verdict in verdicts)
        return Padding(Text(ids, "cyan"), (0, 0, 0, 2))
    table = Table(box=None, show_header=False, pad_edge=False, expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(no_wrap=True, min_width=EFFECT_WIDTH)
    table.add_column(no_wrap=True, min_width=SHARE_WIDTH)
    for verdict in verdicts:
        table.add_row(*_cells(verdict, everything))
    return table


def _cells(verdict: Verdict, everything: bool) -> list[Text]:
    """Return the cells of a claim's row: id, sentence, effect, how much of the paper's."""
    main, claim = verdict.main, verdict.claim
    sentence = Text(claim.sentence, no_wrap=not everything, overflow="ellipsis")
    if everything:
        sentence.append(_details(verdict), "dim")
    effect = share = ""
    if main is not None and isfinite(main.measured.value):
        effect = _interval_text(main) + ONCE * verdict.seen_once
        if main.share_of_paper is not None:
            share = f"{round(main.share_of_paper, 2) + 0.0:.0%} of paper"  # and not -0%
    return [Text(f"  {claim.id}", "cyan"), sentence, Text(effect), Text(share, "dim")]


def _interval_text(effect: Effect) -> str:
    """Return `4.2 [3.1, 5.4]`; an exact number has no interval."""
    measured = effect.measured
    value, low, high = map(short_number, (measured.value, measured.low, measured.high))
    return value if measured.low == measured.high else f"{value} [{low}, {high}]"


def _details(verdict: Verdict) -> str:
    lines = []
    if verdict.main is not None:
        supporting = verdict.supporting if verdict.measured else ()
        agree = f" ({verdict.agreeing} of {len(supporting)} others agree)" if supporting else ""
        lines.append(f"{verdict.main.label}{agree}")
    lines += verdict.notes
    if verdict.main is not None and verdict.main.controlled:
        untrained = verdict.main.control
        assert untrained is not None
        added = what_training_adds(verdict.main)
        lines.append(
            "; ".join(filter(None, [f"Untrained: {format_number(untrained.value)}", added]))
        )
    if verdict.missing:
        first, *others = map(need_text, verdict.missing)
        more = f" and {len(others)} more" if others else ""
        lines.append(f"Missing: {first}{more}. {verdict.command} measures it.")
    if verdict.claim.withdrawn:
        lines.append(f"Withdrawn: {verdict.claim.withdrawn}")
    return "".join(f"\n{line}" for line in lines)


def verdict_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return one row for each effect of each claim, numbers with all their digits."""
    rows = []
    for verdict in verdicts:
        claim = verdict.claim
        for number, effect in enumerate(verdict.effects, 1):
            rows.append(
                {
                    "claim": claim.id,
                    "paper": f"{claim.paper.authors} ({claim.paper.year})",
                    "verdict": verdict.outcome,
                    "seen_once": verdict.seen_once,
                    "survives_holm": verdict.survives,
                    "withdrawn": bool(claim.withdrawn),
                    "sentence": claim.sentence,
                    "effect": number,
                    "role": _role(verdict, effect),
                    "label": effect.label,
                    "value": _number(effect.measured.value),
                    "low": _number(effect.measured.low),
                    "high": _number(effect.measured.high),
                    "standard_error": _standard_error(effect.measured),
                    "p_value": _number(effect.p_value) if effect.direction else None,
                    "null": effect.null,
                    "direction": effect.direction or "",
                    "threshold": effect.threshold if effect.direction else None,
                    "reported": effect.paper,
                    **_interval("untrained", effect.control),
                    **_interval("learned", effect.learned),
                    "trainings": effect.seeds,
                    "by_training": _by_training(effect),
                    "outcome": effect.outcome or "noted",
                    "data": verdict.data,
                    "scale": verdict.scale,
                    "missing": "; ".join(map(str, verdict.missing)),
                    "notes": "; ".join(verdict.notes),
                }
            )
    return rows


def _role(verdict: Verdict, effect: Effect) -> str:
    if effect.direction is None:
        return "noted"
    return "main" if effect is verdict.main else "supporting"


def _interval(name: str, interval: Interval95 | None) -> dict[str, float | None]:
    """Three columns, `NAME`, `NAME_low` and `NAME_high`; None for what is missing or not finite."""
    columns = {name: nan, f"{name}_low": nan, f"{name}_high": nan}
    if interval is not None:
        columns = dict(zip(columns, (interval.value, interval.low, interval.high), strict=True))
    return {column: _number(value) for column, value in columns.items()}


def _standard_error(measured: Interval95) -> float | None:
    return _number(measured.spread) if isfinite(measured.value) else None


def _by_training(effect: Effect) -> str:
    if effect.quantity is None or not effect.quantity.known:
        return ""
    return "; ".join(f"{value:.6g}" for value in effect.quantity.values)


def _number(value: float) -> float | None:
    return value if isfinite(value) else None


def verdicts_csv(verdicts: Sequence[Verdict]) -> str:
    """Return `verdict_rows` as CSV."""
    text = StringIO()
    rows = verdict_rows(verdicts)
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def verdicts_latex(verdicts: Sequence[Verdict]) -> str:
    """Return the main effects that were measured as a LaTeX table, one for each finding."""
    rows = []
    for row in verdict_rows(verdicts):
        if row["role"] != "main" or row["value"] is None:
            continue
        low, high = (nan if row[end] is None else row[end] for end in ("low", "high"))
        texts = (escape_latex(row[name]) for name in ("claim", "sentence", "verdict", "label"))
        reported = latex_number(nan if row["reported"] is None else row["reported"])
        rows.append([*texts, latex_number(row["value"], low, high), reported])
    heads = ["finding", "sentence", "verdict", "effect", r"measured, 95 \% interval", "paper"]
    return latex_table(heads, rows, "lp{4.5cm}lp{3.5cm}rr")


def verdicts_json(verdicts: Sequence[Verdict]) -> str:
    """Return `verdict_rows` as JSON."""
    return json.dumps(verdict_rows(verdicts), indent=1, ensure_ascii=False) + "\n"


TABLES = {".csv": verdicts_csv, ".json": verdicts_json, ".tex": verdicts_latex}
"""Functions that return the text of a table, by the ending of its file."""
