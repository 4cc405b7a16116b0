"""The description of a model for the page: its units, and the edits that each allows."""

from __future__ import annotations

from typing import Any

from vitreous.explorer.models import LiveModel
from vitreous.image_size import format_size
from vitreous.measure.heads import why_hidden
from vitreous.report.show import untrained_warning
from vitreous.results.weight_origin import weights_label
from vitreous.specimen.anatomy import Unit


def model_facts(model: LiveModel) -> dict[str, Any]:
    """Name, weights, units and possible edits, as plain values."""
    specimen = model.subject.specimen
    anatomy = specimen.anatomy
    labels = dict(zip((unit.name for unit in anatomy), anatomy.labels, strict=True))
    tokens = max((unit.prefix for unit in anatomy), key=len, default=())
    return {
        "name": model.subject.name,
        "about": _about(model),
        "warning": untrained_warning(model.subject),
        "image": list(model.size),
        "classes": len(model.class_names),
        "top": min(5, len(model.class_names)),
        "tokens": list(tokens),
        "units": [
            {**_describe_unit(unit, model), "label": labels[unit.name]} for unit in anatomy.units
        ],
    }


def _about(model: LiveModel) -> str:
    specimen = model.subject.specimen
    loaded = specimen.checkpoint
    record: dict[str, Any] = {"weights": specimen.weights}
    if loaded is not None:
        record["checkpoint"] = {"file": loaded.file}
    count = specimen.anatomy.parameters
    size = f"{count / 1e6:.3g} M" if count >= 1e5 else f"{count:,}"
    weights = weights_label(record)
    origin = f"weights: {weights}" if weights else "unknown weights"
    return f"{size} parameters, {format_size(model.size)} pixels, {origin}"


def _describe_unit(unit: Unit, model: LiveModel) -> dict[str, Any]:
    reasons = model.possible[unit.name]
    return {
        "name": unit.name,
        "kind": unit.kind,
        "reach": unit.reach,
        "depth": unit.depth,
        "index": unit.index,
        "stage": unit.stage,
        "block": block_of(unit),
        "skip": unit.skip,
        "attention": why_hidden(unit) is None,
        "heads": unit.heads,
        "grid": None if unit.grid is None else list(unit.grid),
        "channels": unit.channels,
        "parameters": unit.parameters,
        "edits": [what for what, why in reasons.items() if not why],
        "why_not": {what: why for what, why in reasons.items() if why},
    }


def block_of(unit: Unit) -> str:
    """The block that a unit belongs to: the path above the unit, if that path ends with a number.

    A unit that is a numbered member of a stage itself is a block of its own.

    >>> block_of(vitreous.open("nano:vit").anatomy["blocks.1.attn"])
    'blocks.1'
    """
    above, _, own = unit.name.rpartition(".")
    stage = above.rpartition(".")[2]
    if stage.isdecimal():
        return unit.name if own.isdecimal() else above
    return above if stage[-1:].isdecimal() and not own[-1:].isdecimal() else unit.name
