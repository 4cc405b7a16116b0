"""Whether a model classifies by shape or by texture, on images in which the two disagree.

    shape share = answers by shape / (answers by shape + answers by texture)

over the images whose shape and texture belong to different classes; other answers are not counted.
Intervals are Wilson's. The dataset has to provide `truth["shape"]` and `truth["texture"]`, as the
synthetic ones do. A model trained where both agree (`world:cues`) could learn either, and
`world:conflict` shows which; a model trained on shapes has learnt shapes. Park & Kim 2022 (section
3) expect attention to be biased towards shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import resampled_ratios
from vitreous.measure.subject import Subject, logits
from vitreous.results import (
    Column,
    Estimate,
    Reference,
    Result,
    View,
    estimate,
    tabulate,
    wilson,
)
from vitreous.results.comparing import mean_by_model, rank_models
from vitreous.results.words import format_percent

__all__ = ["CueConflict"]

CUES = ("shape", "texture")
SHARE = "shape share"


@dataclass
class CueConflict(Analysis):
    """Share of answers that follow the shape and not the texture."""

    name = "cue_conflict"
    ids = ("A4.34", "HDV-33")
    section = Section(
        "robustness",
        "Do they rely on shape or on texture?",
        "On images whose shape belongs to one class and whose texture to another, which of the "
        "two the prediction follows.",
        "Attention is taken to be biased towards shape, convolution towards texture (Park & Kim "
        "2022).",
        order=5,
    )

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        data = bench.data
        if not all(cue in data.truth for cue in CUES):
            return (
                f"Images of {data.name!r} do not say which shape and texture they show; "
                "those of 'world:conflict' do."
            )
        if not any(torch.equal(data.labels.cpu(), data.truth[cue].cpu()) for cue in CUES):
            return f"The classes of {data.name!r} are neither shapes nor textures."
        if not bool(_conflicting(bench).any()):
            return f"Shape and texture agree on all images of {data.name!r}."
        return ""

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return ["answers"]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        @torch.no_grad()
        def compute(piece: str) -> Numbers:
            answers = []
            for batch in bench.batches():
                scores = logits(subject.specimen(subject.prepare(batch.images)))
                assert scores is not None
                answers.append(scores.argmax(1).cpu())
            return {"answer": torch.cat(answers)}

        yield compute

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        conflicting = _conflicting(bench)
        shape, texture = (bench.data.truth[cue].cpu()[conflicting] for cue in CUES)
        rows: list[dict[str, Any]] = []
        hits: list[np.ndarray] = []
        cases: list[np.ndarray] = []

        def add(row: dict[str, Any], hit: np.ndarray, case: np.ndarray, **entries: Any) -> None:
            rows.append({**row, **entries})
            hits.append(hit)
            cases.append(case)

        for subject in subjects:
            answers = computed[subject.name]["answers"]["answer"][conflicting]
            by_shape, by_texture = (answers == shape).numpy(), (answers == texture).numpy()
            decided = by_shape | by_texture
            row = {"model": subject.name, "overall": False, "answered": False, "by_class": False}
            share = {**row, "measure": SHARE}
            add(share, by_shape, decided, **{"class": "all", "overall": True})
            chosen = {"shape": by_shape, "texture": by_texture, "neither": ~decided}
            for cue, hit in chosen.items():
                cue_row = {**row, "measure": cue, "class": "all"}
                add(cue_row, hit, np.ones_like(hit), answered=True)
            for label in shape.unique().tolist():
                of_class = (shape == label).numpy()
                label_row = {**share, "class": bench.data.classes[label]}
                add(label_row, by_shape & of_class, decided & of_class, by_class=True)
        numbers = conflicting.nonzero()[:, 0].tolist()
        over, under = np.stack(hits, 1), np.stack(cases, 1)
        resampled = resampled_ratios(over, under, numbers, bench.seed)[1:]
        shares = Estimate(*wilson(over.sum(0), under.sum(0)), resampled)
        for i, row in enumerate(rows):
            row |= {"value": shares[i], "n": int(under[:, i].sum())}
        table, replicates = tabulate(rows, COLUMNS)
        about = {"conflicting": int(conflicting.sum())}
        return Result(self.name, table, COLUMNS, VIEWS, about=about, replicates=replicates)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        decided = result.table[result.table["overall"] & result.table["value"].notna()]
        yield rank_models(
            mean_by_model(decided),
            "{model} [follows|follow] shape rather than texture most often, in {} of [its|their] "
            "decisions",
            "{model} least often, in {}",
            "{models} are tied on how often they follow shape, in {} to {} of their decisions",
            format_percent,
            alone="{model} follows shape rather than texture in {} of its decisions",
        )


def _conflicting(bench: Bench) -> Tensor:
    """Return whether shape and texture belong to different classes, (n,)."""
    shape, texture = (bench.data.truth[cue].cpu() for cue in CUES)
    return shape != texture


COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "measure",
        "order",
        f"`{SHARE}`: among predictions of shape or texture; others: among all conflicting images.",
    ),
    Column("class", "order", "Class of the shape, or `all`."),
    Column("overall", "category", "Whether the row is the shape share of all images."),
    Column(
        "answered", "category", "Whether the row counts predictions of shape, texture or neither."
    ),
    Column("by_class", "category", "Whether the row is the shape share of one class."),
    *estimate("The share.", label="share"),
)
VIEWS = (
    View(
        "bar", x="model", y="value", colour="model", low="low", high="high", limits=(0, 1),
        references=(Reference(0.5, "shape and texture alike"),), where="overall",
        title="Shape or texture",
        how_to_read="Of the images that a model names by their shape or by their texture, the "
        "share that it names by shape. Above the line it relies on shape, below it on texture.",
    ),
    View(
        "bar", x="measure", y="value", colour="model", low="low", high="high", limits=(0, 1),
        where="answered",
        title="Which cue models follow",
        how_to_read="How often the answer is the shape, the texture, or something else. Where most "
        "answers are something else, the shape share rests on few images.",
    ),
    View(
        "heatmap", x="class", y="model", colour="value", limits=(0, 1), where="by_class",
        title="Shape share, by the class of the shape",
        how_to_read="Each cell is the shape share among images of one shape. For a pale shape, "
        "textures win.",
    ),
)  # fmt: skip
