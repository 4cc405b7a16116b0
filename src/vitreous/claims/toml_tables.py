"""Read the TOML file of a book and check every entry; errors are one sentence each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from vitreous.errors import UnknownName, VitreousError

Entries = Mapping[str, type[Any]]
"""The entries that a table takes, and the type of each."""

WORDS: Mapping[type[Any], str] = {
    str: "text in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number with a decimal point",
    list: "a list",
    dict: "a table",
}
"""Descriptions of the types, for errors."""
_TWICE = re.compile(r"Cannot declare \('(.*?)',?\) twice \(at line (\d+)")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; an error names the file and the line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or str(error)
        raise VitreousError(f"The book {str(path)!r} cannot be read: {why}.") from None
    except tomllib.TOMLDecodeError as error:
        if twice := _TWICE.match(str(error)):
            raise VitreousError(
                f"{str(path)!r} has two tables [{twice[1]}], the second in line {twice[2]}; give "
                "one of them another id."
            ) from None
        raise VitreousError(f"{str(path)!r} is no valid TOML: {error}.") from None
    except UnicodeDecodeError as error:
        raise VitreousError(f"{str(path)!r} is not text in UTF-8: {error.reason}.") from None


def check_entries(table: Any, where: str, required: Entries, optional: Entries) -> None:
    """Raise an error unless a table has all required entries, no unknown ones, and the right types.

    Parameters
    ----------
    table
        The parsed table.
    where
        Its name in errors: "[REG-01] in registers.toml".
    """
    if not isinstance(table, dict):
        raise VitreousError(f"{where} has to be a table, not {table!r}.")
    known = {**required, **optional}
    for name in table:
        if name not in known:
            raise UnknownName("entry", name, known, f"{where} takes {', '.join(known)}.")
    if missing := [name for name in required if name not in table]:
        raise VitreousError(f"{where} lacks {', '.join(missing)}.")
    for name, value in table.items():
        if type(value) is not known[name]:
            raise VitreousError(
                f"{where} has {name} = {value!r}, and that has to be {WORDS[known[name]]}."
            )
        if isinstance(value, float) and not isfinite(value):
            raise VitreousError(f"{where} has {name} = {value!r}, and that has to be finite.")
