"""Books of claims: texts from TOML, checks entered under their ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vitreous.claims.book import Book, CheckFailed, find_claim
from vitreous.claims.effects import Effect, more, noted
from vitreous.claims.evidence import Evidence, Query, Rows, reads
from vitreous.claims.preconditions import Precondition
from vitreous.claims.quantity import Quantity
from vitreous.claims.readings import accuracy, variances
from vitreous.claims.verdicts import judge
from vitreous.errors import UnknownName, VitreousError

PAPER = """
[paper]
key = "ABC"
title = "A paper"
authors = "Nobody"
year = 2000
arxiv = "0000.00000"
"""
CLAIM = """
sentence = "Networks of one kind err less than those of the other."
place = "Fig. 1"
reported = "two points"
study = "zoo"
"""


def read(tmp_path: Path, text: str) -> Book:
    path = tmp_path / "abc.toml"
    path.write_text(text, encoding="utf-8")
    return Book.read(path)


def better(models: Query) -> Iterator[Effect]:
    yield noted("accuracy of a Mixer", accuracy(models("mixer")))
    yield more("points", accuracy(models("vit")) - accuracy(models("resnet")))


def test_texts_are_read_and_checks_entered(tmp_path: Path) -> None:
    extra = 'task = "SYN-B"\nwithdrawn = "by its authors"\nlarge = true\ncontrol = false\n'
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}{extra}requires = [{{classes = 50}}]\n")
    assert book.check("ABC-01")(better) is better
    (claim,) = book
    assert (claim.id, claim.place, claim.reported) == ("ABC-01", "Fig. 1", "two points")
    assert claim.sentence.startswith("Networks of one kind")
    assert (claim.paper.key, claim.paper.year, claim.paper.arxiv) == ("ABC", 2000, "0000.00000")
    assert (claim.withdrawn, claim.large, claim.control) == ("by its authors", True, False)
    assert claim.requires == (Precondition("classes", 50),)
    assert claim.check is better


@pytest.mark.parametrize(
    ("extra", "sanity"), [("", False), ("sanity = true", True), ('task = "SYN-B"', True)]
)
def test_a_task_or_a_mark_says_that_there_is_a_small_version(
    tmp_path: Path, extra: str, sanity: bool
) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}{extra}\n")
    book.check("ABC-01")(better)
    assert book.claims["ABC-01"].sanity is sanity


def test_claims_stand_in_the_order_of_their_ids(tmp_path: Path) -> None:
    ids = ("ABC-10", "ABC-02", "ABC-01")
    book = read(tmp_path, PAPER + "".join(f"[{id}]{CLAIM}" for id in ids))
    for id in ids:
        book.check(id)(better)
    assert [claim.id for claim in book] == ["ABC-01", "ABC-02", "ABC-10"]


def test_a_finding_without_a_check_is_not_yet_a_claim(tmp_path: Path) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}[ABC-02]{CLAIM}")
    book.check("ABC-02")(better)
    assert [claim.id for claim in book] == ["ABC-02"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"[ABC-01]{CLAIM}", r"abc\.toml' is no book of findings: it has no table \[paper\]"),
        (PAPER.replace("year = 2000", ""), r"\[paper\] in abc\.toml lacks year\."),
        (
            PAPER + 'publisher = "nobody"',
            r"no entry 'publisher'.* \[paper\] .* takes key",
        ),
        (PAPER + 'author = "nobody"', "'author'. Did you mean authors"),
        (PAPER.replace("2000", '"2000"'), "has year = '2000', and that has to be a whole number"),
        ("paper = 3", r"\[paper\] in abc\.toml has to be a table, not 3"),
        (PAPER + "[ABC-01]\n= 3\n", r"abc\.toml' is no valid TOML: .* line 9"),
        ("[paper]\nkey = \n", r"abc\.toml' is no valid TOML: .* line 2"),
        (f"{PAPER}[ABC-01]{CLAIM}[ABC-01]{CLAIM}", r"two tables \[ABC-01\], the second in line 1"),
        (f"{PAPER}[ABC-1a]{CLAIM}[ABC-1A]{CLAIM}", r"\[ABC-1a\] and \[ABC-1A\] .* the same id"),
        (PAPER + '[model]\nmine = "a"\n', "There is no table 'model'. Did you mean models"),
        (
            PAPER + "[ABC-01]\n",
            "There is no table 'ABC-01'.* has sentence, place, rep",
        ),
        ("surprise = 3\n" + PAPER, "There is no table 'surprise'"),
        (PAPER.replace("ABC", "A&B"), r"The key of abc\.toml is 'A&B', and that has to be of let"),
        (f'{PAPER}["A <b>"]{CLAIM}', r"An id in abc\.toml is 'A <b>', and that has to be of let"),
        (f'{PAPER}["A,B"]{CLAIM}', r"An id in abc\.toml is 'A,B', and that has to be of letters"),
    ],
)
def test_errors_in_the_file_of_a_book_name_the_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(VitreousError, match=says) as raised:
        read(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_a_missing_or_binary_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VitreousError, match=r"none\.toml' cannot be read: No such file"):
        Book.read(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(VitreousError, match=r"bytes\.toml' is not text in UTF-8"):
        Book.read(tmp_path / "bytes.toml")


def test_a_check_without_a_text_names_the_nearest(tmp_path: Path) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}")
    with pytest.raises(UnknownName, match=r"'ABC-1'.*Did you mean ABC-01"):
        book.check("ABC-1")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (CLAIM.replace('place = "Fig. 1"', ""), r"\[ABC-01\] in abc\.toml lacks place\."),
        ('\nsentence = "One."\n', r"lacks place, reported, study\."),
        (CLAIM + "seeds = 3\n", r"no entry 'seeds'.*\[ABC-01\] in abc\.toml takes sentence"),
        (CLAIM + "larg = true\n", "'larg'. Did you mean large"),
        (CLAIM + 'large = "yes"\n', "has large = 'yes', and that has to be true or false"),
        (CLAIM.replace('"Fig. 1"', "1"), "has place = 1, and that has to be text in quotes"),
        (CLAIM + "requires = 3\n", "has requires = 3, and that has to be a list"),
        (CLAIM + "value = nan\n", "has value = nan, and that has to be finite"),
        (
            CLAIM + 'task = "SYN-Q"\n',
            r"no task of \[ABC-01\] in abc\.toml 'SYN-Q'",
        ),
    ],
)
def test_a_table_that_is_not_a_finding_is_an_error(tmp_path: Path, table: str, says: str) -> None:
    with pytest.raises(VitreousError, match=says):
        read(tmp_path, f"{PAPER}[ABC-01]{table}")


@pytest.mark.parametrize(
    ("requires", "says"),
    [
        ("{clases = 50}", "no precondition of ABC-01 'clases'. Did you mean classes"),
        ("{classes = 50, image = 32}", "A precondition of ABC-01 names one of accuracy, matched"),
        ("{accuracy = 80, on = 'vit'}", "A precondition of ABC-01 names one of accuracy, matched"),
        ("{}", "A precondition of ABC-01 names one of accuracy, matched"),
        ("'classes'", "A precondition of ABC-01 names one of accuracy, matched"),
        ("{accuracy = 80}", "The precondition 'accuracy' of ABC-01 has to name its models"),
        ("{accuracy = 80, of = ''}", "The precondition 'accuracy' of ABC-01 names no model"),
        ("{accuracy = 80, of = 3}", "The precondition 'accuracy' of ABC-01: .* no model .*'3'"),
        ("{accuracy = 80, of = 'vitt'}", "'accuracy' of ABC-01: .*'vitt'. Did you mean vit"),
        ("{steps = 8, of = ['vit', 'vit pol=gap']}", "no fact 'pol'. Did you mean pool"),
        ("{accuracy = 'much', of = 'vit'}", "'accuracy' of ABC-01 takes a number, not 'much'"),
        ("{classes = true}", "'classes' of ABC-01 takes a number, not True"),
        ("{decay = 3, of = 'vit'}", "'decay' of ABC-01 takes text in quotes, not 3"),
        ("{real = 'yes'}", "'real' of ABC-01 takes true, not 'yes'"),
    ],
)
def test_a_precondition_that_there_is_not(tmp_path: Path, requires: str, says: str) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}requires = [{requires}]\n")
    with pytest.raises(VitreousError, match=says):
        book.check("ABC-01")(better)
    assert not list(book)


def test_a_precondition_of_the_book(tmp_path: Path) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}requires = [{{blocks = 12}}]\n")

    @book.precondition("blocks", "a ViT of at least {value} blocks")
    def has_blocks(models: Query, value: int) -> str:
        return f"It has fewer than {value} blocks."

    book.check("ABC-01")(better)
    (claim,) = book
    assert str(claim.requires[0]) == "a ViT of at least 12 blocks"
    assert claim.unmet(Query()) == ["It has fewer than 12 blocks."]
    for known in ("blocks", "accuracy"):
        with pytest.raises(VitreousError, match=f"already is a precondition {known!r}"):
            book.precondition(known, "something")


def test_a_finding_takes_one_check(tmp_path: Path) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}")
    book.check("ABC-01")(better)
    with pytest.raises(VitreousError, match="'ABC-01' has two checks"):
        book.check("ABC-01")(better)


def unknown_fact(models: Query) -> Iterator[Effect]:
    yield more("points", accuracy(models("vit", pol="gap")))


def unknown_model(models: Query) -> Iterator[Effect]:
    yield more("points", accuracy(models("vitt")))


def division(models: Query) -> Iterator[Effect]:
    yield more("points", accuracy(models("vit")) * (1 / 0))


def no_effect(models: Query) -> Iterator[Effect]:
    yield accuracy(models("vit"))  # type: ignore[misc]


def own_error(models: Query) -> Iterator[Effect]:
    yield from ()
    raise VitreousError("This finding needs a scale.")


def old_word(models: Query) -> Iterator[Effect]:
    yield more("of its warm-up", accuracy(models("vit", moment="warmup")))


def no_quantity(models: Query) -> Iterator[Effect]:
    yield more("a number", 3.0)  # type: ignore[arg-type]


def no_size(models: Query) -> Iterator[Effect]:
    yield more("ratio", Quantity.exactly(2.0), 1.0, paper=0.0)


def no_number(models: Query) -> Iterator[Effect]:
    yield more("number", Quantity.exactly(2.0), matters=float("nan"))


def nothing(models: Query) -> Iterator[Effect]:
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (unknown_fact, "The check of ABC-01 failed: There is no fact 'pol'. Did you mean pool"),
        (unknown_model, "The check of ABC-01 failed: .*'vitt'. Did you mean vit"),
        (division, r"ABC-01 failed: ZeroDivisionError: .* \(test_book\.py, line \d+\)\.$"),
        (no_effect, "ABC-01 failed: TypeError: it yields Quantity.* which is no Effect"),
        (own_error, r"The check of ABC-01 failed: This finding needs a scale\.$"),
        (old_word, "ABC-01 failed: There is no fact 'moment'. It is called 'checkpoint' now"),
        (no_quantity, r"TypeError: an effect takes a Quantity, not 3\.0 \(test_book\.py"),
        (no_size, r"ValueError: the paper has 0, and a ratio is above zero \(test_book\.py"),
        (no_number, "ValueError: an effect takes a finite number as matters, not nan"),
        (nothing, "ABC-01 failed: TypeError: it returns None, and a check yields effects"),
    ],
)
def test_a_check_that_fails_names_its_finding(tmp_path: Path, check: Any, says: str) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}")
    book.check("ABC-01")(check)
    (claim,) = book
    for asked in (claim.needs, claim.has_control, lambda: list(claim.evaluate(Query()))):
        with pytest.raises(CheckFailed, match=says):
            asked()
    [verdict] = judge(Evidence([]), [claim])
    assert verdict.outcome == "undecided"
    assert re.search(says.partition("failed: ")[2].rstrip("$").removesuffix(r"\."), verdict.failed)


def test_a_claim_is_found_however_its_id_is_written(tmp_path: Path) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}")
    book.check("ABC-01")(better)
    assert find_claim(book, "abc-01") is book.claims["ABC-01"]
    with pytest.raises(UnknownName, match="ABC-01"):
        find_claim(book, "ABC-1")


def test_needs_are_those_of_effects_preconditions_and_control(tmp_path: Path) -> None:
    requires = 'requires = [{accuracy = 80, of = "convit"}]\n'
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}{requires}[ABC-02]{CLAIM}")
    book.check("ABC-01")(better)
    assert [str(need) for need in book.claims["ABC-01"].needs()] == [
        "accuracy of mixer",
        "accuracy of vit",
        "accuracy of resnet",
        "accuracy of convit",
    ]

    def smooth(models: Query) -> Iterator[Effect]:
        yield more("mean variance", variances(models("vit")).mean())
        yield more("accuracy", accuracy(models("vit")))

    book.check("ABC-02")(smooth)
    assert [str(need) for need in book.claims["ABC-02"].needs()] == [
        "variance of vit",
        "accuracy of vit",
        "variance of vit checkpoint=start",
    ]


@reads("variance")
def before(rows: Rows) -> object:
    return rows.draws()


@pytest.mark.parametrize(
    ("main", "control", "wanted"),
    [
        ("variance", True, True),
        ("variance", False, False),
        ("accuracy", True, False),  # how well a network does is nothing that it has untrained
        ("start", True, False),  # untrained already
    ],
)
def test_which_claims_are_compared_with_untrained_networks(
    tmp_path: Path, main: str, control: bool, wanted: bool
) -> None:
    def check(models: Query) -> Iterator[Effect]:
        vit = models("vit", checkpoint="start" if main == "start" else None)
        yield more("main", accuracy(vit) if main == "accuracy" else before(vit).mean())

    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}control = {str(control).lower()}\n")
    book.check("ABC-01")(check)
    assert book.claims["ABC-01"].has_control() is wanted
