"""Write the tables of `claims.md`: papers, preconditions, roles, facts, columns of verdicts.

    python docs/generate_claims.py

A test compares the page with what this file would write.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parent))

from manual_tables import table, with_table

from vitreous import claims
from vitreous.claims.evidence import Evidence
from vitreous.claims.facts import FACTS, MODELS
from vitreous.claims.preconditions import KINDS
from vitreous.claims.verdicts import judge
from vitreous.commands.judge import verdict_rows

PAGE = Path(__file__).absolute().parent / "reference" / "claims.md"

REQUIRES = {
    "accuracy": "every model in `of` classifies at least this percentage correctly",
    "matched": "the accuracies of the models in `of` differ by at most this many points",
    "classes": "the images have at least this many classes",
    "image": "the images have at least this many pixels per side",
    "real": "real images, not generated ones",
    "transfer": "the network was pre-trained on images of other classes",
    "steps": "every model in `of` was trained for at least this many steps",
    "warmup_steps": "the warm-up of every model in `of` had at least this many steps",
    "rate_sum": "the learning rates of every model in `of` add up to at least this much",
    "decay": 'weight decay of every model in `of` acts on these parameters only ("matrices")',
    "note": "never met on images this small; its text says why",
}
COLUMNS = {
    "claim": "id of the claim",
    "paper": "authors and year",
    "verdict": "one of the nine verdicts",
    "seen_once": "whether it is based on fewer than three trainings",
    "survives_holm": "whether the main effect stays certain when all claims are judged together; "
    "empty if it is not certain by itself",
    "withdrawn": "whether the authors withdrew the finding",
    "sentence": "the finding",
    "effect": "number of the effect within the claim, from 1",
    "role": "`main`, `supporting` or `noted`",
    "label": "what the number is",
    "value": "the measured number",
    "low": "lower end of its 95 % interval",
    "high": "upper end of its 95 % interval",
    "standard_error": "its standard error; of a ratio, that of its logarithm",
    "p_value": "two-sided, against no effect",
    "null": "the value of no effect",
    "direction": "`more`, `less` or `within`; empty if only noted",
    "threshold": "the value from which on it is reproduced",
    "reported": "the number in the paper",
    "untrained": "the same number of untrained networks",
    "untrained_low": "lower end of its 95 % interval",
    "untrained_high": "upper end of its 95 % interval",
    "learned": "what training adds: the difference, or the ratio, of the two",
    "learned_low": "lower end of its 95 % interval",
    "learned_high": "upper end of its 95 % interval",
    "trainings": "number of trainings",
    "by_training": "the number of each training, separated by semicolons",
    "outcome": "outcome of this effect alone",
    "data": "the images",
    "scale": "`ten` or `hundred` classes, or `sanity` for the synthetic world",
    "missing": "measurements that were not there",
    "notes": "how the verdict came about",
}


def verdict_columns() -> list[str]:
    """The columns that `vitreous claims judge` writes."""
    [row, *_] = verdict_rows(judge(Evidence([]), claims.every_claim()[:1]))
    return list(row)


def page(text: str) -> str:
    """The page with its tables from the code."""
    papers = [
        (
            f"`{book.paper.key}`",
            f"{book.paper.authors} {book.paper.year}, "
            f"[arXiv:{book.paper.arxiv}](https://arxiv.org/abs/{book.paper.arxiv})",
            str(len(list(book))),
        )
        for book in claims.every_book()[: len(claims.PAPERS)]
    ]
    assert set(REQUIRES) == set(KINDS)
    assert list(COLUMNS) == verdict_columns()
    for heading, head, rows in (
        ("Claims and verdicts", ("key", "paper", "claims"), papers),
        ("Preconditions", ("precondition", "requires"), _rows(REQUIRES)),
        ("Roles", ("model word", "model"), _rows(MODELS)),
        ("Facts", ("fact", "meaning"), _rows(FACTS)),
        ("Verdict files", ("column", "meaning"), _rows(COLUMNS)),
    ):
        text = with_table(text, heading, table(head, rows))
    return text


def _rows(said: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"`{name}`", says) for name, says in said.items()]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
