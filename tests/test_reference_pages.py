"""Pages of the manual whose tables come from the code say what the code says.

Those of probes and analyses are checked with their contracts, those of models, recipes and
corruptions beside the tests of these.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from generators import generator
from other_books import forgotten_books
from vitreous.cli import app, main
from vitreous.commands.help_texts import ARGUMENTS, example_of
from vitreous.measure import analyses, probes

commands = generator("commands")
ONE = commands.ONE_ANALYSIS
EVERY = {**dict(commands.commands()), ONE: app[ONE]}
"""All commands, of the analyses one; the page is made only if they have the same options."""
HOW: dict[str, Any] = {"exit_on_error": False, "print_error": False}


def options(command: Any) -> Iterator[Any]:
    return (each for each in commands.arguments(command) if each.index is None)


def test_the_page_of_commands_is_up_to_date() -> None:
    assert commands.PAGE.read_text(encoding="utf-8") == commands.page(), (
        "run python docs/generate_commands.py"
    )


def test_every_command_is_on_the_page_and_has_an_example() -> None:
    known = {name for name in app if not name.startswith("-")}
    assert {words.partition(" ")[0] for words in EVERY} == known - {*analyses.own_names()} | {ONE}
    for words, command in EVERY.items():
        assert words == ONE or f"Example: vitreous {words}" in command.help, words


@pytest.mark.parametrize("words", EVERY)
def test_help_has_the_examples(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*words.split(), "--help"])
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for option in options(EVERY[words]):
        example = example_of(words, option.names[0])
        assert example in printed
        assert option.names[0] == example or f" Example: {example} " in printed


@pytest.mark.parametrize("words", EVERY)
def test_options_have_a_meaning_a_true_default_and_an_example(words: str) -> None:
    given = [ARGUMENTS[each.names[0]] for each in commands.arguments(EVERY[words])
             if each.index is not None and each.required]  # fmt: skip
    for option in options(EVERY[words]):
        says, default = commands.help_of(option), option.field_info.default
        assert says.endswith((".", ")")), (option.names, says)
        if default not in (None, (), False, 0, "") and str(default) != ".":
            assert str(default) in commands.default_of(option), option.names
        example = example_of(words, option.names[0])
        assert example.startswith(option.names[0])
        tokens = [*words.split(), *given, *shlex.split(example)]
        assert app.parse_args(tokens, **HOW)[1].arguments


@pytest.mark.parametrize("kind", ["probes", "analyses"])
def test_the_list_of_measurements_is_up_to_date(kind: str) -> None:
    script = generator("measurements")
    listed = script.index_table({"probes": probes, "analyses": analyses}[kind])
    text = (script.REFERENCE / kind / "index.md").read_text(encoding="utf-8")
    assert f"\n{listed}\n" in text, "run python docs/generate_measurements.py"


def test_the_page_of_claims_is_up_to_date() -> None:
    script = generator("claims")
    with forgotten_books():
        text = script.PAGE.read_text(encoding="utf-8")
        assert script.page(text) == text, "run python docs/generate_claims.py"
