"""Whether a model goes by shape or by texture, on images in which the two disagree (A4.34).

    shape share = answers equal to the shape / (answers equal to the shape + answers equal to the texture)

over the images whose shape and texture belong to different classes; other answers are left out. Wilson's interval. The
images have to say what they show (`truth["shape"]`, `truth["texture"]`): those of the embedded world do. A model that
was trained where both agree (`world:cues`) had the choice, and `world:conflict` shows what it chose; one that was
trained on shapes has learnt to go by shape. Park and Kim take attention to be biased towards shape (HDV-33).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.robustness.shifts import table
from vitreous.measure.subject import Subject, logits
from vitreous.results import Column, Reference, Result, View, estimate, wilson

__all__ = ["CueConflict"]

CUES = ("shape", "texture")
SHARE = "shape share"


@dataclass
class CueConflict(Analysis):
    """Whether a model goes by shape or by texture."""

    name = "cue_conflict"
    ids = ("A4.34", "HDV-33")

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
        return (
            ""
            if bool(_disagree(bench).any())
            else f"Shape and texture agree on all images of {data.name!r}."
        )

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return ["answers"]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        @torch.no_grad()
        def one(piece: str) -> Numbers:
            found = []
            for batch in bench.batches():
                scores = logits(subject.specimen(subject.prepare(batch.images)))
                assert scores is not None
                found.append(scores.argmax(1).cpu())
            return {"answer": torch.cat(found)}

        yield one

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        apart = _disagree(bench)
        shape, texture = (bench.data.truth[cue].cpu()[apart] for cue in CUES)
        rows: list[dict[str, Any]] = []
        for subject in asked:
            answers = found[subject.name]["answers"]["answer"][apart]
            by_shape, by_texture = (answers == shape).numpy(), (answers == texture).numpy()
            chosen = {"shape": by_shape, "texture": by_texture, "neither": ~(by_shape | by_texture)}
            rows.append(_row(subject, SHARE, "all", by_shape, by_shape | by_texture, overall=True))
            rows += [
                _row(subject, what, "all", hit, np.ones_like(hit), answered=True)
                for what, hit in chosen.items()
            ]
            for number in shape.unique().tolist():
                own = (shape == number).numpy()
                decided = (by_shape | by_texture) & own
                rows.append(
                    _row(
                        subject,
                        SHARE,
                        bench.data.classes[number],
                        by_shape & own,
                        decided,
                        by_class=True,
                    )
                )
        about = {"conflicting": int(apart.sum())}
        return Result(self.name, table(rows, COLUMNS), COLUMNS, VIEWS, about=about)


def _disagree(bench: Bench) -> Tensor:
    """(n,) whether shape and texture belong to different classes."""
    shape, texture = (bench.data.truth[cue].cpu() for cue in CUES)
    return shape != texture


def _row(
    subject: Subject, measure: str, name: str, hit: np.ndarray, of: np.ndarray, **which: bool
) -> dict[str, Any]:
    flags = dict.fromkeys(("overall", "answered", "by_class"), False) | which
    ends = wilson(hit.sum(), of.sum())
    values = dict(zip(("value", "low", "high"), map(float, ends), strict=True))
    return {
        "model": subject.name,
        "measure": measure,
        "class": name,
        **flags,
        **values,
        "n": int(of.sum()),
    }


COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "measure",
        "order",
        f"{SHARE}: of the answers by either; others: share of all images that conflict.",
    ),
    Column("class", "order", "The class that the shape belongs to, or 'all'."),
    Column("overall", "category", "Whether the row is the shape share of all images."),
    Column("answered", "category", "Whether the row says how often a model went by what."),
    Column("by_class", "category", "Whether the row is the shape share of one class."),
    *estimate("The share.", label="share"),
)
VIEWS = (
    View(
        "bar",
        x="model",
        y="value",
        colour="model",
        low="low",
        high="high",
        limits=(0, 1),
        references=(Reference(0.5, "shape and texture alike"),),
        where="overall",
        title="Shape or texture",
        how_to_read="Of the images that a model named after their shape or after their texture, the share that it "
        "named after the shape. Above the line it goes by shape, below it by texture.",
    ),
    View(
        "bar",
        x="measure",
        y="value",
        colour="model",
        low="low",
        high="high",
        limits=(0, 1),
        where="answered",
        title="What models go by",
        how_to_read="How often the answer was the shape, the texture, or something else. Where most answers are "
        "something else, the share above rests on few images.",
    ),
    View(
        "heatmap",
        x="class",
        y="model",
        colour="value",
        limits=(0, 1),
        where="by_class",
        title="Share of shape, by the class of the shape",
        how_to_read="Each cell is the share of shape among the images with one shape. A pale cell is a shape that "
        "textures win over.",
    ),
)
