"""Write the tables of options and of columns into the pages of probes and analyses.

    python docs/generate_measurements.py
    python docs/generate_measurements.py cka lesion

What an option means stands below it in the code, what a column holds in its declaration. The
tables are the first ones under "Options" and "Columns" of `reference/probes/NAME.md` and
`reference/analyses/NAME.md`; a test compares them with the code.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from textwrap import dedent
from typing import Any

sys.path.insert(0, str(Path(__file__).absolute().parent))

import manual_tables
from manual_tables import table

import vitreous
from vitreous.measure import analyses, probes
from vitreous.measure.analysis import Analysis
from vitreous.measure.report_section import GROUPS, arrange
from vitreous.results import UNIT_COLUMNS, Column

REFERENCE = Path(__file__).absolute().parent / "reference"
TESTS = Path(__file__).absolute().parents[1] / "tests" / "measure" / "analyses"
MODELS = ("nano:vit", "nano:convit", "nano:resnet")
LONG = 8
"""Values of a default that are written out; of more, the first and the last are."""
UNIT = tuple(column.name for column in UNIT_COLUMNS)
NO_OPTIONS = "It has no options.\n"
GENERATED = re.compile(rf"(Default images: .*\n\n)?((\|.*\n)+|{NO_OPTIONS})?")
"""What stands first under a heading: a sentence on the images of an analysis, then the table."""


def _registry(name: str) -> Any:
    return probes if name in probes.own_names() else analyses


def page_of(name: str) -> Path:
    """The page of a probe or an analysis."""
    folder = "probes" if name in probes.own_names() else "analyses"
    return REFERENCE / folder / f"{name}.md"


def meanings(measurement: type[Any]) -> dict[str, str]:
    """What stands below each field, in the class itself or in one that it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(measurement.__mro__):
        if "__annotations__" not in vars(each) or not each.__module__.startswith("vitreous"):
            continue
        [body] = ast.parse(dedent(inspect.getsource(each))).body
        assert isinstance(body, ast.ClassDef)
        for node, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
                says = ast.literal_eval(after.value) if _is_text(after.value) else ""
                found[ast.unparse(node.target)] = " ".join(says.split())
    return found


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def write_default(value: Any) -> str:
    """A default as code; of a long sequence the first and the last value."""
    if isinstance(value, (tuple, list)) and len(value) > LONG:
        return f"`{value[0]!r}` … `{value[-1]!r}` ({len(value)} values)"
    return f"`{value!r}`"


def default_images(measurement: type[Any]) -> str:
    """On which images an analysis runs by default; empty for a probe, which has no default."""
    if not issubclass(measurement, Analysis):
        return ""
    says = f"Default images: at most {measurement.limit} of the split `{measurement.split}`."
    if measurement.fitted:
        says += f" It is fitted on the split `{measurement.fitted}`."
    if measurement.marked:
        says += " Their labels have to be classes of the model."
    return f"{says}\n\n"


def options_table(measurement: type[Any]) -> str:
    """A row for each option of a probe or an analysis: name, default, meaning."""
    says, defaults = meanings(measurement), measurement()
    rows = [
        (f"`{each.name}`", write_default(getattr(defaults, each.name)), says.get(each.name, ""))
        for each in fields(measurement)
        if each.init
    ]
    written = table(("option", "default", "meaning"), rows) if rows else NO_OPTIONS
    return default_images(measurement) + written


def columns_table(columns: Sequence[Column]) -> str:
    """A row for each column, those of an interval together, and those of the unit together."""
    return table(("column", "meaning"), _grouped(columns))


def _grouped(columns: Sequence[Column]) -> Iterator[tuple[str, str]]:
    names = {column.name for column in columns}
    if set(UNIT) <= names:
        where = ", ".join(f"`{name}`" for name in UNIT)
        yield where, "[The unit](../results.md#units) that the row is about."
        columns = [column for column in columns if column.name not in UNIT]
    others = [column for column in columns if column.name.removeprefix("other_") in names]
    others = [column for column in others if column.name.startswith("other_")]
    for column in columns:
        if column in others[1:]:
            continue
        if column in others:
            same = ", ".join(f"`{each.name}`" for each in others)
            yield same, "The same for the other unit of the pair."
            continue
        base = re.sub(r"_?(low|high)$", "", column.name) or "value"
        if base != column.name and base in names:
            continue  # an end of an interval stands with its value
        ends = [f"{column.name}_{end}" for end in ("low", "high")]
        ends = ["low", "high"] if column.name == "value" else ends
        ends = [end for end in ends if end in names]
        says = f"{column.says} Unit: {column.measure}." if column.measure else column.says
        if ends and not _is_interval(columns, ends[0]):  # such as the slowest and fastest pass
            says += f" `low`, `high`: {_lower(columns, ends)}."
        elif ends:
            says += " With its 95 % interval."
        yield ", ".join(f"`{name}`" for name in (column.name, *ends)), says


def _is_interval(columns: Sequence[Column], name: str) -> bool:
    return any("95 %" in column.says for column in columns if column.name == name)


def _lower(columns: Sequence[Column], names: Sequence[str]) -> str:
    says = {column.name: column.says for column in columns}
    return "; ".join(says[name][0].lower() + says[name][1:].rstrip(".") for name in names)


def with_table(text: str, heading: str, table: str) -> str:
    """The page with another first table, or another first sentence, under a heading."""
    start = text.index(f"## {heading}\n\n") + len(f"## {heading}\n\n")
    old = GENERATED.match(text[start:])
    assert old is not None
    rest = text[start + old.end() :]
    return text[:start] + table + (rest if rest.startswith("\n") else f"\n{rest}")


def index_table(registry: Any) -> str:
    """All probes, or all analyses, in the order of a report, with the first sentence of a page."""
    names = arrange(registry.own_names(), {})
    rows = []
    for group, inside in names.items():
        for name in inside:
            sentence = page_of(name).read_text(encoding="utf-8").split("\n\n")[1]
            rows.append((f"[{name}]({name}.md)", " ".join(sentence.split()), GROUPS[group]))
    return table(("name", "measures", "report"), rows)


def columns_of(names: Sequence[str]) -> dict[str, tuple[Column, ...]]:
    """The columns of the results of these measurements, from small runs."""
    asked = [name for name in names if name in probes.own_names()]
    data = {
        split: vitreous.data.load("world:shapes", split=split, size=16)
        for split in ("train", "test")
    }
    found: dict[str, tuple[Column, ...]] = {}
    if asked:
        inspection = vitreous.inspect(list(MODELS), data["test"], asked, device="cpu")
        found |= {name: inspection[name].columns for name in asked}
    for name in names:
        if name not in found:
            options = {name: quick_options(name)}
            models = ["nano:vit", "nano:resnet"]
            found[name] = vitreous.analyse(models, data, options, device="cpu")[name].columns
    return found


def quick_options(name: str) -> dict[str, Any]:
    """Options with which the tests of an analysis run it: `QUICK` in its test file."""
    text = (TESTS / f"test_{name}.py").read_text(encoding="utf-8")
    given = re.search(r"^QUICK: dict\[str, Any\] = (\{.*?\})$", text, re.MULTILINE | re.DOTALL)
    assert given is not None, name
    options: dict[str, Any] = ast.literal_eval(given[1])
    return options


def write(names: Sequence[str]) -> None:
    for name, columns in columns_of(names).items():
        page = page_of(name)
        text = page.read_text(encoding="utf-8")
        text = with_table(text, "Options", options_table(_registry(name).named(name)))
        page.write_text(with_table(text, "Columns", columns_table(columns)), encoding="utf-8")
    for registry, title in ((probes, "Probes"), (analyses, "Analyses")):
        index = REFERENCE / title.lower() / "index.md"
        text = index.read_text(encoding="utf-8")
        index.write_text(
            manual_tables.with_table(text, title, index_table(registry)), encoding="utf-8"
        )


if __name__ == "__main__":
    write(sys.argv[1:] or [*probes.own_names(), *analyses.own_names()])
