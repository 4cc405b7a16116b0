"""The books in use: the four of this package, those of installed packages, and those given by name.

An installed package declares its book as an entry point of the group `vitreous.books`. Any other
book is given as `mypkg.module:BOOK` or `path/file.py:BOOK`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from vitreous.claims.book import Book
from vitreous.errors import VitreousError
from vitreous.plugins import BOOK, absolute_name, installed_objects, load_object

log = logging.getLogger("vitreous")
PAPERS = ("park_2022", "raghu_2021", "dosovitskiy_2021", "dascoli_2021")
"""The papers of this package: each has a package of checks here, and its texts in `books/`."""
GIVEN: dict[str, Book] = {}
"""Books given with `--book` or `use_books`, by the name they were given by."""


def use_books(names: Iterable[str]) -> list[Book]:
    """Add books to those in use in this process.

    Parameters
    ----------
    names
        Of each `mypkg.module:BOOK` or `path/file.py:BOOK`.

    Examples
    --------
    >>> [book] = use_books(["fifth_paper:BOOK"])
    >>> book.paper.key
    'REG'
    """
    return [_use_book(absolute_name(name)) for name in names]


def _use_book(name: str) -> Book:
    if name not in GIVEN:
        book = load_object(name, BOOK, _is_book)
        _check_books(_unique([*_named_books(), (name, book)]))
        if name not in [each.text for each in installed_objects(BOOK.group)]:
            # so that the commands that verdicts suggest contain --book
            book.claims = {id: replace(each, source=name) for id, each in book.claims.items()}
        GIVEN[name] = book
    return GIVEN[name]


def _is_book(found: Any) -> bool:
    return isinstance(found, Book)


def every_book() -> list[Book]:
    """All books in use; one that is installed and also given counts once."""
    named = _named_books()
    _check_books(named)
    return [book for _, book in named]


def _named_books() -> list[tuple[str, Book]]:
    """All books in use with their names, each book once."""
    named: list[tuple[str, Book]] = [
        (paper, import_module(f"vitreous.claims.{paper}").BOOK) for paper in PAPERS
    ]
    for each in installed_objects(BOOK.group):
        book = _installed_book(each.text, each.package)
        if book is None:
            continue
        try:
            _check_books(_unique([*named, (each.text, book)]))
        except VitreousError as error:
            _leave_out(each.package, str(error))
        else:
            named.append((each.text, book))
    return _unique([*named, *GIVEN.items()])


def _unique(named: Iterable[tuple[str, Book]]) -> list[tuple[str, Book]]:
    """Each book once, under its first name."""
    unique: dict[int, tuple[str, Book]] = {}
    for name, book in named:
        unique.setdefault(id(book), (name, book))
    return list(unique.values())


@cache
def _installed_book(name: str, package: str) -> Book | None:
    """The book of an installed package; None, with a warning, if it cannot be used."""
    try:
        book: Book = load_object(name, BOOK, _is_book)
        _check_complete(name, book)
    except VitreousError as error:
        _leave_out(package, str(error))
        return None
    return book


@cache
def _leave_out(package: str, why: str) -> None:
    """Warn, once per process, that the findings of a package are not used."""
    log.warning("The findings of the package %s are left out: %s", package, why)


def _check_books(named: Sequence[tuple[str, Book]]) -> None:
    """Raise an error if two books share a key or an id, or if one is incomplete."""
    keys: dict[str, str] = {}
    owners: dict[str, str] = {}
    for name, book in named:
        if (other := keys.setdefault(book.paper.key.upper(), name)) != name:
            raise VitreousError(
                f"The books {other} and {name} both have the key {book.paper.key!r}; give one of "
                "them another."
            )
        for id in book.entries:
            if (other := owners.setdefault(id.upper(), name)) != name:
                raise VitreousError(
                    f"The books {other} and {name} both have a finding {id!r}; give one of them "
                    "another id."
                )
        _check_complete(name, book)


def _check_complete(name: str, book: Book) -> None:
    for id in book.entries:
        if id not in book.claims:
            raise VitreousError(
                f"The finding {id!r} of the book {name} has no check: enter a function under "
                f'@BOOK.check("{id}").'
            )
