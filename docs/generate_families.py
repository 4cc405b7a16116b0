"""Open one model of every family of timm, vit-pytorch, transformers and torchvision and write to
docs/reference/families.md what came of it.

    python docs/generate_families.py                     # all, less than an hour on one core
    python docs/generate_families.py --only torchvision  # one library; the others stay
    python docs/generate_families.py --model cait.CaiT   # look at one model, and write nothing

vit-pytorch is no dependency; `docs/family_sources/vit_pytorch_models.py` says how to install it for
the moment. Without it its rows stay as they were. What was found is kept in
docs/_build/families.json.
"""

from __future__ import annotations

import argparse
import json
import re
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

PAGE = Path(__file__).parent / "reference" / "families.md"
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
    return [
        Row(**row) for _, row in sorted(entry["rows"].items(), key=lambda named: named[0].lower())
    ]


def describe(row: Row) -> str:
    if not row.opened:
        closed = "NOT OPENED" if row.runs else "does not run"
        return f"{row.name}: {'by blocks' if row.blocks else closed}: {row.reason}"
    attention = (
        "" if row.attention is None else f", attention {row.attention[0]} of {row.attention[1]}"
    )
    equal = "equal" if row.equal else f"NOT EQUAL {row.difference}"
    lesion = f"without {row.lesion} {row.change}" if row.lesion else "nothing to take out"
    units = f"{row.units}, rows {row.rows}"
    return f"{row.name}: {row.seconds} s, {equal}{attention}, {units}, {lesion} {row.reason}"


def table(rows: list[Row]) -> str:
    """One line a model that runs on a batch of images."""
    lines = ["| model | opened | equal | attention | units | attends | s |", "|---" * 7 + "|"]
    labelled = any(row.label != row.name for row in rows)
    for row in rows:
        name = f"{row.name} | `{row.label}`" if labelled else row.name
        units = ", ".join(
            f"{count} {kind}" for kind, count in row.units.items() if kind not in ("stem", "head")
        )
        attention = "–" if row.attention is None else f"{row.attention[0]} of {row.attention[1]}"
        seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
        opened = "blocks" if row.blocks else mark(row.opened)
        cells = [name, opened, mark(row.equal), attention, units, ", ".join(row.reach), seconds]
        lines.append(f"| {' | '.join(cells)} |")
    if labelled:
        lines[:2] = [
            "| module | model | opened | equal | attention | units | attends | s |",
            "|---" * 8 + "|",
        ]
    return "\n".join(lines)


def mark(good: bool | None) -> str:
    return "" if good is None else "yes" if good else "no"


def count(rows: list[Row]) -> dict[str, int]:
    """What stands at the top of the page, counted from the rows."""
    able = [row for row in rows if row.runs]
    attending = [row for row in able if row.attention is not None]
    return {
        "models": len(able),
        "opened": sum(row.opened for row in able),
        "by blocks": sum(row.blocks for row in able),
        "equal": sum(bool(row.equal) for row in able),
        "with attention": len(attending),
        "attention complete": sum(bool(row.complete) for row in attending),
    }


def section(entry: dict[str, Any]) -> str:
    rows = rows_of(entry)
    able = [row for row in rows if row.runs]
    closed = [row for row in able if not row.opened]
    hidden = [row for row in able if row.opened and row.reason]
    others = [row for row in rows if not row.runs]
    parts = [f"## {entry['title']}", table(able)]
    for title, some in (
        ("Why the graph of some cannot be read:", closed),
        ("Why some attention cannot be seen, by the first such unit:", hidden),
        ("Not counted, because the model itself does not run on a batch of images:", others),
    ):
        parts += [title, reasons(some)] if some else []
    return "\n\n".join(parts)


def reasons(rows: list[Row]) -> str:
    """One line a reason."""
    named: dict[str, list[str]] = {}
    for row in rows:
        named.setdefault(plain(row.reason), []).append(f"`{row.name}`")
    return "\n".join(f"- {', '.join(names)}: {reason}" for reason, names in named.items())


def plain(reason: str) -> str:
    """A reason without the folders of the machine it was found on and the way out, not longer than
    a line or two."""
    short = re.sub(r"/\S*/(site-packages|vit_pytorch)/", "", " ".join(reason.split())).split(
        "; observe its blocks"
    )[0]
    short = re.sub(
        r"^The graph of \w+ (cannot be read: )?",
        lambda found: "" if found[1] else "its graph ",
        short,
    )
    return short if len(short) <= 240 else f"{short[:237]}…"


LEGEND = (
    ("opened", '`vitreous.open` returns; *blocks*: only with `units="blocks"`'),
    (
        "by blocks",
        "The graph cannot be read. You can observe and remove the model's blocks, but not see its "
        "attention.",
    ),
    (
        "equal",
        "The model's output before, the specimen's, and the model's afterwards are the same (the "
        f"specimen's to a relative {TOLERANCE:.0e}).",
    ),
    (
        "attention",
        "Products of attention whose probabilities you can observe, of all that the model "
        "computes. They are counted while the model runs without Vitreous: every softmax over "
        "products of queries and keys that depends on the image and that the output depends on.",
    ),
    ("attention complete", "Models of which you can observe all of them."),
    ("units", "All units except stem and head."),
    (
        "attends",
        "What attention ranges over. *channel*: channels, so there is no distance; *linear*: there "
        "is no softmax over pairs of positions; *unknown*: queries or keys lie on no grid.",
    ),
    ("s", "Processor seconds to open the model."),
)


def page(known: dict[str, Any]) -> str:
    entries = [known[library] for library in LIBRARIES if library in known]
    counts = [count(rows_of(entry)) for entry in entries]
    lines = [f"| library | {' | '.join(counts[0])} |", "|---" * (len(counts[0]) + 1) + "|"]
    for entry, numbers in zip(entries, counts, strict=True):
        lines.append(f"| {entry['title']} | {' | '.join(map(str, numbers.values()))} |")
    legend = "\n".join(f"- **{column}**: {meaning}" for column, meaning in LEGEND)
    summary, sections = "\n".join(lines), "\n\n".join(map(section, entries))
    return f"""# Tested model families

Models of four libraries, opened with random weights. Vitreous has no code for any of them. The
list contains one small model of each module of timm, every image model of vit-pytorch, every class
of transformers that takes `pixel_values` alone (with few layers), every classifier and
segmentation model of torchvision, and the backbone of each of its detectors.

{summary}

{legend}

{sections}

<!-- Written by docs/generate_families.py. -->
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=LIBRARIES, nargs="+", default=list(LIBRARIES))
    parser.add_argument("--model", nargs="+", help="models to look at, without writing the page")
    parser.add_argument(
        "--again", action="store_true", help="only what was not as it should be, or is missing"
    )
    parser.add_argument("--missing", action="store_true", help="only what has no row yet")
    parser.add_argument(
        "--page", action="store_true", help="only write the page from what was found before"
    )
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
        elif asked.again or asked.missing:
            good = {row.name for row in rows_of(entry) if asked.missing or sound(row)}
            names = [name for name in names if name not in good]
        else:
            entry["rows"] = {}
        for row in look(library, names):
            entry["rows"][row.name] = asdict(row)
            save(known)
    absent = [library for library in LIBRARIES if library not in known]
    if absent:
        print(
            f"The page is left as it was, because nothing is known yet about {', '.join(absent)}."
        )
    elif not asked.model:
        PAGE.write_text(page(known))


def sound(row: Row) -> bool:
    """Everything as it should be."""
    rows = row.rows is None or row.rows <= TOLERANCE
    return bool(row.opened and row.equal and row.complete is not False and rows and not row.reason)


if __name__ == "__main__":
    main()
