"""Write `command-line.md`: every command with its arguments and options, from the command line.

    python docs/generate_commands.py

Meaning, default and example of each option are what `--help` says. A test gives the examples to the
command line, and compares the page with what this file would write.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

sys.path.insert(0, str(Path(__file__).absolute().parent))

from manual_tables import table

from vitreous.cli import app
from vitreous.commands.help_texts import command_names, example_of
from vitreous.measure import analyses

PAGE = Path(__file__).absolute().parent / "reference" / "command-line.md"

INTRODUCTION = """# Command line

`vitreous --help` lists the commands, `vitreous COMMAND --help` the options of one. Names of models,
data, probes and recipes are checked before torch is imported, so a typing mistake is reported
within a second. Options that take several values take them after one another
(`--probes cka variance`); options that may be repeated are given again (`--set a=1 --set b=2`).
`vitreous --version` prints the version, and `--debug` shows the traceback of an error.

```console
$ vitreous inspect nano:vit --probes acuracy
There is no probe 'acuracy'. Did you mean accuracy
```

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the report lacks a part that could not be drawn, or `vitreous doctor` found a problem |
| 2 | a mistake that you can fix: one sentence says what was asked, what was found and what to do |
| 70 | a bug in Vitreous: please report it; `--debug` shows the traceback |
| 130 | interrupted with Ctrl-C |

<!-- Written by docs/generate_commands.py. -->
"""

SNIPPETS = {
    "anatomy": """```console
$ vitreous anatomy nano:resnet --out resnet.json
■ conv
Wrote resnet.json
```
""",
    "data": """```console
$ vitreous data world:shapes --split test --size 100 --out shapes.png
images       100 of 32×32
Wrote shapes.png
$ vitreous data fodler:photos
There is no source of images 'fodler'. Did you mean folder?
```
""",
    "list probes": """```console
$ vitreous list probes
accuracy … Top-1 and top-5 accuracy
```
""",
}
"""Commands that are run, with a part of what they print."""
MORE = {
    "anatomy": "[Open a model](../how-to/open.md)",
    "claims judge": "[Claims and verdicts](claims.md)",
    "data": "[Datasets](data.md)",
    "inspect": "[Probes](probes/index.md), [analyses](analyses/index.md)",
    "show": "[Show what a model looks at](../how-to/show.md)",
    "study": "[Run a study](../how-to/study.md), [all studies](studies.md)",
    "train": "[Recipes](recipes.md), [run folder](formats.md#run-folder)",
}
"""Pages that say more."""
ONE_ANALYSIS = "lesion"
"""The analysis whose options stand for all: the table has their common ones."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its words, `claims list`, those of analyses left out."""
    return (each for each in command_names(app) if each[0] not in analyses.own_names())


def arguments(command: Any) -> list[Any]:
    """The arguments and options of a command, in the order of `--help`."""
    found = command.assemble_argument_collection(
        parse_docstring=True, default_parameter=app.default_parameter
    )
    return [each for each in found if each.show]


def help_of(argument: Any) -> str:
    return " ".join((argument.parameter.help or "").split())


DEFAULT = re.compile(r" ?\(default: ([^()]*(?:\([^()]*\)[^()]*)*)\)")


def default_of(argument: Any) -> str:
    """The default as `--help` says it; for a flag that says nothing, off."""
    said = DEFAULT.search(help_of(argument))
    if said is not None:
        return said[1]
    if argument.index is not None:
        return "required" if argument.required else "none"
    return "off" if argument.hint is bool else "none"


def row(words: str, argument: Any) -> tuple[str, str, str]:
    """Name, default, meaning and example of an argument or an option."""
    name = argument.names[0]
    says = DEFAULT.sub("", help_of(argument))
    if argument.index is not None:
        return f"`{name}`", default_of(argument), says
    example = example_of(words, name)
    return (
        f"`{name}`",
        default_of(argument),
        says + (f" Example: `{example}`" if example != name else ""),
    )


def prose(text: str) -> tuple[str, list[str]]:
    """The first paragraph of a command's docstring, and its examples as commands."""
    paragraphs = [" ".join(each.split()) for each in text.split("Parameters\n")[0].split("\n\n")]
    examples = [each.partition(": ")[2] for each in paragraphs if ": vitreous " in each]
    plain = [each for each in paragraphs if each and ": vitreous " not in each]
    return "\n\n".join(_code(each) for each in plain), examples


def _code(text: str) -> str:
    """Options and commands within prose, set as code."""
    text = re.sub(r"(torchrun .*)$", r"`\1`", text)
    return re.sub(r"(?<![`\w-])(--[a-z-]+)(?![\w`-]|.*`$)", r"`\1`", text)


def section(words: str, command: Any) -> str:
    says, examples = prose(command.help or "")
    parts = [f"## {words}", says]
    shown = [each for each in examples if each not in SNIPPETS.get(words, "")]
    if shown:
        lines = [fill(f"$ {each}", 84, subsequent_indent="    ") for each in shown]
        parts.append(
            "\n".join(["```text", *(each.replace("\n", " \\\n") for each in lines), "```"])
        )
    if words in SNIPPETS:
        parts.append(SNIPPETS[words].rstrip())
    rows = [row(words, each) for each in arguments(command)]
    if rows:
        parts.append(table(("argument or option", "default", "meaning"), rows).rstrip())
    if words in MORE:
        parts.append(f"More: {MORE[words]}.")
    return "\n\n".join(parts) + "\n"


def analyses_section() -> str:
    """The commands of analyses, which have the same options."""
    tables = {
        name: [row(ONE_ANALYSIS, each) for each in arguments(app[name])]
        for name in analyses.own_names()
    }
    assert all(each == tables[ONE_ANALYSIS] for each in tables.values())
    names = [
        (f"[{name}](analyses/{name}.md)", analyses.summary(name)) for name in analyses.own_names()
    ]
    return "\n\n".join([
        "## Analyses",
        "Each analysis is a command. All have these options; `--set` takes the options of the "
        "analysis,\nwhich are on its page and in its `--help`. An analysis of your own is a "
        "command, too:\n`vitreous my_analysis.py:Mirror nano:vit`.",
        "```text\n$ vitreous lesion nano:vit nano:resnet --set what=skips --out lesion.html\n```",
        table(("command", "measures"), names).rstrip(),
        table(("argument or option", "default", "meaning"), tables[ONE_ANALYSIS]).rstrip(),
    ]) + "\n"  # fmt: skip


def page() -> str:
    """The whole page."""
    return "\n".join(
        [INTRODUCTION, *(section(*each) for each in sorted(commands())), analyses_section()]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
