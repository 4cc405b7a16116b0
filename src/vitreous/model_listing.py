"""The list of all model names, for `vitreous list models`: within a second, without torch.

Names are read from source files (`model_names`). Only timm itself knows which of its models have
published weights and under which tags. That list takes seconds, so it is cached for each version of
timm.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

from vitreous import model_names
from vitreous.errors import VitreousError
from vitreous.storage.atomic_files import read_json, write_json


def list_names(pattern: str = "*", pretrained: bool = False) -> list[str]:
    """Names of models that match a pattern: ours, those of other packages, timm's and
    torchvision's, in this order.

    With `pretrained`, only those with published weights, each with its tag.

    >>> list_names("vit_nano*")
    ['vit_nano']
    """
    ours = [f"nano:{name}" for name in model_names.bundled()]
    ours += [f"zoo:{name}" for name in model_names.zoo()]
    if pretrained:
        theirs = _timm_weights()
    else:
        ours += sorted(model_names.ours_with_patches())
        ours += sorted(model_names.plugin_models())
        theirs = sorted(model_names.timm_names(), key=_natural_order)
    names = [*ours, *theirs, *sorted(model_names.torchvision_names())]
    return [name for name in names if fnmatchcase(name, pattern)]


def _natural_order(name: str) -> list[tuple[int, str]]:
    """A sort key that puts `vit_9` before `vit_10`, as timm does."""
    parts = re.split(r"(\d+)", name.lower())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _timm_weights() -> list[str]:
    """timm's models with published weights, from the cache or from timm."""
    home = Path(os.environ.get("VITREOUS_CACHE") or "~/.cache/vitreous").expanduser()
    file = home / "notes" / f"timm-{version('timm')}-weights.json"
    with suppress(VitreousError, KeyError):
        return list(read_json(file, strict=True)["names"])
    import timm  # and torch, which takes seconds

    names = [name for name in timm.list_models(pretrained=True) if "vitreous" not in name]
    with suppress(OSError, VitreousError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"names": names})
    return names
