"""Errors for users: one sentence with what was asked, what is wrong and what to do."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar

HOME = str(Path(__file__).parent)


class VitreousError(Exception):
    """An error a user can cause and fix; the command line prints it and exits with `code`."""

    code: ClassVar[int] = 2


class UnknownName(VitreousError):
    """A name that does not exist, with the nearest ones that do."""

    def __init__(self, what: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.nearest = nearest_names(name, known)
        meant = f" Did you mean {', '.join(self.nearest)}?" if self.nearest else ""
        super().__init__(f"There is no {what} {name!r}.{meant}{' ' + hint if hint else ''}")


class NotExportable(VitreousError):
    """A model whose graph cannot be exported; names the line that stopped it and a workaround."""


class VitreousWarning(UserWarning):
    """Something about a model that you should know; it can be measured all the same."""


class BadImages(VitreousError):
    """Images of a wrong shape, type or device."""


def nearest_names(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names closest to `name`, best first."""
    return get_close_matches(name, list(dict.fromkeys(known)), n=count, cutoff=0.5)


class InYourCode(VitreousError):
    """An exception in the user's code: its traceback without our frames, then one sentence.

    Of a plugin that we have called, `file` is where the traceback begins.
    """

    def __init__(self, name: str, error: BaseException, file: str = "") -> None:
        frames = traceback.extract_tb(error.__traceback__)
        files = [each.filename for each in frames]
        begin = files.index(file) if file in files else 0
        theirs = [each for each in frames[begin:] if not _is_ours(each.filename)]
        lines = [*traceback.format_list(theirs), *traceback.format_exception_only(error)]
        shown = "".join(lines).rstrip("\n")
        super().__init__(
            f"{shown}\n{name!r} failed in your own code, as shown above; mend it there."
        )


def _is_ours(file: str) -> bool:
    return file.startswith((HOME, "<frozen importlib"))


def reason(error: BaseException, file: str = "") -> str:
    """An error and its place in one line: the last one in `file`, else the last of all."""
    if isinstance(error, VitreousError):
        return " ".join(str(error).split())
    says = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{says}."  # which names its own place
    where = traceback.extract_tb(error.__traceback__)
    within = [each for each in where if each.filename == file] or where
    place = f" ({Path(within[-1].filename).name}, line {within[-1].lineno})" if within else ""
    return f"{says}{place}."


_VALUE = r"(?:\([^()]*\)|'[^']*'|[\w.:/+-]*[\w/])"


def for_command_line(sentence: str, options: Iterable[str], settings: Iterable[str] = ()) -> str:
    """Rewrite arguments in Python's form, `image=224`, as options of the command line, `--image
    224`.

    Errors are raised far below any command and say `name=value`. Only `options` of the command are
    rewritten, and nothing within quotes or after a dot, which is the user's text. `settings` become
    `--set name=value`.
    """
    known = {*options, *(() if "--set" in sentence else settings)}
    names = "|".join(sorted(map(re.escape, known), key=len, reverse=True))
    if not names:
        return sentence

    def rewrite(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        if match[1] not in options:
            return f"--set {match[0]}"
        flag, value = f"--{match[1].replace('_', '-')}", match[2].strip("'")
        if value == "True":
            return flag
        if value.startswith("("):
            value = "x".join(part.strip() for part in value.strip("()").split(","))
        return f"{flag} {value}".strip()

    quoted = r"(?<![\w=])'[^']*'"
    return re.sub(rf"{quoted}|(?<![\w.\"-])({names})=({_VALUE}|(?=[\s,;.)]))", rewrite, sentence)
