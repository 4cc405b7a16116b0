"""A model of the explorer: its images, its edited versions, and its predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitreous.data.dataset import Dataset
from vitreous.errors import VitreousError
from vitreous.explorer.cache import RecentlyUsed
from vitreous.explorer.changes import change_images, fit_images
from vitreous.explorer.edits import apply_edit, mirror_edit, possible_edits
from vitreous.explorer.pictures import Picture
from vitreous.explorer.state import Changes, UnitEdit
from vitreous.measure.labels import score_names
from vitreous.measure.probe import Setting
from vitreous.measure.subject import Subject, logits
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.rerun import Cancelled, Runner, Stopped

SPECIMENS = 64
"""Number of edited versions of a model that are kept; they share its weights."""
MEAN_IMAGES = 64
"""Images over which attention is averaged for the edit "mean"."""
MEAN_BATCH = 8


class Refusal(NamedTuple):
    """An edit that cannot be made, and why."""

    edit: UnitEdit
    why: str


@dataclass(frozen=True)
class Edited:
    """A model with the edits that were possible, and those that were refused."""

    runner: Runner
    edits: tuple[UnitEdit, ...]
    refused: tuple[Refusal, ...]


class LiveModel:
    """One of the models of an explorer.

    Parameters
    ----------
    number
        Its place among the models.
    subject
        The opened model.
    data
        The images of the explorer, with labels that are numbers of the models' scores.
    """

    def __init__(self, number: int, subject: Subject, data: Dataset) -> None:
        self.number = number
        self.subject = subject.for_dataset(data)
        self.data = data if subject.framing is None else data.framed(subject.framing)
        self.possible = possible_edits(subject.specimen)
        self.unedited = Edited(Runner(subject.specimen), (), ())
        self.unmarkable = Setting((self.subject,), data, 0).unmarkable(self.subject)
        """Why its predictions cannot be compared with labels; empty if they can."""
        headless = getattr(subject.model, "num_classes", None) == 0  # timm's return features
        self.scored = subject.outputs is not None and not headless
        self.class_names = self._class_names(data)
        self._edited: RecentlyUsed[Edited] = RecentlyUsed(SPECIMENS)
        self._means: dict[str, Tensor] = {}

    def _class_names(self, data: Dataset) -> tuple[str, ...]:
        if not self.scored:
            return ()
        return score_names(self.subject) if self.unmarkable else data.classes

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of its images."""
        _, height, width = self.subject.specimen.anatomy.image
        return height, width

    @property
    def upright(self) -> bool:
        """Whether pictures are turned as EXIF says."""
        framing = self.subject.framing
        return framing is not None and framing.upright

    def frame(self, photo: Image.Image) -> Tensor:
        """uint8 (1, 3, h, w): an RGB picture of any size as the model gets it."""
        framing = self.subject.framing
        assert framing is not None
        return torch.from_numpy(np.ascontiguousarray(framing(photo)))[None]

    def pixels(self, picture: Picture, changes: Changes) -> Tensor:
        """uint8 (1, 3, h, w): a picture as the model gets it, before its levels are normalised."""
        if picture.row is not None:
            images, first = self.data.images[picture.row][None], picture.row
        else:
            images, first = picture.frames[self.number], 0
        return change_images(images, changes, self.size, self.subject.mean, first)

    def shown_pixels(self, picture: Picture, changes: Changes) -> Tensor:
        """`pixels` at the model's size, rounded to 8 bits, for the page."""
        return fit_images(self.pixels(picture, changes), self.size)

    def edited(self, edits: Sequence[UnitEdit], cancelled: Cancelled | None = None) -> Edited:
        """The model with these edits, in their order; impossible ones are refused."""
        if not edits:
            return self.unedited
        key = tuple(edits)
        edited = self._edited.get(key)
        if edited is None:
            before = self.edited(key[:-1], cancelled)
            edited = self._edited.put(key, self._with_edit(before, key[-1], cancelled))
        return edited

    def _with_edit(self, before: Edited, edit: UnitEdit, cancelled: Cancelled | None) -> Edited:
        reasons = self.possible.get(edit.unit)
        why = f"There is no unit {edit.unit!r}." if reasons is None else reasons[edit.what]
        if not why:
            try:
                specimen = apply_edit(
                    before.runner.specimen, edit, lambda unit: self.mean_attention(unit, cancelled)
                )
                return Edited(Runner(specimen), (*before.edits, edit), before.refused)
            except VitreousError as error:
                why = str(error)
        return Edited(before.runner, before.edits, (*before.refused, Refusal(edit, why)))

    def mirrored(self, edit: UnitEdit, unit: Unit) -> UnitEdit:
        """The edit in this model that corresponds to an edit of another model's unit."""
        anatomy = self.subject.specimen.anatomy
        return mirror_edit(edit, unit, self.number, self.subject.name, anatomy, self.possible)

    def mean_attention(self, unit: str, cancelled: Cancelled | None = None) -> Tensor:
        """Attention of a unit of the unedited model, averaged over images of the dataset.

        The first call averages all units in one pass.
        """
        if not self._means:
            self._means = self.subject.specimen.mean_attention(self._batches(cancelled))
        if unit not in self._means:
            raise VitreousError(f"Unit {unit!r} has no attention to average.")
        return self._means[unit]

    def _batches(self, cancelled: Cancelled | None) -> Iterator[Tensor]:
        for images in self.data.images[:MEAN_IMAGES].split(MEAN_BATCH):
            if cancelled is not None and cancelled():
                raise Stopped
            yield self.subject.prepare(images)

    def shares(self, output: Any) -> Tensor | None:
        """Probabilities (classes,) in double precision; None if the model is no classifier."""
        scores = logits(output) if self.scored else None
        return None if scores is None else scores[0].double().softmax(0).cpu()

    def label(self, picture: Picture) -> int | None:
        """The number of the picture's class among the scores, where it is known."""
        if picture.row is None or self.unmarkable or not self.scored:
            return None
        label = int(self.data.labels[picture.row])
        return label if label >= 0 else None
