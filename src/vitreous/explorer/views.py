"""The views of the explorer, independent of HTTP: models, images, recordings and their caches."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from vitreous import __version__
from vitreous.data.corruptions import KINDS
from vitreous.data.dataset import Dataset
from vitreous.errors import UnknownName, VitreousError
from vitreous.explorer.cache import RecentlyUsed
from vitreous.explorer.edits import unit_at_depth
from vitreous.explorer.models import Edited, LiveModel, Refusal
from vitreous.explorer.origin import Origin
from vitreous.explorer.panels import (
    Basis,
    attention_maps,
    pack_maps,
    rollout_maps,
    stream_panel,
)
from vitreous.explorer.pictures import (
    Picture,
    describe_picture,
    image_of,
    png,
    read_upload,
    thumbnail_png,
)
from vitreous.explorer.predictions import compare_predictions
from vitreous.explorer.session import model_facts
from vitreous.explorer.state import Changes, State, UnitEdit
from vitreous.measure.subject import Subject
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.rerun import Cancelled, Recording

MEMORY = 1 << 30
"""Bytes of recordings that are kept."""
OPERATION = 8 << 10
"""Bytes of an operation in the graph of an edited model, which a recording keeps alive."""
STRIP = 64
"""Images of the dataset on the page."""
UPLOADS = 50
"""Uploaded images that are kept."""


class Intended(NamedTuple):
    """The edits of one model, its own and those mirrored from others, and edits not mirrored."""

    edits: tuple[UnitEdit, ...]
    mirrored: frozenset[UnitEdit]
    refused: tuple[Refusal, ...]


class Explorer:
    """Models and images, and all views of them that the page can request.

    Parameters
    ----------
    subjects
        The opened models, one or two.
    data
        The images, with labels that are numbers of the models' scores (`match_labels`).
    origin
        How they were opened (default: not known).
    memory
        Bytes of recordings that are kept.

    Notes
    -----
    Only one thread at a time may compute views; images can be uploaded at any time.

    Examples
    --------
    >>> explorer = Explorer(subjects("nano:vit"), vitreous.data.load("world:shapes", split="test"))
    >>> explorer.view(parse_state({"image": "d0"}))["models"][0]["after"][0]["class"]
    'circle'
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        data: Dataset,
        origin: Origin | None = None,
        memory: int = MEMORY,
    ) -> None:
        self.data, self.origin = data, origin or Origin()
        self.models = [LiveModel(number, each, data) for number, each in enumerate(subjects)]
        self.pictures = {picture.id: picture for picture in self._strip()}
        self._uploads: list[str] = []
        self._lock = threading.Lock()
        self._recordings = RecentlyUsed[Recording](memory, _memory)
        self._bases = RecentlyUsed[Basis](256)

    def _strip(self) -> Iterable[Picture]:
        height, width = self.data.image
        for row in range(min(len(self.data), STRIP)):
            label = int(self.data.labels[row])
            known = 0 <= label < len(self.data.classes)
            name = self.data.classes[label] if known else f"image {row}"
            yield Picture(f"d{row}", name, row, width, height)

    def warm_up(self) -> None:
        """Run every model once, so that the first click is as fast as the others."""
        state = State(next(iter(self.pictures)))
        self.view(state)
        self.attention(state)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the recordings that are kept."""
        return self._recordings.used

    def session(self) -> dict[str, Any]:
        """Everything about the models and the images that does not depend on a state."""
        with self._lock:
            shown = list(self.pictures.values())
        return {
            "models": [model_facts(each) for each in self.models],
            "images": [describe_picture(each) for each in shown],
            "shown": min(len(self.data), STRIP),
            "of": len(self.data),
            "corruptions": list(KINDS),
            "device": str(self.models[0].subject.device),
            "version": __version__,
            "data": self.data.name,
            "demo": all(each.subject.name.startswith("nano:") for each in self.models),
        }

    def thumbnail(self, name: str) -> bytes:
        """An image as the dataset has it, or as it was uploaded, as a small PNG."""
        picture = self.find_picture(name)
        if picture.row is None:
            return picture.thumbnail
        return thumbnail_png(image_of(self.data.images[picture.row][None]))

    def upload(self, content: bytes, name: str) -> Picture:
        """Add an image; the oldest upload is forgotten when there are too many."""
        photo = read_upload(content, name, self.models[0].upright)  # of all models alike
        frames = tuple(model.frame(photo) for model in self.models)
        size, small = photo.size, thumbnail_png(photo)
        with self._lock:
            number = int(self._uploads[-1][1:]) + 1 if self._uploads else 0
            picture = Picture(f"u{number}", name, None, *size, frames, small)
            self._uploads.append(picture.id)
            self.pictures[picture.id] = picture
            for old in self._uploads[:-UPLOADS]:
                self.pictures.pop(old, None)
            del self._uploads[:-UPLOADS]
        return picture

    def picture(self, state: State) -> bytes:
        """The image with its changes as the first model gets it, as a PNG."""
        picture = self.find_picture(state.image)
        return png(image_of(self.models[0].shown_pixels(picture, state.changes)))

    def view(self, state: State, cancelled: Cancelled | None = None) -> dict[str, Any]:
        """Predictions of all models before and after changes and edits."""
        picture = self.find_picture(state.image)
        return {"models": [self._predict(each, picture, state, cancelled) for each in self.models]}

    def attention(
        self, state: State, cancelled: Cancelled | None = None, difference: bool = False
    ) -> bytes:
        """Maps of all layers and heads for the query, after the edits, as `pack_maps` says."""
        picture = self.find_picture(state.image)
        after, before = [], []
        for model in self.models:
            edited = self._edited(model, state, cancelled)[0]
            recording = self._record(model, picture, state.changes, edited, cancelled)
            after.append(list(attention_maps(recording, state.query)))
            if difference:
                unedited = self._record(model, picture, state.changes, model.unedited, cancelled)
                before.append(list(attention_maps(unedited, state.query)))
        return pack_maps(after, before)

    def rollout(self, state: State, cancelled: Cancelled | None = None) -> bytes:
        """Rollout up to each attention unit, after the edits, as `pack_maps` says."""
        picture = self.find_picture(state.image)
        rollouts = []
        for model in self.models:
            edited = self._edited(model, state, cancelled)[0]
            recording = self._record(model, picture, state.changes, edited, cancelled)
            rollouts.append(rollout_maps(recording, state.query))
        return pack_maps([maps for maps, _ in rollouts], why=[why for _, why in rollouts])

    def stream(self, state: State, cancelled: Cancelled | None = None) -> dict[str, Any]:
        """Norm, spectrum and colours of a unit's output, and of its counterpart's."""
        picture = self.find_picture(state.image)
        if state.unit is None:
            raise VitreousError("No unit is selected; click one to see its stream.")
        number, name = state.unit
        selected = self._unit(number, name)
        panels = []
        for model in self.models:
            unit: Unit | None = selected
            if model.number != number:
                mapped = [each for each in model.subject.specimen.units if each.grid is not None]
                unit = unit_at_depth(selected, mapped)
            panels.append(self._stream(model, unit, picture, state, cancelled))
        return {"models": panels}

    def _stream(
        self,
        model: LiveModel,
        unit: Unit | None,
        picture: Picture,
        state: State,
        cancelled: Cancelled | None,
    ) -> dict[str, Any]:
        if unit is None:
            return {"why": "It has no feature map."}
        unedited = self._record(model, picture, state.changes, model.unedited, cancelled)
        edited = self._edited(model, state, cancelled)[0]
        recording = self._record(model, picture, state.changes, edited, cancelled)
        before, after = (each.feature(unit.name) for each in (unedited, recording))
        if before is None or after is None or before.grid is None:
            return {"unit": unit.name, "why": "It hands on no feature map."}
        key = (model.number, picture.id, unit.name)
        basis = self._bases.get(key)
        if basis is None:  # computed on the unchanged image, so that colours can be compared
            clean = self._record(model, picture, Changes(), model.unedited, cancelled)
            feature = clean.feature(unit.name)
            assert feature is not None
            if not feature.map.isfinite().all():
                return {"unit": unit.name, "why": "It hands on numbers that are not finite."}
            basis = self._bases.put(key, Basis.of(feature))
        return {
            "unit": unit.name,
            **stream_panel(after, basis),
            "before": stream_panel(before, basis),
        }

    def intended(self, model: LiveModel, state: State) -> Intended:
        """The edits of a model in a state: its own, and those mirrored from the others."""
        edits: dict[UnitEdit, None] = {}
        mirrored: set[UnitEdit] = set()
        refused: list[Refusal] = []
        for edit in state.edits:
            unit = self._unit(edit.model, edit.unit)
            if edit.model == model.number:
                edits[edit] = None
            elif state.mirror:
                try:
                    counterpart = model.mirrored(edit, unit)
                except VitreousError as error:
                    refused.append(Refusal(edit, str(error)))
                    continue
                if counterpart not in edits:
                    mirrored.add(counterpart)
                edits[counterpart] = None
        return Intended(tuple(edits), frozenset(mirrored), tuple(refused))

    def _edited(
        self, model: LiveModel, state: State, cancelled: Cancelled | None
    ) -> tuple[Edited, Intended]:
        intended = self.intended(model, state)
        return model.edited(intended.edits, cancelled), intended

    def _predict(
        self, model: LiveModel, picture: Picture, state: State, cancelled: Cancelled | None
    ) -> dict[str, Any]:
        began = perf_counter()
        before = self._record(model, picture, Changes(), model.unedited, cancelled)
        clean = self._record(model, picture, state.changes, model.unedited, cancelled)
        edited, intended = self._edited(model, state, cancelled)
        is_cached = self._recordings.get(_key(model, picture, state.changes, edited)) is not None
        after = self._record(model, picture, state.changes, edited, cancelled)
        seconds = perf_counter() - began
        operations = max(model.unedited.runner.operations, 1)
        return {
            **compare_predictions(model, picture, [before, clean, after]),
            "changed": bool(edited.edits or state.changes),
            "edits": [
                {**edit._asdict(), "mirrored": edit in intended.mirrored} for edit in edited.edits
            ],
            "refused": [
                {"edit": each.edit._asdict(), "why": each.why}
                for each in (*intended.refused, *edited.refused)
            ],
            "milliseconds": 1000 * seconds,
            "computed": 0.0 if is_cached else after.computed / operations,
            "complete": after.complete,
        }

    def _record(
        self,
        model: LiveModel,
        picture: Picture,
        changes: Changes,
        edited: Edited,
        cancelled: Cancelled | None,
    ) -> Recording:
        """The recording of a model on a picture, from the cache or computed.

        An edited model reruns only the part that differs from a cached recording with fewer edits.
        """
        key = _key(model, picture, changes, edited)
        recording = self._recordings.get(key)
        if recording is not None:
            return recording
        if not edited.edits:
            images = model.subject.prepare(model.pixels(picture, changes))
            return self._recordings.put(key, edited.runner.record(images, cancelled))
        base: Recording | None = None
        for count in range(len(edited.edits) - 1, 0, -1):  # the more edits, the less to compute
            base = base or self._recordings.get((*key[:-1], edited.edits[:count]))
        base = base or self._record(model, picture, changes, model.unedited, cancelled)
        return self._recordings.put(key, edited.runner.rerun(base, cancelled))

    def find_picture(self, name: str) -> Picture:
        """The picture with this id; raises if there is none, or it is no longer kept."""
        picture = self.pictures.get(name)
        if picture is None:
            raise UnknownName("image", name, (), "It may have been forgotten; upload it again.")
        return picture

    def _unit(self, number: int, name: str) -> Unit:
        if number >= len(self.models):
            raise VitreousError(
                f"Model {number} was asked for, and there are {len(self.models)}, from 0."
            )
        units = {unit.name: unit for unit in self.models[number].subject.specimen.units}
        if name not in units:
            raise UnknownName("unit", name, units)
        return units[name]


def _memory(recording: Recording) -> int:
    """Bytes of a recording; of a small model the graph takes more than the numbers."""
    return recording.nbytes + OPERATION * recording.runner.operations


def _key(model: LiveModel, picture: Picture, changes: Changes, edited: Edited) -> tuple[Any, ...]:
    return model.number, picture.id, changes, edited.edits
