"""What a model loses without each of its units, and what other interventions cost.

    drop = accuracy of the whole model − accuracy of the model without the unit
    rise = NLL without the unit − NLL of the whole model

on the same images, paired: intervals are those of the mean difference, Bonett and Price's for
accuracy and the bootstrap's for the NLL. A residual unit is removed by leaving out what its branch
adds. `what` selects other interventions: single convolutions of a ResNet become the identity, skips
are removed, attention is replaced by weights that do not depend on the image, position embeddings
are masked, and the gates of a ConViT are forced.

Park & Kim 2022 (Fig. 10b) find that a ResNet depends on its early stages and on the first layers of
each stage, and that in Swin MLPs matter at the beginning of a stage and attention at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import where
from vitreous.measure.probes.accuracy import rank
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import resampled_means
from vitreous.measure.robustness.edits import INTERVENTIONS, Edit, Edits, Forward
from vitreous.measure.subject import Subject, logits
from vitreous.results import UNIT_COLUMNS, Column, Estimate, Result, View, estimate, tabulate
from vitreous.results.comparing import (
    bold,
    clause,
    code,
    format_points,
    pair_rows,
    records,
    tied_with,
)
from vitreous.results.intervals import Interval, bootstrap_mean, paired_change
from vitreous.results.words import escape

__all__ = ["Lesion"]

WHOLE = "whole model"
COLUMNS = (
    *UNIT_COLUMNS,
    Column("part", "order", "What was changed: module path of the unit or of a part of it."),
    Column("change", "category", "How it was changed."),
    Column("accuracy", "quantity", "Accuracy of the changed model."),
    Column("nll", "quantity", "Negative log-likelihood of the changed model.", "nats", "NLL"),
    Column(
        "rise",
        "quantity",
        "NLL of the changed model minus that of the whole model.",
        "nats",
        "rise of the NLL",
    ),
    Column("rise_low", "quantity", "Lower end of the 95 % interval of the rise.", "nats"),
    Column("rise_high", "quantity", "Upper end of the 95 % interval of the rise.", "nats"),
    *estimate(
        "Accuracy of the whole model minus that of the changed model.", label="drop in accuracy"
    ),
)
TITLES = {
    "units": "without each unit",
    "convolutions": "without each convolution",
    "skips": "without each skip",
    "attention": "with attention that does not depend on the image",
    "positions": "without position embeddings",
    "gates": "with gates forced in the first layers",
}
HOW_TO_READ = {
    "units": "Each point is a unit that was removed from a trained model, without retraining. The "
    "higher it is, the more the model needs the unit; at zero the others compensate for it.",
    "convolutions": "Each point is a convolution that was replaced by the identity. The higher it "
    "is, the more the model needs the convolution.",
    "skips": "Each point is a unit whose skip was removed, so that only its branch is left. The "
    "higher it is, the more the skip carries.",
    "attention": "Each point is an attention unit whose weights were fixed, the same for every "
    "image. Where the mean over images costs little, the unit attends by position; where 3×3 "
    "neighbours cost little, it attends locally.",
    "positions": "Each point is a table of positions set to zero. The higher it is, the more the "
    "model relies on positions.",
    "gates": "Each point has the gates of all layers up to it forced, to attention by position "
    "alone (content masked) or by content alone (position masked). The higher of two points is the "
    "cue that these layers need more.",
}


@dataclass
class Lesion(Analysis):
    """Drop in accuracy and rise of the NLL, one intervention at a time."""

    what: str = "units"
    """What to change, one at a time: `units`, `convolutions`, `skips`, `attention`, `positions` or
    `gates`."""

    name = "lesion"
    ids = (
        "A4.14", "A4.31", "A2.24", "A2.25", "A2.26", "HDV-40", "HDV-41", "HDV-42", "SLC-17",
        "SLC-18", "CVT-29", "CVT-30",
    )  # fmt: skip
    section = Section(
        "lesions",
        "Which units matter?",
        "One unit is removed from the trained model, nothing is retrained, and the same images "
        "pass again.",
        "A ResNet needs its early stages, and the first layers of each stage; in Swin MLPs matter "
        "at the beginning of a stage and attention at its end (Park & Kim 2022, Fig. 10). With "
        "the position embedding masked DeiT-Ti falls from 72.2 to 38.3 %, ConViT-Ti from 73.1 to "
        "67.1 % (d'Ascoli et al. 2021).",
        order=1,
        headline=8,
        key=3,
    )

    def __post_init__(self) -> None:
        if self.what not in INTERVENTIONS:
            known = f"There are {', '.join(INTERVENTIONS)}."
            raise UnknownName("kind of lesion", self.what, INTERVENTIONS, known)
        self._edits: WeakKeyDictionary[Subject, Edits] = WeakKeyDictionary()

    def edits(self, subject: Subject) -> Edits:
        """Return the interventions on a model; cached, because finding them takes a pass."""
        if subject not in self._edits:
            list_edits, _ = INTERVENTIONS[self.what]
            self._edits[subject] = list_edits(subject.specimen)
        return self._edits[subject]

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        edits = self.edits(subject)
        if edits.possible:
            return ""
        return next(iter(edits.impossible.values()), INTERVENTIONS[self.what][1])

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [WHOLE, *(edit.key for edit in self.edits(subject).possible)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        edits = {edit.key: edit for edit in self.edits(subject).possible}

        @cache
        def mean_attention() -> dict[str, Tensor]:
            images = (subject.prepare(batch.images) for batch in bench.batches())
            return subject.specimen.mean_attention(images)

        def compute(piece: str) -> Numbers:
            model = subject.specimen if piece == WHOLE else edits[piece].make(mean_attention)
            return answers_per_image(model, subject, bench)

        yield compute

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        rows: list[dict[str, Any]] = []
        about: dict[str, dict[str, Any]] = {"accuracy": {}, "nll": {}, "left_out": {}}
        for subject in subjects:
            pieces, edits = computed[subject.name], self.edits(subject)
            intact = pieces[WHOLE]
            if not bool(intact["nll"].isfinite().all()):
                raise VitreousError(
                    f"The scores of {subject.name} are not finite, before anything was removed."
                )
            rows += _rows(subject, edits.possible, pieces, bench)
            about["accuracy"][subject.name] = float(intact["right"].double().mean())
            about["nll"][subject.name] = float(intact["nll"].mean())
            if edits.impossible:
                about["left_out"][subject.name] = edits.impossible
        table, replicates = tabulate(rows, COLUMNS)
        return Result(
            self.name, table, COLUMNS, self._views(table), about=about, replicates=replicates
        )

    def _views(self, table: pd.DataFrame) -> tuple[View, ...]:
        colour = "kind" if table["change"].nunique() < 2 else "change"
        points: dict[str, Any] = {"x": "depth", "colour": colour, "facet": "model", "bands": True}
        title = TITLES[self.what]
        return (
            View(
                "scatter", y="value", low="low", high="high",
                title=f"Drop in accuracy {title}",
                how_to_read=HOW_TO_READ[self.what],
                **points,
            ),
            View(
                "scatter", y="rise", low="rise_low", high="rise_high",
                title=f"Rise of the NLL {title}",
                how_to_read="The same interventions, by their effect on the probability of the "
                "true class. The NLL rises before the first answer becomes wrong, so it separates "
                "units where accuracy does not.",
                **points,
            ),
        )  # fmt: skip

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table.dropna(subset="value")
        for model, changes in rows.groupby("model", sort=False, observed=True):
            lesions = records(changes)
            harmful = [row for row in lesions if row["low"] > 0]
            if not harmful:
                yield (
                    f"None of {len(lesions)} changes of {bold(model)}, one at a time, costs more "
                    "accuracy than chance would."
                )
                continue
            harmful.sort(key=lambda row: (row["value"], row["rise"]), reverse=True)
            most = harmful[0]
            falls = {_name(row): Interval(row["value"], row["low"], row["high"]) for row in lesions}
            tied = tied_with(_name(most), falls, pair_rows(result, changes, list(falls)))
            worst = [row for row in harmful if _name(row) in tied]
            changed = f"with it changed ({escape(most['change'])})"
            change = "without it" if most["change"] == "taken out" else changed
            dependence = clause(
                f"{bold(model)} depends most on {{model}}: [{change}|one at a time] accuracy falls "
                "by {}",
                [code(most["part"])] if len(worst) == 1 else [*map(_what_was_changed, worst)],
                [format_points(row) for row in worst],
            )
            yield (
                f"{dependence}; {len(lesions) - len(harmful)} of {len(lesions)} changes, one at a "
                "time, cost no more than chance would."
            )


def _name(row: Mapping[str, Any]) -> str:
    """A name for an intervention, which no other on the same model has."""
    return f"{row['part']}\n{row['change']}"


def _what_was_changed(row: Mapping[str, Any]) -> str:
    """Part and change of an intervention, as HTML."""
    change = "" if row["change"] == "taken out" else f" ({escape(row['change'])})"
    return f"{code(row['part'])}{change}"


def _rows(
    subject: Subject, edits: Sequence[Edit], pieces: Mapping[str, Numbers], bench: Bench
) -> Iterator[dict[str, Any]]:
    """Yield a row for each intervention on a model."""

    def differences(part: str) -> np.ndarray:
        """Numbers of the intact model minus those of each edited one, (n, edits)."""
        intact = pieces[WHOLE][part].double()
        return torch.stack([intact - pieces[edit.key][part].double() for edit in edits], 1).numpy()

    drops, rises = differences("right"), -differences("nll")
    replicates = resampled_means(np.stack([drops, rises], 1), range(len(drops)), bench.seed)[1:]
    drop = Estimate(*paired_change(drops), replicates[:, 0])
    rise = Estimate(*bootstrap_mean(rises, seed=bench.seed), replicates[:, 1])
    for i, edit in enumerate(edits):
        numbers = pieces[edit.key]
        yield {
            **where(subject, edit.unit),
            "part": edit.part,
            "change": edit.change,
            "accuracy": float(numbers["right"].double().mean()),
            "nll": float(numbers["nll"].mean()),
            "rise": rise[i],
            "value": drop[i],
            "n": len(numbers["right"]),
        }


@torch.no_grad()
def answers_per_image(model: Forward, subject: Subject, bench: Bench) -> Numbers:
    """Return correctness and NLL per image; if scores are not finite, wrong and NaN."""
    right, nll = [], []
    for batch in bench.batches():
        scores = logits(model(subject.prepare(batch.images)))
        assert scores is not None
        scores, labels = scores.double(), batch.labels.to(scores.device)
        right.append((rank(scores, labels) == 0) & scores.isfinite().all(1))
        losses = F.cross_entropy(scores, labels, reduction="none")
        nll.append(losses.where(losses.isfinite(), torch.nan))
    return {"right": torch.cat(right), "nll": torch.cat(nll)}
