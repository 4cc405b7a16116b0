"""The command line: assembles the commands, and turns errors into one sentence and an exit code.

Quick to answer, because nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from inspect import signature
from io import TextIOWrapper
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from vitreous import __version__
from vitreous.commands.anatomy import anatomy
from vitreous.commands.claims import claiming
from vitreous.commands.data import data
from vitreous.commands.doctor import doctor
from vitreous.commands.inspect import analysis, analysis_help, inspect
from vitreous.commands.listing import listing
from vitreous.commands.options import Alone
from vitreous.commands.options import Options as InspectOptions
from vitreous.commands.study import study
from vitreous.commands.terminal import complain
from vitreous.commands.train import Options as TrainOptions
from vitreous.commands.train import train
from vitreous.config import FIELDS
from vitreous.errors import VitreousError, for_command_line, reason
from vitreous.measure import analyses

UNFORESEEN = 70
"""Exit code of a fault of ours, which `sysexits.h` calls EX_SOFTWARE."""

app = App(
    name="vitreous",
    help="See through any vision model: open it, look inside, intervene.",
    version=__version__,
    help_format="plaintext",  # markdown would take 0.2 s more to import
    default_parameter=Parameter(negative=(), show_default=False),
    suppress_keyboard_interrupt=False,
)
for _command in (anatomy, claiming, data, doctor, inspect, listing, study, train):
    app.command(_command)
for _name in analyses.names():
    app.command(
        analysis(_name),
        name=_name,
        group="Questions that need many passes",
        help=analyses.summary(_name),
    )


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    debug: Annotated[bool, Parameter(help="Show the traceback of an error.")] = False,
) -> int:
    """Every command goes through here, so that errors look alike: one sentence, exit code 2."""
    try:
        return (
            app(tokens, exit_on_error=False, print_error=False, result_action="return_value") or 0
        )
    except KeyboardInterrupt as stop:
        complain(str(stop) or "Interrupted.")
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            raise
        return _explained(error, tokens)


def _explained(error: Exception, tokens: Sequence[str]) -> int:
    """Say what went wrong; the exit code. What nobody foresaw is a fault of ours, and still one sentence."""
    if isinstance(error, VitreousError):
        complain(
            for_command_line(
                str(error), _options(tokens), FIELDS if tokens[:1] == ("train",) else ()
            )
        )
        return error.code
    if isinstance(error, CycloptsError):
        complain(" ".join(str(error).split()))
        return 2
    again = f"`vitreous {' '.join(tokens)} --debug` shows where"
    complain(
        f"Vitreous failed: {reason(error).rstrip('.')}. This is a fault of ours, please report it; {again}."
    )
    return UNFORESEEN


def _options(tokens: Sequence[str]) -> list[str]:
    """Names of the options of the command that was given, as Python spells them."""
    command = tokens[0] if tokens else ""
    kinds = {"inspect": InspectOptions, "train": TrainOptions}
    if command in kinds or command in analyses.names():
        return [each.name for each in fields(kinds.get(command, Alone))]
    known: dict[str, Callable[..., Any]] = {"anatomy": anatomy, "data": data, "study": study}
    return list(signature(known[command]).parameters) if command in known else []


def main(arguments: Sequence[str] | None = None) -> None:
    """The `vitreous` command."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    asked = next((word for word in given if not word.startswith("-")), "")
    if asked in analyses.names():
        app[asked].help = analysis_help(asked)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may be any bytes
    code: int
    try:
        code = (
            app.meta(given, exit_on_error=False, print_error=False, result_action="return_value")
            or 0
        )
        sys.stdout.flush()
    except CycloptsError as error:
        complain(" ".join(str(error).split()))
        code = 2
    except (
        BrokenPipeError,
        SystemExit,
    ) as end:  # `vitreous list models | head` has seen enough; rich exits with 1
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
