"""The attention explorer of a page: where a patch attends, by image, layer and head.

`attention_viewer` returns the element of one explorer, of which a page may have several;
`attention_data` returns the blocks of data that all of them read. A browser unpacks only the layers
that it shows.

The block of a layer first holds the largest share for every image, head and query, as a float32
without its last byte (all first bytes, then all second, then all third). Then follows one byte for
every key: the square root of its share relative to the largest, as a level from 0 to `LEVELS`.
Square roots preserve the many small shares, which the same number of linear levels would round to
zero.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from vitreous.report.packing import block, compact_json
from vitreous.results import Result
from vitreous.results.names import short_names
from vitreous.results.words import escape, plural

MAX_BYTES = 24 << 20
"""Maximum size of the maps on one page before compression; beyond it, fewer images are shown."""
LEVELS = 63
"""The level of the largest share of a row."""
TINY = 64
"""Images with sides up to this are stored as they are; larger ones as JPEG."""


def has_maps(result: Result) -> bool:
    """Whether a result holds attention maps."""
    return "images" in result.arrays and bool(result.about.get("maps"))


def attention_viewer(result: Result, compact: bool = False) -> str:
    """Return the element of an explorer as HTML; the page also needs `attention_data`, once.

    Parameters
    ----------
    result
        Of the probe `attention_maps`.
    compact
        The small form, with one model and one layer, for the first screen.
    """
    size = "compact" if compact else "full"
    label = "Attention explorer: choose an image, a patch, a layer and a head"
    place = "" if compact else ' id="attention-explorer"'
    notes = [] if compact else _omissions(result)
    return "\n".join([
        f'<div class="attention" data-size="{size}"{place} role="group" aria-label="{label}">'
        '<noscript><p class="quiet">The attention explorer needs JavaScript.</p></noscript></div>',
        *(f'<p class="read">{escape(words)}</p>' for words in notes),
    ])  # fmt: skip


def attention_data(result: Result) -> str:
    """Return the blocks of data that all explorers of a page read, as HTML."""
    shown = _shown(result)
    blocks = _image_blocks(result.arrays["images"][:shown])
    models: list[dict[str, Any]] = []
    predictions = result.about.get("predictions", {})
    shown_names = short_names(result.about["maps"])
    for model, units in result.about["maps"].items():
        inside = []
        for index, grids in sorted(units.items(), key=lambda each: int(each[0])):
            name = f"attention-{len(models)}-{index}"
            levels, scale = (
                result.arrays[f"{what}/{model}/{index}"][:shown] for what in ("attention", "scale")
            )
            blocks.append(block(name, packed_maps(levels, scale)))
            unit, _, depth = result.about["units"][model][int(index)]
            inside.append(_unit(unit, depth, name, grids, scale.shape[1]))
        known = {"units": inside, "predictions": predictions.get(model)}
        models.append({"name": model, "shown": shown_names[model], **known})
    _, height, width, _ = result.arrays["images"].shape
    labels = result.about["labels"][:shown]
    numbers = result.about.get("shown", range(shown))  # of the images; unlabelled ones are named so
    images = {
        "height": height,
        "width": width,
        "labels": labels,
        "labelled": [f"image {n}" != label for n, label in zip(numbers, labels, strict=False)],
        "raw": max(height, width) <= TINY,
    }
    meta = {"models": models, "images": images}
    return "\n".join([block("attention-meta", compact_json(meta)), *blocks])


def packed_maps(levels: np.ndarray, scale: np.ndarray) -> bytes:
    """Return the content of a layer's block.

    Parameters
    ----------
    levels
        (images, heads, queries, keys), uint8: shares relative to the largest, times 255.
    scale
        (images, heads, queries), float32: the largest share of each row.
    """
    bits = np.ascontiguousarray(scale, np.float32).view(np.uint32).ravel()
    planes = [((bits + 128) >> shift & 255).astype(np.uint8).tobytes() for shift in (24, 16, 8)]
    roots = np.rint(LEVELS * np.sqrt(np.arange(256) / 255)).astype(np.uint8)
    return b"".join([*planes, roots[levels].tobytes()])


def _shown(result: Result) -> int:
    """Return how many images fit on the page."""
    sizes = (a[:1].nbytes for name, a in result.arrays.items() if name.startswith("attention/"))
    return max(1, min(len(result.arrays["images"]), MAX_BYTES // max(sum(sizes), 1)))


def _omissions(result: Result) -> list[str]:
    shown, count = _shown(result), len(result.arrays["images"])
    notes = [result.about["fewer"]] if "fewer" in result.about else []
    if shown < count:
        notes.append(f"{plural(shown, 'image')} of {count}, so that the page stays small.")
    return notes


def _image_blocks(images: np.ndarray) -> list[str]:
    """Return one block per image: its pixels if it is tiny, else a JPEG, a tenth as large."""
    if max(images.shape[1:3]) <= TINY:
        return [block(f"attention-image-{i}", image.tobytes()) for i, image in enumerate(images)]
    from PIL import Image  # only pages with photographs need it

    blocks = []
    for i, image in enumerate(images):
        file = BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=88, subsampling=0)
        blocks.append(block(f"attention-image-{i}", file.getvalue()))
    return blocks


def _unit(unit: str, depth: float, name: str, grids: dict[str, Any], heads: int) -> dict[str, Any]:
    """Return what the script needs to know about a layer."""
    prefix = grids["prefix"]
    sides = {
        each: {"count": prefix + rows * columns, "rows": rows, "columns": columns}
        for each, (rows, columns) in ((each, grids[each]) for each in ("queries", "keys"))
    }
    return {
        "name": unit,
        "depth": depth,
        "heads": heads,
        "averaged": grids["heads"] == "mean",
        "tokens": grids.get("tokens", ["prefix"] * prefix),
        "block": name,
        **sides,
    }
