"""Where the weights of a model come from, as tables and warnings say it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from vitreous.results.result import Result

LOOK_UNTRAINED = "was loaded, but its weights look untrained (its norms are as initialised)"


def model_records(results: Mapping[str, Result]) -> list[tuple[str, dict[str, Any]]]:
    """Return name and record of every model in every result.

    Models that no result is about, such as the one that others are compared with, come last.
    """
    about = [result.about for result in results.values()]
    measured = [pair for each in about for pair in each.get("models", {}).items()]
    names = {name for name, _ in measured}
    others = [pair for each in about for pair in each.get("others", {}).items()]
    return [*measured, *(pair for pair in others if pair[0] not in names)]


def weights_label(record: Mapping[str, Any]) -> str:
    """The origin of weights for a table, from what a result records of a model.

    >>> weights_label({"weights": "trained", "checkpoint": {"file": "runs/vit.safetensors"}})
    'vit.safetensors'
    """
    state = str(record.get("weights") or "")
    file = weights_file(record)
    if not file or state not in ("trained", "untrained"):
        return state
    return f"{file} (untrained)" if state == "untrained" else file


def untrained_words(model: str, record: Mapping[str, Any]) -> str:
    """What was loaded, and that it looks untrained; a model without a file goes by its name.

    >>> untrained_words("hf:./vit", {"weights": "untrained"})
    'hf:./vit was loaded, but its weights look untrained (its norms are as initialised)'
    """
    return f"{weights_file(record) or model} {LOOK_UNTRAINED}"


def weights_file(record: Mapping[str, Any]) -> str:
    """The name of the file that a model's weights were loaded from; empty if from none."""
    return PurePath(str((record.get("checkpoint") or {}).get("file", ""))).name
