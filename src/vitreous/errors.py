"""Errors for users: one sentence with what was asked, what is wrong and what to do."""

from __future__ import annotations

import re
import shlex
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import ClassVar

HOME = str(Path(__file__).parent)


class VitreousError(Exception):
    """An error a user can cause and fix; the command line prints it and exits with `code`.

    Examples
    --------
    >>> import vitreous
    >>> try:
    ...     vitreous.open("resnet17")
    ... except vitreous.VitreousError as error:
    ...     print(str(error).split(" Did")[0])
    There is no model 'resnet17'.
    """

    code: ClassVar[int] = 2


class UnknownName(VitreousError):
    """A name that does not exist, with the nearest ones that do."""

    def __init__(self, what: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.nearest = nearest_names(name, known)
        meant = f" Did you mean {', '.join(self.nearest)}?" if self.nearest else ""
        super().__init__(f"There is no {what} {name!r}.{meant}{' ' + hint if hint else ''}")


class NoSuchPath(VitreousError):
    """A path where nothing is, with the nearest names that are there.

    `prefix` and `suffix` are what surrounds the path in the user's words, as in `run:FOLDER`.
    """

    def __init__(
        self,
        what: str,
        path: str,
        purpose: str = "",
        hint: str = "",
        prefix: str = "",
        suffix: str = "",
    ) -> None:
        if path.startswith(("http:/", "https:/", "s3:/", "gs:/")):
            hint = f"Vitreous reads files: download it and give the path. {hint}".rstrip()
        self.nearest = [f"{prefix}{each}{suffix}" for each in nearest_paths(path)]
        meant = f" Did you mean {', '.join(map(shlex.quote, self.nearest))}?"
        super().__init__(
            f"There is no {what} {path!r}{purpose and ' ' + purpose}."
            f"{meant if self.nearest else ''}{hint and ' ' + hint}"
        )


class NotExportable(VitreousError):
    """A model whose graph cannot be exported; names the line that stopped it and a workaround."""


class VitreousWarning(UserWarning):
    """Something about a model that you should know; it can be measured all the same."""


class BadImages(VitreousError):
    """Images of a wrong shape, type or device."""


def nearest_names(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names closest to `name`, best first."""
    return get_close_matches(name, list(dict.fromkeys(known)), n=count, cutoff=0.5)


MAX_COMPARED = 5000
"""Maximum number of names in a folder that are compared with a mistyped one."""


def nearest_paths(given: str, count: int = 3) -> list[str]:
    """Paths that exist and differ from a mistyped one by the name of a folder or file, best first.

    >>> nearest_paths("phtos/cat/1.jpg")
    ['photos/cat/1.jpg']
    """
    try:
        path = Path(given).expanduser()
        existing = path  # its longest part that exists
        while not existing.exists():
            if existing == existing.parent:
                return []
            existing = existing.parent
        missing = path.relative_to(existing).parts
        if not missing:
            return []
        names = [each.name for each in islice(existing.iterdir(), MAX_COMPARED)]
    except (OSError, ValueError, RuntimeError):  # unreadable, a NUL character, no such user
        return []
    by_case = {name.casefold(): name for name in names if not name.startswith(".")}
    near = get_close_matches(missing[0].casefold(), by_case, n=count, cutoff=0.6)
    paths: list[str] = []
    for name in near:
        candidate = existing / by_case[name] / Path(*missing[1:])
        paths += [str(candidate)] if candidate.exists() else nearest_paths(str(candidate), count=1)
    return paths[:count]


class InYourCode(VitreousError):
    """An exception in the user's code: its traceback without our frames, then one sentence.

    The traceback begins in `file`, the plugin's, if it is given.
    """

    def __init__(self, name: str, error: BaseException, file: str = "") -> None:
        frames = traceback.extract_tb(error.__traceback__)
        files = [each.filename for each in frames]
        begin = files.index(file) if file in files else 0
        theirs = [each for each in frames[begin:] if not _is_ours(each.filename)]
        lines = [*traceback.format_list(theirs), *traceback.format_exception_only(error)]
        text = "".join(lines).rstrip("\n")
        super().__init__(
            f"{text}\n{name!r} failed in your own code, as shown above; mend it there."
        )


def _is_ours(file: str) -> bool:
    return file.startswith((HOME, "<frozen importlib"))


def reason(error: BaseException, file: str = "") -> str:
    """An error and its place in the code, in one line.

    The place is the innermost frame in `file` if the traceback has one, else the innermost of all.
    """
    if isinstance(error, VitreousError):
        return " ".join(str(error).split())
    message = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{message}."  # which names its own place
    all_frames = traceback.extract_tb(error.__traceback__)
    frames = [each for each in all_frames if each.filename == file] or all_frames
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{message}{place}."


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
    return re.sub(
        rf"{quoted}|(?<![\w.\"-])({names})=({_VALUE}|(?=[\s,;.)])(?! in Python))", rewrite, sentence
    )
