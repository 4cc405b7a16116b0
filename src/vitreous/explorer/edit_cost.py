"""The cost of edits and changes over many images: accuracy, NLL, and changed predictions."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.explorer.changes import change_images
from vitreous.explorer.models import Edited, LiveModel
from vitreous.explorer.state import Changes
from vitreous.measure.probes.accuracy import rank
from vitreous.measure.subject import logits
from vitreous.results.intervals import Interval, bootstrap_mean, paired_change, wilson

BATCH_SECONDS = 0.1
"""Seconds that a batch should take, because the page waits for it."""
MAX_BATCH = 128
"""Maximum number of images in a batch."""


class EditCost:
    """Compares a model as it is with the same model after edits, on changed images.

    Parameters
    ----------
    model
        The model.
    edited
        Its edits.
    changes
        What is done to the images of the edited model.
    """

    def __init__(self, model: LiveModel, edited: Edited, changes: Changes) -> None:
        self.model, self.edited, self.changes = model, edited, changes
        self._before: list[Tensor] = []
        self._after: list[Tensor] = []

    def batches(self, count: int) -> Iterator[int]:
        """Run both on `count` images; yields the number of images after each batch."""
        start, size = 0, 1
        while start < count:
            began = perf_counter()
            stop = min(start + size, count)
            self._run(start, stop)
            seconds = perf_counter() - began
            yield stop - start
            size = max(1, min(MAX_BATCH, 2 * size, int((stop - start) * BATCH_SECONDS / seconds)))
            start = stop

    @torch.no_grad()
    def _run(self, start: int, stop: int) -> None:
        model, subject = self.model, self.model.subject
        images, labels = model.data.images[start:stop], model.data.labels[start:stop]
        if model.unmarkable:
            labels = torch.zeros_like(labels)  # labels of other classes could exceed the scores
        changed = change_images(images, self.changes, model.size, subject.mean, start)
        before = logits(subject.specimen(subject.prepare(images))) if model.scored else None
        after = logits(self.edited.runner.specimen(subject.prepare(changed)))
        if before is None or after is None:
            return
        self._before.append(_score(before, labels))
        self._after.append(_score(after, labels))

    def result(self) -> dict[str, Any]:
        """Accuracy, NLL and agreement with their 95 % intervals, and a sentence on them."""
        if not self._before:
            return {"why": "Its output is not a score for each class."}
        before, after = torch.cat(self._before).numpy(), torch.cat(self._after).numpy()
        same = before[:, 0] == after[:, 0]
        agreement = wilson(same.sum(), len(same))
        summary: dict[str, Any] = {
            "accuracy": None,
            "nll": None,
            "agreement": _interval_fields(agreement),
            "n": len(same),
        }
        if self.model.unmarkable:
            summary["why"] = self.model.unmarkable
            return {**summary, "words": _agreement_words(agreement, len(same))}
        right = paired_change(after[:, 1] - before[:, 1])
        summary["accuracy"] = {
            "before": float(before[:, 1].mean()),
            "after": float(after[:, 1].mean()),
            **_interval_fields(right, "difference"),
        }
        rise = after[:, 2] - before[:, 2]
        if np.isfinite(rise).all():
            summary["nll"] = {
                "before": float(before[:, 2].mean()),
                "after": float(after[:, 2].mean()),
                **_interval_fields(bootstrap_mean(rise), "difference"),
            }
        return {**summary, "words": _accuracy_words(summary["accuracy"], len(same))}


def _score(scores: Tensor, labels: Tensor) -> Tensor:
    """(n, 3): predicted class, whether it is correct, and NLL.

    Where scores are not finite, the predicted class is -1, and not correct.
    """
    scores, known = scores.double().cpu(), labels.clamp_min(0)
    finite = scores.isfinite().all(1)
    right = (rank(scores, known) == 0) & finite
    loss = F.cross_entropy(scores, known, reduction="none")
    answer = scores.argmax(1).where(finite, -1)
    return torch.stack([answer.double(), right.double(), loss], 1)


def _interval_fields(interval: Interval, name: str = "share") -> dict[str, float | None]:
    values = zip((name, "low", "high"), interval, strict=True)
    return {key: float(value) if np.isfinite(value) else None for key, value in values}


def _accuracy_words(accuracy: dict[str, Any], count: int) -> str:
    before, after = (f"{100 * accuracy[when]:.1f} %" for when in ("before", "after"))
    low, high = accuracy["low"], accuracy["high"]
    if low is None:
        return f"Accuracy is {before} before and {after} after, on one image."
    ends = f"95 % interval of the change {_points(low)} to {_points(high)} points"
    if low <= 0 <= high:
        moves = f"is {before} before and {after} after, which is no certain change"
    else:
        moves = f"{'falls' if high < 0 else 'rises'} from {before} to {after}"
    return f"Accuracy {moves} ({ends}; {count:,} images)."


def _agreement_words(agreement: Interval, count: int) -> str:
    share, low, high = (f"{100 * float(each):.1f}" for each in agreement)
    return f"The answer stays the same for {share} % [{low}, {high}] of {count:,} images."


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")
