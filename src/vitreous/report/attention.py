"""The one component of our own: attention as it is, patch by patch (A4.30).

The maps travel as the bytes that `attention_maps` stored, one block a unit, of which a browser unpacks only those that
are looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vitreous.report.packing import block, plain
from vitreous.results import Result
from vitreous.results.words import escape, plural

MOST = 24 << 20
"""Bytes of maps on one page, before they are compressed; with more, fewer images are taken."""


def suits(result: Result) -> bool:
    """Whether a result holds attention maps."""
    return "images" in result.arrays and bool(result.about.get("maps"))


def component(result: Result) -> str:
    """The place on the page, and its blocks."""
    images = result.arrays["images"]
    size = sum(
        array[:1].nbytes for name, array in result.arrays.items() if name.startswith("attention/")
    )
    shown = max(1, min(len(images), MOST // max(size, 1)))
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
    label = "Attention of a patch, for an image, layer and head of your choice"
    script = "Attention is drawn by a script."
    return "\n".join([
        f'<div class="attention" role="group" aria-label="{label}"><p class="quiet">{script}</p></div>',
        *(f'<p class="read">{escape(words)}</p>' for words in fewer),
        block("attention-meta", plain(meta)),
        *blocks,
    ])  # fmt: skip


def _unit(unit: str, name: str, grids: dict[str, Any], scale: np.ndarray) -> dict[str, Any]:
    """What the script has to know of a unit's maps: their shape, and the largest probability of each row."""
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
