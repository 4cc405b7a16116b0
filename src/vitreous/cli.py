"""The command line: assembles the commands, and turns errors into one sentence and an exit code.

`--help` is quick, because nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import fields
from inspect import signature
from io import TextIOWrapper
from typing import Annotated, Any

from cyclopts import (
    App,
    CycloptsError,
    Parameter,
    UnknownOptionError,
    UnusedCliTokensError,
)

from vitreous import __version__
from vitreous.commands.anatomy import show_anatomy
from vitreous.commands.claims import claims_app
from vitreous.commands.data import show_data
from vitreous.commands.doctor import check_installation
from vitreous.commands.help_texts import HelpTexts, command_names
from vitreous.commands.inspect import analysis_command, analysis_help, inspect_models
from vitreous.commands.inspect_options import AnalysisOptions, InspectOptions, LiveOptions
from vitreous.commands.listing import list_app
from vitreous.commands.live import explore_models
from vitreous.commands.show import ShowOptions, show_photo
from vitreous.commands.study import pack_study, run_study, unpack_study
from vitreous.commands.terminal import complain
from vitreous.commands.train import TrainOptions, train_model
from vitreous.config import FIELDS
from vitreous.errors import VitreousError, for_command_line, reason
from vitreous.measure import analyses
from vitreous.plugins import in_your_code, is_reference

INTERNAL_ERROR = 70
"""Exit code of a bug in Vitreous: EX_SOFTWARE of `sysexits.h`."""

app = App(
    name="vitreous",
    help="See inside any vision model: inspect it, compare it, train it, check findings on it.",
    version=__version__,
    help_format="plaintext",  # markdown would take 0.2 s more to import
    default_parameter=Parameter(negative=(), show_default=False),
    group_parameters="Options",
    suppress_keyboard_interrupt=False,
)
app.command(show_anatomy, name="anatomy")
app.command(claims_app)
app.command(show_data, name="data")
app.command(check_installation, name="doctor")
app.command(inspect_models, name="inspect")
app.command(list_app)
app.command(explore_models, name="live")
app.command(pack_study, name="pack")
app.command(show_photo, name="show")
app.command(run_study, name="study")
app.command(train_model, name="train")
app.command(unpack_study, name="unpack")
app.help_formatter = HelpTexts("")
for _words, _command in command_names(app):
    _command.help_formatter = HelpTexts(_words)
COMMANDS = frozenset(app)
"""All commands but those of analyses."""


def add_analysis(name: str) -> None:
    """Add the command of an analysis: of ours, of an installed package, or `file.py:Class`."""
    summary = analyses.summary(name)
    texts = HelpTexts(name)
    run = analysis_command(name)
    app.command(run, name=name, group="Analyses", help=summary, help_formatter=texts)


for _name in analyses.own_names():
    add_analysis(_name)

HOW: dict[str, Any] = {
    "exit_on_error": False,
    "print_error": False,
    "result_action": "return_value",
}
"""How cyclopts runs a command here: errors are raised, and what a command returns is returned."""


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    debug: Annotated[bool, Parameter(help="Show the traceback of an error.")] = False,
) -> int:
    """Run a command and return its exit code; an error is one sentence and exit code 2."""
    try:
        return app(tokens, **HOW) or 0
    except KeyboardInterrupt as stop:
        complain(str(stop) or "Interrupted.")
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            raise
        return _report_error(error, tokens)


def _report_error(error: Exception, tokens: Sequence[str]) -> int:
    """Print an error as one sentence and return the exit code."""
    if isinstance(error, VitreousError):
        settings = FIELDS if tokens[:1] == ("train",) else ()
        complain(for_command_line(str(error), _option_names(tokens), settings))
        return error.code
    if isinstance(error, UnusedCliTokensError):
        complain(
            f"Nothing takes {' '.join(map(repr, error.unused_tokens or ()))}; "
            f"`vitreous {' '.join(tokens[:1])} --help` says how many values each option has."
        )
        return 2
    if isinstance(error, UnknownOptionError):
        complain(_unknown_option(error))
        return 2
    if isinstance(error, CycloptsError):
        complain(" ".join(str(error).split()))
        return 2
    if fault := in_your_code(error):
        complain(str(fault))
        return fault.code
    complain(
        f"Vitreous failed: {reason(error).rstrip('.')}. This is a bug, please report it; "
        f"`vitreous {' '.join(tokens)} --debug` shows the traceback."
    )
    return INTERNAL_ERROR


def _unknown_option(error: UnknownOptionError) -> str:
    """The error, and how to set what `--set` takes or where the options are listed."""
    flag = (error.token.keyword or error.token.value or "").partition("=")[0]
    name, command = flag.lstrip("-").replace("-", "_"), error.command_chain or ()
    settings: Container[str] = FIELDS if command == ("train",) else ()
    if len(command) == 1 and command[0] in analyses.own_names():
        settings = analyses.analysis_options(command[0])
    if name in settings:
        return f"Unknown option: {flag}. Write --set {name}=VALUE."
    sentence = " ".join(str(error).split())
    if "Did you mean" in sentence:
        return sentence
    return f"{sentence} `{' '.join(['vitreous', *command])} --help` lists the options."


def _option_names(tokens: Sequence[str]) -> list[str]:
    """Return the names of the given command's options, as Python spells them."""
    command = tokens[0] if tokens else ""
    functions: dict[str, Callable[..., Any]]
    functions = {"anatomy": show_anatomy, "data": show_data, "study": run_study}
    if command in functions:
        return list(signature(functions[command]).parameters)
    classes = {
        "inspect": InspectOptions,
        "live": LiveOptions,
        "show": ShowOptions,
        "train": TrainOptions,
    }
    if command in analyses.names() or is_reference(command):
        classes[command] = AnalysisOptions
    return [each.name for each in fields(classes[command])] if command in classes else []


def find_analysis(command: str) -> None:
    """Let the command line know plugins, if they may be asked for, and give the full help."""
    if command in COMMANDS:
        return
    for name in analyses.REGISTRY.plugins():
        if name not in app:
            add_analysis(name)
    if is_reference(command) and command not in app:
        add_analysis(command)
    if command in app:
        app[command].help = analysis_help(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `vitreous` command; `arguments` are those of the process by default."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    command = next((word for word in given if not word.startswith("-")), "")
    find_analysis(command)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may be any bytes
    code: int
    try:
        code = app.meta(given, **HOW) or 0
        sys.stdout.flush()
    except CycloptsError as error:
        complain(" ".join(str(error).split()))
        code = 2
    except (BrokenPipeError, SystemExit) as end:
        # the reader of a pipe has gone, as in `vitreous list models | head`; rich exits with 1
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
