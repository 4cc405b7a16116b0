"""Printing for people, and what several commands share: options, and names of files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, Token

from vitreous.image_size import ImageSize, parse_image
from vitreous.storage.file_names import MAX_LENGTH, model_words, shorten_name
from vitreous.validation import parse_limit

if TYPE_CHECKING:
    from rich.console import Console


def _image(type_: Any, tokens: Sequence[Token]) -> int | tuple[int, ...]:
    return parse_image(tokens[0].value)


if TYPE_CHECKING:
    ImageOption = ImageSize
else:  # cyclopts takes one word for a string, and several for a tuple
    Size = type("Size", (str,), {})  # --help says --image SIZE
    ImageOption = Annotated[Size, Parameter(converter=_image)]
"""`--image 224`, `--image 224x160` or `--image 3x224x160`, in every command that takes it."""


def _limit(type_: Any, tokens: Sequence[Token]) -> int | Literal["all"]:
    return parse_limit(tokens[0].value) or "all"


if TYPE_CHECKING:
    LimitOption = int | Literal["all"]
else:
    Number = type("Number", (str,), {})
    LimitOption = Annotated[Number, Parameter(converter=_limit)]
"""`--limit 64` or `--limit all`."""


def console(stderr: bool = False) -> Console:
    """Return a console as wide as the terminal; 120 columns for a file or pipe."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 120)


def complain(sentence: str) -> None:
    """Print an error or a problem in red to stderr."""
    console(stderr=True).print(sentence, style="red", highlight=False, markup=False, soft_wrap=True)


def default_file_name(command: str, models: Sequence[str], ending: str) -> str:
    """Return the name of a file that a command writes about models: what it is and of what.

    Folders in a model's name are left out, and of several models the first two are named.

    >>> default_file_name("inspect", ["nano:vit", "hf:google/vit-base"], ".html")
    'inspect-nano-vit-hf-vit-base.html'
    """
    shown = ["-".join(model_words(name)) for name in models[:2]]
    if len(models) > 2:
        shown = [shown[0], f"and-{len(models) - 1}-more"]
    return f"{shorten_name('-'.join([command, *shown]), MAX_LENGTH)}{ending}"
