"""The interactive attention maps of a page: the attention of a patch, by image, layer and head.

The maps are stored as the bytes of `attention_maps`, one block for each unit; a browser unpacks
only the blocks that it shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vitreous.report.packing import block, compact_json
from vitreous.results import Result
from vitreous.results.words import escape, plural

MAX_BYTES = 24 << 20
"""Maximum size of the maps on one page before compression; beyond it, fewer images are shown."""


def has_maps(result: Result) -> bool:
    """Whether a result holds attention maps."""
    return "images" in result.arrays and bool(result.about.get("maps"))


def attention_viewer(result: Result, compact: bool = False) -> str:
    """Return the place of an explorer on the page; `attention_data` has what it shows.

    Parameters
    ----------
    result
        Of the probe `attention_maps`.
    compact
        The small form, with one model, for the first screen.
    """
    size = "compact" if compact else "full"
    label = "Attention of a patch, for an image, layer and head of your choice"
    return (
        f'<div class="attention" data-size="{size}" role="group" aria-label="{label}">'
        '<p class="quiet">Attention is drawn by a script.</p></div>'
    )


def attention_data(result: Result) -> str:
    """Return the blocks of data for all explorers on the page, and what they leave out."""
    images = result.arrays["images"]
    size = sum(
        array[:1].nbytes for name, array in result.arrays.items() if name.startswith("attention/")
    )
    shown = max(1, min(len(images), MAX_BYTES // max(size, 1)))
    blocks = [block("attention-images", images[:shown].tobytes())]
    models = []
    for model, units in result.about["maps"].items():
        inside = []
        for index, grids in units.items():
            name = f"attention-{len(blocks)}"
            blocks.append(
                block(name, result.arrays[f"attention/{model}/{index}"][:shown].tobytes())
            )
            scale = result.arrays[f"scale/{model}/{index}"][:shown]
            inside.append(_unit(result.about["units"][model][int(index)][0], name, grids, scale))
        models.append({"name": model, "units": inside})
    meta = {
        "models": models,
        "images": {
            "height": images.shape[1],
            "width": images.shape[2],
            "labels": result.about["labels"][:shown],
        },
        "prefixed": any(unit["queries"]["prefix"] for model in models for unit in model["units"]),
    }
    fewer = [result.about["fewer"]] if "fewer" in result.about else []
    fewer += (
        [f"{plural(shown, 'image')} of {len(images)}, so that the page stays small."]
        if shown < len(images)
        else []
    )
    return "\n".join([
        *(f'<p class="read">{escape(words)}</p>' for words in fewer),
        block("attention-meta", compact_json(meta)),
        *blocks,
    ])  # fmt: skip


def _unit(unit: str, name: str, grids: dict[str, Any], scale: np.ndarray) -> dict[str, Any]:
    """Return what the script needs to know about a unit: shapes, and the maximum of each row."""
    prefix, heads = grids["prefix"], scale.shape[1]
    sides = {
        each: {"count": prefix + rows * columns, "prefix": prefix, "rows": rows, "columns": columns}
        for each, (rows, columns) in ((each, grids[each]) for each in ("queries", "keys"))
    }
    scales = [float(f"{value:.4g}") for value in scale.ravel()]
    return {
        "name": unit,
        "heads": heads,
        "mean": grids["heads"] == "mean",
        "block": name,
        "scales": scales,
        **sides,
    }
