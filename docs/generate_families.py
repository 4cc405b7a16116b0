"""Open one model of every family of timm, vit-pytorch, transformers and torchvision and write to docs/families.md what
came of it.

    python docs/generate_families.py                     # all, less than an hour on one core
    python docs/generate_families.py --only torchvision  # one library; the others as they were found before
    python docs/generate_families.py --model cait.CaiT   # look at one model, and write nothing

vit-pytorch is no dependency; `docs/family_sources/vit_pytorch_models.py` says how to install it for the moment. Without
it its rows stay as they were. What was found is kept in docs/_build/families.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from family_sources.examine import TOLERANCE, Row, apart_from_us, warm_up

PAGE = Path(__file__).parent / "families.md"
CACHE = Path(__file__).parent / "_build" / "families.json"
LIBRARIES = {
    "timm": "timm_models",
    "vit-pytorch": "vit_pytorch_models",
    "transformers": "transformers_models",
    "torchvision": "torchvision_models",
}


def source(library: str) -> ModuleType:
    return import_module(f"family_sources.{LIBRARIES[library]}")


def look(library: str, names: list[str]) -> Iterator[Row]:
    """Rows of these models, printed as they come."""
    module = source(library)
    for name in names:
        row = apart_from_us(module, name)
        print(f"{library} {describe(row)}", flush=True)
        yield row


def load() -> dict[str, Any]:
    return json.loads(CACHE.read_text()) if CACHE.exists() else {}


def save(known: dict[str, Any]) -> None:
    CACHE.parent.mkdir(exist_ok=True)
    CACHE.write_text(json.dumps(known, indent=1))


def rows_of(entry: dict[str, Any]) -> list[Row]:
    return [Row(**row) for row in entry["rows"].values()]


def describe(row: Row) -> str:
    if not row.opened:
        return f"{row.name}: {'NOT OPENED' if row.runs else 'does not run'}: {row.reason}"
    attention = "" if row.attention is None else f", attention {row.attention[0]} of {row.attention[1]}"
    equal = "equal" if row.equal else f"NOT EQUAL {row.difference}"
    lesion = f"without {row.lesion} {row.change}" if row.lesion else "nothing to take out"
    return f"{row.name}: {row.seconds} s, {equal}{attention}, {row.units}, rows {row.rows}, {lesion} {row.reason}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=LIBRARIES, nargs="+", default=list(LIBRARIES))
    parser.add_argument("--model", nargs="+", help="models to look at, without writing the page")
    parser.add_argument("--again", action="store_true", help="only what was not as it should be, or is missing")
    parser.add_argument("--page", action="store_true", help="only write the page from what was found before")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warm_up()
    known = load()
    for library in [] if asked.page else asked.only:
        try:
            names = source(library).names()
        except ImportError as error:
            print(f"{library} is not here ({error}); its rows stay as they were.")
            continue
        entry = known.setdefault(library, {"rows": {}})
        entry["title"] = source(library).LIBRARY
        if asked.model:
            names = [name for name in names if name in asked.model]
        elif asked.again:
            good = {row.name for row in rows_of(entry) if sound(row)}
            names = [name for name in names if name not in good]
        else:
            entry["rows"] = {}
        for row in look(library, names):
            entry["rows"][row.name] = asdict(row)
            save(known)


def sound(row: Row) -> bool:
    """Everything as it should be."""
    rows = row.rows is None or row.rows <= TOLERANCE
    return bool(row.opened and row.equal and row.complete is not False and rows and not row.reason)


if __name__ == "__main__":
    main()
