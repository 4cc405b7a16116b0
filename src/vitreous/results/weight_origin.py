"""Where the weights of a model come from, as tables and warnings say it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

LOOK_UNTRAINED = "was loaded, but its weights look untrained (its norms are as initialised)"


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
