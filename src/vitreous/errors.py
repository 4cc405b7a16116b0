"""Errors that are part of the interface: one sentence saying what was asked, what was found and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class VitreousError(Exception):
    """Anything a user can cause and can mend. The command line prints it without a traceback and exits with `code`."""

    code: ClassVar[int] = 2


class UnknownName(VitreousError):
    """A name that does not exist, with the nearest ones that do."""

    def __init__(self, what: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.nearest = nearest(name, known)
        meant = f" Did you mean {', '.join(self.nearest)}?" if self.nearest else ""
        super().__init__(f"There is no {what} {name!r}.{meant}{' ' + hint if hint else ''}")


class NotExportable(VitreousError):
    """A model whose graph cannot be read; names the line that stopped it and the way round."""


class VitreousWarning(UserWarning):
    """Something about a model that you should know, and that does not keep it from being measured."""


class BadImages(VitreousError):
    """Images of a shape, type or device the model was not opened for."""


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names closest to `name`, best first."""
    return get_close_matches(name, list(dict.fromkeys(known)), n=count, cutoff=0.5)
