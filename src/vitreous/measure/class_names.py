"""Read the names of a model's classes from a file, or from the names themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitreous.data.sources.listing import enumerate_few
from vitreous.errors import NoSuchPath, VitreousError

ClassNames = Path | str | Sequence[str] | Mapping[Any, str]
"""A file of names, or the names in the order of a model's scores."""


def read_class_names(classes: ClassNames) -> tuple[str, ...]:
    """Names of a model's classes in the order of its scores.

    Parameters
    ----------
    given
        A text file with one name a line, a JSON file with a list or with numbers and names (also
        the `config.json` of Hugging Face), or the names themselves.

    Examples
    --------
    >>> read_class_names(["cat", "dog"])
    ('cat', 'dog')
    """
    where = "classes"
    if isinstance(classes, (str, Path)):
        where, classes = str(classes), _read_names(Path(classes).expanduser())
    if isinstance(classes, Mapping):
        try:
            numbered = {int(number): name for number, name in classes.items()}
        except (TypeError, ValueError):
            numbered = {}
        if sorted(numbered) != list(range(len(numbered))) or not numbered:
            raise VitreousError(f"{where!r} does not number its classes from 0; list their names.")
        classes = [numbered[number] for number in range(len(numbered))]
    names = tuple(str(name).strip() for name in classes)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not any(names) or "" in names:
        problem = f"has {enumerate_few(twice)} twice" if twice else "has a class without a name"
        if not any(names):
            problem = "names no classes"
        raise VitreousError(f"{where!r} {problem}; give one name for each class of the model.")
    return names


def _read_names(path: Path) -> Sequence[str] | Mapping[Any, str]:
    if not path.exists():
        raise NoSuchPath("file", str(path), "of class names")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not a text file"
        raise VitreousError(f"Cannot read the class names in {str(path)!r}: {why}.") from None
    if path.suffix != ".json":
        return text.strip("\n").split("\n")
    try:
        content = json.loads(text)
    except ValueError as error:
        raise VitreousError(f"{str(path)!r} is no JSON: {error}.") from None
    if isinstance(content, Mapping) and isinstance(content.get("id2label"), Mapping):
        content = content["id2label"]
    if not isinstance(content, (list, Mapping)):
        raise VitreousError(f"{str(path)!r} holds neither a list of names nor numbers and names.")
    return content
