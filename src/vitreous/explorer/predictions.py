"""Predictions before and after changes and edits, for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vitreous.explorer.models import LiveModel
from vitreous.explorer.pictures import Picture
from vitreous.specimen.rerun import Recording

TOP = 5
"""Number of classes that are shown of a prediction."""


def compare_predictions(
    model: LiveModel, picture: Picture, recordings: Sequence[Recording]
) -> dict[str, Any]:
    """The top classes of each of three recordings, and the union of them with all probabilities.

    The recordings are the unedited model on the unchanged image ("before"), the unedited model on
    the changed image ("clean"), and the edited model on the changed image ("after").
    """
    outputs = [model.shares(each.output) for each in recordings]
    none: dict[str, Any] = {"before": [], "clean": [], "after": [], "classes": [], "label": None}
    if any(each is None for each in outputs):
        return {**none, "why": "Its output is not a score for each class."}
    shares = [each for each in outputs if each is not None]
    if not all(bool(each.isfinite().all()) for each in shares):
        return {**none, "why": "Its scores are not finite any more."}
    tops = [each.topk(min(TOP, len(each))).indices.tolist() for each in shares]
    union = sorted({index for top in tops for index in top}, key=lambda i: -float(shares[2][i]))
    recorded = ("before", "clean", "after")

    def row(index: int) -> dict[str, Any]:
        values = {when: float(each[index]) for when, each in zip(recorded, shares, strict=True)}
        return {"class": model.class_names[index], "index": index, **values}

    def top(number: int) -> list[dict[str, Any]]:
        names, values = model.class_names, shares[number]
        return [{"class": names[i], "index": i, "share": float(values[i])} for i in tops[number]]

    label = model.label(picture)
    marked: dict[str, Any] | None = None
    if label is not None:
        marked = {**row(label), "rank": 1 + int((shares[2] > shares[2][label]).sum())}
    why = "" if label is not None else model.unmarkable or "The image has no label."
    return {
        **{when: top(number) for number, when in enumerate(recorded)},
        "classes": [row(index) for index in union],
        "label": marked,
        "unlabelled": why,
    }
