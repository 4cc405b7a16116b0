"""Write the verdicts of the studies whose evidence is kept in `results/`: a table, a page and a
summary of each.

    python docs/generate_verdicts.py

The evidence of a study is in `results/NAME.zip`, or in several archives `results/NAME-DATE.zip`;
`vitreous unpack` puts them into one folder, which `vitreous claims judge` reads. From it come
`NAME.csv` (every part of every claim), `NAME.html` (the page) and `NAME.md` (a row for each claim
that could be judged). A test compares the first and the last with what this file would write, so a
change of a claim shows in its verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from vitreous import claims
from vitreous.claims.loading import load_evidence
from vitreous.claims.verdicts import (
    OUTCOMES,
    Verdict,
    by_paper,
    count_outcomes,
    judge,
    sentences_on_chance,
)
from vitreous.commands.claim_tables import short_number
from vitreous.commands.judge import verdicts_csv
from vitreous.measure.inspection import Inspection
from vitreous.report.judgement import Judgement
from vitreous.report.page import write

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
HOW = {
    "cifar10-zoo-2026-11-16": """# Findings judged on CIFAR-10

Study `zoo` at scale `small`, with what other studies need of the same models and a few of their
trainings: 24 networks on CIFAR-10, recipe `fast` with 5 + 60 epochs (six of them only to the end
of the warm-up, which is all that is wanted of them, and two tuned for 1000 steps more), seed 0,
on one H200 that four of them shared at a time, 26 minutes. Speed was measured afterwards, with
nothing else on the machine; exact properties on a CPU. The intervals are over test images and
batches: what another seed would give is not in them. The manual discusses
[what it means](../docs/explanation/reproduction.md).
""",
    "cifar10-reproduction": """# Findings judged on CIFAR-10, Park and Kim's recipe

The first part of the reproduction: ViT-Ti/4 with a class token (seeds 0, 1, 2: 91.17, 90.59 and
90.88 % of the test images right) and ResNet-18 (94.96, 95.00 and 95.32 %), `hdv_cifar` exactly
(batch 96, 5 + 300 epochs), on one H200. Measured before training, after warm-up, after a third and
two thirds, and at the end. And DeiT-Ti/4, seed 0 (86.51 %), with d'Ascoli et al.'s recipe (batch
256, 300 epochs, learning rate 1e-3), measured before training and at the end. Missing are the
Hessians of ResNet-18 after two thirds, at the end and
without augmentation (all seeds), and that of ViT seed 2 after a third: the weights are gone, so
they need a new training. Receptive fields, landscape and linear probes of ViT seed 0 were measured
again, at the end from `zoo:vit_ti_4`, whose weights are rounded to bfloat16: that moves receptive
fields by at most 0.05 %, the landscape by 0.14 % of its range, the mean positive eigenvalue by
0.03 %. Hessians of ResNet-18 were measured with TF32 convolutions, which moves an eigenvalue by up
to 2 %; those that are missing were refused because of it. The manual discusses
[what it means](../docs/explanation/reproduction.md).
""",
    "sanity-2026-11-18": """# Findings judged on the embedded world

`vitreous study sanity --seeds 3`: small versions of 109 findings, 391 trainings of networks with
four layers or so on images of 16 x 16 pixels, untrained controls included, by eight workers of one
core each in 14 minutes (one seed alone, `vitreous study sanity`, takes two workers 17 minutes).
Recipe `sanity`: 1 + 10 epochs of 2048 images, 1 + 25 where a place has to be learned (SYN-C). The
intervals are over 512 test images and three seeds. The manual discusses
[what it means](../docs/explanation/reproduction.md).
""",
}
"""How each was obtained."""
WITHOUT_REPLICATES = ("cifar10-zoo-2026-11-16",)
"""Studies of version 0.1, whose results have intervals only."""


def archives(name: str) -> list[Path]:
    """The archives with the evidence of a study, oldest first."""
    return sorted(RESULTS.glob(f"{name}*.zip"))


def verdicts(name: str) -> tuple[list[Verdict], Judgement]:
    """On what is kept of a study."""
    with TemporaryDirectory() as folder:
        for archive in archives(name):
            ZipFile(archive).extractall(folder)
        evidence = load_evidence(Path(folder), approximate=name in WITHOUT_REPLICATES)
        evidence.options = evidence.options.partition(" --out")[0]  # which is a folder of today
        found = judge(evidence, claims.every_claim())
    return found, Judgement(found, evidence.items)


def summary(name: str, found: Sequence[Verdict]) -> str:
    """Counts by paper, then a row for each claim whose main effect was measured."""
    measured = [verdict for verdict in found if verdict.measured]
    shown = list(count_outcomes(measured))
    lines = [HOW[name], f"| paper | {' | '.join(shown)} |", "|---" * (len(shown) + 1) + "|"]
    for paper, verdicts in by_paper(measured).items():
        counts = count_outcomes(verdicts)
        cells = " | ".join(str(counts.get(outcome, 0)) for outcome in shown)
        lines.append(f"| {paper.authors} ({paper.year}) | {cells} |")
    lines += ["", " ".join(sentences_on_chance(measured)), ""]
    lines += [
        "| | finding | verdict | main effect | paper | trainings |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(row, measured)]) + "\n"


def row(verdict: Verdict) -> str:
    """A row of the table, with the main effect."""
    outcome = f"{verdict.outcome}{', seen once' if verdict.seen_once else ''}"
    cells = [verdict.claim.id, verdict.claim.sentence, outcome, "", "", ""]
    if (main := verdict.main) is not None and isfinite(main.measured.value):
        found = main.measured
        exact = found.low == found.value == found.high
        interval = "" if exact else f" ({short_number(found.low)} to {short_number(found.high)})"
        cells[3:] = [
            f"{main.label}: {short_number(found.value)}{interval}",
            short_number(main.paper),
            str(main.seeds),
        ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    for name in HOW:
        found, judgement = verdicts(name)
        path = RESULTS / f"{name}.html"
        path.with_suffix(".csv").write_text(verdicts_csv(found), encoding="utf-8")
        path.with_suffix(".md").write_text(summary(name, found), encoding="utf-8")
        write(Inspection({}), path, judgement=judgement)
        print(name, {each: sum(v.outcome == each for v in found) for each in OUTCOMES})


if __name__ == "__main__":
    main()
