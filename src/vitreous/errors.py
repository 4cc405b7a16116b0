"""Errors that are part of the interface: one sentence saying what was asked, what was found and
what to do."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar

HOME = str(Path(__file__).parent)


class VitreousError(Exception):
    """Anything a user can cause and can mend. The command line prints it without a traceback and
    exits with `code`."""

    code: ClassVar[int] = 2


class UnknownName(VitreousError):
    """A name that does not exist, with the nearest ones that do."""

    def __init__(self, what: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.nearest = nearest_names(name, known)
        meant = f" Did you mean {', '.join(self.nearest)}?" if self.nearest else ""
        super().__init__(f"There is no {what} {name!r}.{meant}{' ' + hint if hint else ''}")


class NotExportable(VitreousError):
    """A model whose graph cannot be read; names the line that stopped it and the way round."""


class VitreousWarning(UserWarning):
    """Something about a model that you should know, and that does not keep it from being
    measured."""


class BadImages(VitreousError):
    """Images of a shape, type or device the model was not opened for."""


def nearest_names(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names closest to `name`, best first."""
    return get_close_matches(name, list(dict.fromkeys(known)), n=count, cutoff=0.5)


class InYourCode(VitreousError):
    """Something that a function of the user's raised: where in their file first, then our
    sentence."""

    def __init__(self, name: str, error: BaseException) -> None:
        frames = [
            each
            for each in traceback.extract_tb(error.__traceback__)
            if not _is_ours(each.filename)
        ]
        shown = "".join(
            [*traceback.format_list(frames), *traceback.format_exception_only(error)]
        ).rstrip("\n")
        super().__init__(
            f"{shown}\n{name!r} failed in your own code, as shown above; mend it there."
        )


def _is_ours(file: str) -> bool:
    return file.startswith((HOME, "<frozen importlib"))


def reason(error: BaseException) -> str:
    """What went wrong and where, in one line: what a bug report needs."""
    if isinstance(error, VitreousError):
        return " ".join(str(error).split())
    where = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(where[-1].filename).name}, line {where[-1].lineno})" if where else ""
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}{place}."


_VALUE = r"(?:\([^()]*\)|'[^']*'|[\w.:/+-]*[\w/])"


def for_command_line(sentence: str, options: Iterable[str], settings: Iterable[str] = ()) -> str:
    """A sentence that speaks of arguments as Python has them, `image=224`, for people who type
    `--image 224`.

    Errors are raised far below any command and say `name=value`. Only the options of the command
    that was given are translated, and nothing within quotes or after a dot, which is somebody's own
    text. `settings` are given with `--set`.
    """
    known = {*options, *(() if "--set" in sentence else settings)}
    names = "|".join(sorted(map(re.escape, known), key=len, reverse=True))
    if not names:
        return sentence

    def said(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        if found[1] not in options:
            return f"--set {found[0]}"
        flag, value = f"--{found[1].replace('_', '-')}", found[2].strip("'")
        if value == "True":
            return flag
        if value.startswith("("):
            value = "x".join(part.strip() for part in value.strip("()").split(","))
        return f"{flag} {value}".strip()

    quoted = r"(?<![\w=])'[^']*'"
    return re.sub(rf"{quoted}|(?<![\w.\"-])({names})=({_VALUE}|(?=[\s,;.)]))", said, sentence)
