"""The texts of `--help`: paragraphs wrapped to the terminal's width, and an example of each option.

The manual's page of commands has the same examples, and a test parses all of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vitreous.measure import analyses
from vitreous.plugins import is_reference

if TYPE_CHECKING:
    from cyclopts import App
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

__all__ = ["ARGUMENTS", "EXAMPLES", "HelpTexts", "command_names", "example_of", "fill_paragraphs"]

EXAMPLES = {
    "--address": "--address auto",
    "--also": "--also nano",
    "--analyses": "--analyses lesion hessian",
    "--batch": "--batch 32",
    "--book": "--book my_findings.py:BOOK",
    "--classes": "--classes names.txt",
    "--crop": "--crop 0.875",
    "--data": "--data photos",
    "--device": "--device cuda:1",
    "--executor": "--executor ray",
    "--figures": "--figures figures",
    "--filter": "--filter '*convnext*'",
    "--fraction": "--fraction 0.1",
    "--head": "--head 2",
    "--image": "--image 224x160",
    "--interpolation": "--interpolation bicubic",
    "--iso": "--iso samples",
    "--limit": "--limit 64",
    "--mean": "--mean 0.485 0.456 0.406",
    "--only": "--only HDV-26,SLC-03",
    "--out": "--out report.html",
    "--paper": "--paper VIT",
    "--port": "--port 8080",
    "--probes": "--probes cka my_probe.py:TokenNorm",
    "--query": "--query 3,4",
    "--recipe": "--recipe hdv_cifar",
    "--results": "--results numbers",
    "--role": "--role my_model='vit pool=gap'",
    "--root": "--root downloads",
    "--scale": "--scale small",
    "--seed": "--seed 1",
    "--seeds": "--seeds 3",
    "--set": "--set cka.estimator=biased",
    "--size": "--size 300",
    "--split": "--split val",
    "--std": "--std 0.229 0.224 0.225",
    "--study": "--study zoo",
    "--teacher": "--teacher run:runs/teacher",
    "--test-size": "--test-size 100",
    "--top": "--top 3",
    "--unit": "--unit blocks.5.attn",
    "--until": "--until 25",
    "--weights": "--weights last.pth",
    "--workers": "--workers 4",
}
"""An example of each option that takes a value. A flag is its own example."""
OWN_EXAMPLES = {
    "--out": {
        "anatomy": "--out anatomy.svg",
        "claims judge": "--out verdicts.csv",
        "data": "--out sheet.png",
        "live": "--out reports",
        "pack": "--out evidence.zip",
        "show": "--out photo.png",
        "study": "--out studies/cifar10",
        "train": "--out runs/first",
        "unpack": "--out studies/cifar10",
    },
    "--set": {"lesion": "--set what=skips", "train": "--set epochs=20"},
    "--image": {"study": "--image 32"},
    "--device": {"study": "--device cpu"},
}
"""Examples of options that mean something else in some commands."""
ARGUMENTS = {
    "ARCHIVES": "evidence.zip",
    "FOLDER": "studies/cifar10",
    "ID": "VIT-13",
    "MODEL": "nano:vit",
    "MODELS": "nano:vit",
    "NAME": "world:shapes",
    "PHOTO": "photo.jpg",
}
"""An example of each argument."""


def example_of(command: str, option: str) -> str:
    """Return how an option of a command is given; a flag is its own example."""
    if command in OWN_EXAMPLES.get(option, {}):
        return OWN_EXAMPLES[option][command]
    if option == "--set" and (command in analyses.names() or is_reference(command)):
        return _setting_of(command)
    return EXAMPLES.get(option, option)


def _setting_of(analysis: str) -> str:
    """Return `--set` with the default of the simplest option of an analysis, if it has any."""
    options = analyses.analysis_options(analysis)
    settings = [f"{name}={default}" for name, (default, _) in options.items()]
    if not settings:
        return ""
    simplest = min(settings, key=lambda each: "(" in each)
    text = simplest.replace("'", "").replace("(", "[").replace(",)", "]").replace(")", "]")
    return f"--set {shlex.quote(text)}"


def fill_paragraphs(text: str) -> str:
    """Join the lines of each paragraph, so that the terminal breaks them; indented ones stay.

    Examples
    --------
    >>> fill_paragraphs("Two\\nlines.\\n\\n    as\\n    it is")
    'Two lines.\\n\\n    as\\n    it is'
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        each if re.search(r"^\s", each, re.MULTILINE) else " ".join(each.split())
        for each in paragraphs
    )


class HelpTexts:
    """Prints the help of a command as cyclopts does, with wrapped paragraphs and examples."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __call__(self, console: Console, options: ConsoleOptions, panel: Any) -> None:
        """Print a box of arguments, options or commands."""
        for entry in panel.entries:
            text = getattr(entry.description, "primary_renderable", None)
            if text is not None and hasattr(text, "plain"):
                text.plain = fill_paragraphs(text.plain) + self._example(entry)
        _formatter()(console, options, panel)

    def _example(self, entry: Any) -> str:
        """Return the sentence with the example of an option that takes a value."""
        option = next(iter(entry.names), "")
        example = example_of(self.command, option)
        return f" Example: {example}" if example not in ("", option) else ""

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print the line of usage."""
        _formatter().render_usage(console, options, usage)

    def render_description(
        self, console: Console, options: ConsoleOptions, description: Any
    ) -> None:
        """Print what the command does."""
        text: Text | None = getattr(description, "primary_renderable", description)
        if text is not None and hasattr(text, "plain"):
            text.plain = fill_paragraphs(text.plain)
        _formatter().render_description(console, options, description)


def _formatter() -> Any:
    from cyclopts.help import DefaultFormatter  # rich comes with it, and only --help needs it

    return DefaultFormatter()


def command_names(parent: App, words: tuple[str, ...] = ()) -> Iterator[tuple[str, App]]:
    """Yield every command with its words, as `claims list`."""
    for name in parent:
        if name.startswith("-"):
            continue
        command = parent[name]
        if command.default_command is None:
            yield from command_names(command, (*words, name))
        else:
            yield " ".join((*words, name)), command
