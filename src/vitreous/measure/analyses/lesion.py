"""What a model loses without each of its units, and what other changes cost it (A4.14, A4.31, A2.26).

    drop = accuracy of the whole model − accuracy of the model without the unit
    rise = NLL without the unit − NLL of the whole model

on the same images, so that what images have in common cancels: intervals are those of the mean difference, Bonett and
Price's for accuracy and the bootstrap's over images for the NLL. A residual unit is taken out by leaving out what its
branch adds. `what` chooses other changes: single convolutions of a ResNet made the identity, skips removed, attention
replaced by something that does not look at the image, position embeddings masked, and the gates of a ConViT forced.

Park and Kim find that a ResNet depends on its early stages and on the first layers of each stage, and that in Swin MLPs
matter at the beginning of a stage and attention at its end (HDV-40 to HDV-42).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import where
from vitreous.measure.probes.accuracy import rank
from vitreous.measure.robustness.edits import WHAT, Edit, Edits, Model
from vitreous.measure.section import Section
from vitreous.measure.subject import Subject, logits
from vitreous.results import UNIT_COLUMNS, Column, Result, View, estimate
from vitreous.results.comparing import bold, code, format_points, records
from vitreous.results.intervals import bootstrap_mean, paired_change
from vitreous.results.words import escape

__all__ = ["Lesion"]

WHOLE = "whole model"
COLUMNS = (
    *UNIT_COLUMNS,
    Column("part", "order", "What was changed: the unit, or something within it, by its path."),
    Column("change", "category", "How it was changed."),
    Column("accuracy", "quantity", "Accuracy of the changed model."),
    Column("nll", "quantity", "Negative log-likelihood of the changed model.", "nats", "NLL"),
    Column("rise", "quantity", "By how much the change raises the NLL.", "nats", "rise of the NLL"),
    Column("rise_low", "quantity", "Lower end of the 95 % interval of the rise.", "nats"),
    Column("rise_high", "quantity", "Upper end of the 95 % interval of the rise.", "nats"),
    *estimate("By how much the change lowers the accuracy.", label="drop in accuracy"),
)
TITLES = {
    "units": "without each unit",
    "convolutions": "without each convolution",
    "skips": "without each skip",
    "attention": "with attention that does not look at the image",
    "positions": "without knowledge of positions",
    "gates": "with gates forced in the first layers",
}
READ = {
    "units": "Each point is a unit that was taken out of a trained model, nothing retrained. The higher it lies, the "
    "more the model needs it; at zero the others do without it.",
    "convolutions": "Each point is a convolution that was made to pass its input on. The higher it lies, the more the "
    "model needs it.",
    "skips": "Each point is a unit around which the skip was removed, so that only its branch passes. The higher it "
    "lies, the more was carried by the skip.",
    "attention": "Each point is an attention unit whose weights were fixed, the same for every image. Where the mean "
    "over images costs little, the unit looks by position; where 3×3 neighbours cost little, it looks near.",
    "positions": "Each point is a table of positions set to zero. The higher it lies, the more the model relies on "
    "being told where patches are.",
    "gates": "Each point has the gates of all layers up to it forced, to attention by position alone (content masked) "
    "or by content alone (position masked). The higher of two points is the cue that these layers need more.",
}


@dataclass
class Lesion(Analysis):
    """What a model loses without each of its units."""

    what: str = "units"
    """Or 'convolutions' (wider than 1 x 1, of a ResNet's branches), 'skips', 'attention', 'positions' or 'gates'."""

    name = "lesion"
    ids = (
        "A4.14", "A4.31", "A2.24", "A2.25", "A2.26", "HDV-40", "HDV-41", "HDV-42", "SLC-17", "SLC-18", "CVT-29",
        "CVT-30",
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
    )

    def __post_init__(self) -> None:
        if self.what not in WHAT:
            raise UnknownName("kind of lesion", self.what, WHAT, f"There are {', '.join(WHAT)}.")

        self._known: WeakKeyDictionary[Subject, Edits] = WeakKeyDictionary()

    def edits(self, subject: Subject) -> Edits:
        """What is changed in a model; trying it out takes as long as a pass, and is done once."""
        if subject not in self._known:
            self._known[subject] = WHAT[self.what][0](subject.specimen)
        return self._known[subject]

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        found = self.edits(subject)
        return "" if found.can else next(iter(found.cannot.values()), WHAT[self.what][1])

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [WHOLE, *(edit.key for edit in self.edits(subject).can)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        edits = {edit.key: edit for edit in self.edits(subject).can}

        @cache
        def means() -> dict[str, Tensor]:
            return subject.specimen.mean_attention(
                subject.prepare(batch.images) for batch in bench.batches()
            )

        def one(piece: str) -> Numbers:
            return answers(
                subject.specimen if piece == WHOLE else edits[piece].make(means), subject, bench
            )

        yield one

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        edits = {subject.name: self.edits(subject) for subject in asked}
        rows = [
            row for each in asked for row in self._rows(each, edits[each.name].can, found, bench)
        ]
        table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
        accuracy = {
            each.name: float(found[each.name][WHOLE]["right"].double().mean()) for each in asked
        }
        nll = {each.name: float(found[each.name][WHOLE]["nll"].mean()) for each in asked}
        about = {
            "accuracy": accuracy,
            "nll": nll,
            "left_out": {name: each.cannot for name, each in edits.items() if each.cannot},
        }
        return Result(self.name, table, COLUMNS, self._views(table), about=about)

    def _rows(
        self, subject: Subject, edits: Sequence[Edit], found: Found, bench: Bench
    ) -> Iterator[dict[str, Any]]:
        pieces = found[subject.name]
        whole = pieces[WHOLE]
        if not bool(whole["nll"].isfinite().all()):
            raise VitreousError(
                f"The scores of {subject.name} are not finite, before anything was taken out of it."
            )
        right, nll = (
            torch.stack(
                [whole[name].double() - pieces[edit.key][name].double() for edit in edits], 1
            )
            for name in ("right", "nll")
        )
        drop, rise = paired_change(right.numpy()), bootstrap_mean(-nll.numpy(), seed=bench.seed)
        for i, edit in enumerate(edits):
            numbers = pieces[edit.key]
            yield {
                **where(subject, edit.unit), "part": edit.part, "change": edit.change,
                "accuracy": float(numbers["right"].double().mean()), "nll": float(numbers["nll"].mean()),
                "rise": rise.mean[i], "rise_low": rise.low[i], "rise_high": rise.high[i],
                "value": drop.mean[i], "low": drop.low[i], "high": drop.high[i], "n": len(numbers["right"]),
            }  # fmt: skip

    def _views(self, table: pd.DataFrame) -> tuple[View, ...]:
        how: dict[str, Any] = {
            "x": "depth", "colour": "kind" if table["change"].nunique() < 2 else "change", "facet": "model",
            "bands": True,
        }  # fmt: skip
        title = TITLES[self.what]
        return (
            View(
                "scatter",
                y="value",
                low="low",
                high="high",
                title=f"Drop in accuracy {title}",
                how_to_read=READ[self.what],
                **how,
            ),
            View(
                "scatter",
                y="rise",
                low="rise_low",
                high="rise_high",
                title=f"Rise of the NLL {title}",
                how_to_read="The same changes, by what they do to the probability of the right class. The NLL rises "
                "before the first answer becomes wrong, so it tells units apart where accuracy does not.",
                **how,
            ),
        )

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table.dropna(subset="value")
        for model, changes in rows.groupby("model", sort=False, observed=True):
            lesions = records(changes)
            most = max(lesions, key=lambda row: (row["value"], row["rise"]))
            harmless = [row for row in lesions if not row["low"] > 0]
            changed = f"with it changed ({escape(most['change'])})"
            change = "without it" if most["change"] == "taken out" else changed
            yield (
                f"{bold(model)} depends most on {code(most['part'])}: {change} accuracy falls by "
                f"{format_points(most)}; {len(harmless)} of {len(lesions)} changes, one at a time, "
                "cost no more than chance would."
            )


@torch.no_grad()
def answers(model: Model, subject: Subject, bench: Bench) -> Numbers:
    """For each image whether a model has it right, and its NLL; wrong, and without one, where scores are not finite."""
    right, nll = [], []
    for batch in bench.batches():
        scores = logits(model(subject.prepare(batch.images)))
        assert scores is not None
        scores, labels = scores.double(), batch.labels.to(scores.device)
        right.append((rank(scores, labels) == 0) & scores.isfinite().all(1))
        found = F.cross_entropy(scores, labels, reduction="none")
        nll.append(found.where(found.isfinite(), torch.nan))
    return {"right": torch.cat(right), "nll": torch.cat(nll)}
