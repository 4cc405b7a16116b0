"""A page with the attention explorer alone, and random attention for it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np

from report.conftest import maps
from vitreous import Result
from vitreous.palette import RAMPS
from vitreous.report import attention
from vitreous.report.packing import block, compact_json, policy_hash
from vitreous.report.page import SCRIPTS

LONG = "a_model_name_of_eighty_characters_with_no_place_to_break_it_anywhere_" + "x" * 11
CLASSES = ["c" * 80, "tench, Tinca tinca <b>", "dog"]
TOKENS = {LONG: ["class", "register", "register"], "plain": []}
GRIDS = {LONG: (3, 5), "plain": (6, 10)}
HEADS = {LONG: 3, "plain": 2}
DEPTHS = {LONG: (0.1, 0.4, 0.7, 0.9), "plain": (0.5, 1.0)}
IMAGES = 2


def random_maps() -> Result:
    """Random attention of a deep model with tokens and a shallow one without, on wide images."""
    random = np.random.default_rng(3)
    arrays = {"images": random.integers(0, 256, (IMAGES, 12, 20, 3), dtype=np.uint8)}
    known: dict[str, dict[str, Any]] = {"maps": {}, "units": {}, "predictions": {}}
    for model, depths in DEPTHS.items():
        prefix, (rows, columns) = len(TOKENS[model]), GRIDS[model]
        tokens = prefix + rows * columns
        known["units"][model] = [["stem", "stem", 0.0]]
        known["maps"][model] = {}
        for index, depth in enumerate(depths, 1):
            logits = random.standard_normal((IMAGES, HEADS[model], tokens, tokens))
            shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
            scale = shares.max(-1).astype(np.float32)
            levels = np.rint(255 * shares / scale[..., None]).astype(np.uint8)
            arrays[f"attention/{model}/{index}"], arrays[f"scale/{model}/{index}"] = levels, scale
            known["units"][model].append([f"blocks.{index}.attn", "attention", depth])
            known["maps"][model][str(index)] = {
                "queries": [rows, columns], "keys": [rows, columns], "prefix": prefix,
                "tokens": TOKENS[model], "heads": "all",
            }  # fmt: skip
    top = [[CLASSES[1], 0.625], [CLASSES[0], 0.25], [CLASSES[2], 0.0625]]
    seen = [
        {"top": top, "label": [CLASSES[0], 0.25, 2]},
        {"top": top, "label": ["owl", 0.0123, 417]},
    ]
    known["predictions"][LONG] = {"images": seen, "unmarked": ""}
    unmarked = [{"top": top, "label": None}] * IMAGES
    known["predictions"]["plain"] = {"images": unmarked, "unmarked": "It knows <i>other</i> ones."}
    about = {**known, "labels": [CLASSES[0], "image 7"], "shown": [4, 7]}
    plain = maps()
    return Result("attention_maps", plain.table, plain.columns, (), arrays, about)


def share(result: Result, model: str, layer: int, image: int) -> np.ndarray:
    """(heads, queries, keys) as stored."""
    levels, scale = (
        result.arrays[f"{what}/{model}/{layer + 1}"] for what in ("attention", "scale")
    )
    return levels[image] / 255 * scale[image][..., None].astype(float)


def explorer_page(result: Result) -> str:
    """A page with both sizes, under the policy of a report, whose script can be asked."""
    asset = files("vitreous.report").joinpath
    own = ("dom.js", "unpack.js")
    names = [name for name in SCRIPTS if name in own or name.startswith("attention")]
    script = "\n".join(asset(name).read_text(encoding="utf-8") for name in names)
    public = "attention, attentionState, setAttentionState, showAttentionModels"
    script += f"\nObject.assign(window, {{ {public} }});"
    style = ":root{--ink:#111;--quiet:#555;--link:#14d;--line:#0002} body{margin:8px}"
    style += asset("attention.css").read_text(encoding="utf-8")
    policy = f"default-src 'none'; script-src {policy_hash(script)}; style-src {policy_hash(style)}"
    settings = block("settings", compact_json({"ramps": RAMPS}))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Explorer</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{style}</style>'
        f"{attention.attention_viewer(result, compact=True)}"
        f"<details><summary>More</summary>{attention.attention_viewer(result)}</details>"
        f"{attention.attention_data(result)}{settings}"
        f'<script type="module">{script}</script></html>'
    )
