"""Tables of the manual that come from code, and stand in pages that are otherwise written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

TABLE = re.compile(r"(\|.*\n)+")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; bars within cells are escaped."""
    cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    first, *others = [f"| {' | '.join(line)} |\n" for line in (head, *cells)]
    return "".join([first, f"|{'---|' * len(head)}\n", *others])


def with_table(text: str, heading: str, new: str) -> str:
    """The page with another first table below a heading (of any level, or the page's title)."""
    found = re.search(rf"^#+ {re.escape(heading)}\n", text, re.MULTILINE)
    assert found is not None, heading
    old = TABLE.search(text, found.end())
    assert old is not None, heading
    return text[: old.start()] + new + text[old.end() :]
