"""Books of claims: texts from TOML, checks entered under their ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tomllib import TOMLDecodeError

import pytest

from vitreous.claims.book import Book, find_claim
from vitreous.claims.effects import Effect, more, noted
from vitreous.claims.evidence import Query, Rows, reads
from vitreous.claims.preconditions import Precondition
from vitreous.claims.readings import accuracy, variances
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


def test_a_text_without_a_check_is_no_claim_yet(tmp_path: Path) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}[ABC-02]{CLAIM}")
    book.check("ABC-02")(better)
    assert [claim.id for claim in book] == ["ABC-02"]


@pytest.mark.parametrize(
    "text",
    [
        f"[ABC-01]{CLAIM}",
        PAPER.replace("year = 2000", ""),
        PAPER + 'publisher = "nobody"',
    ],
    ids=["no paper", "no year", "an unknown entry"],
)
def test_a_file_without_a_paper_is_no_book(tmp_path: Path, text: str) -> None:
    with pytest.raises(VitreousError, match=r"abc\.toml is no book of claims.*\[paper\] needs key"):
        read(tmp_path, text)


def test_a_file_that_is_no_toml_says_where(tmp_path: Path) -> None:
    with pytest.raises(TOMLDecodeError, match="line 2"):
        read(tmp_path, "[paper]\nkey = \n")


def test_a_check_without_a_text_names_the_nearest(tmp_path: Path) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}")
    with pytest.raises(UnknownName, match=r"'ABC-1'.*Did you mean ABC-01"):
        book.check("ABC-1")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (CLAIM.replace('place = "Fig. 1"', ""), "ABC-01 .*'place'"),
        (CLAIM + "seeds = 3\n", "ABC-01 .*'seeds'"),
    ],
    ids=["no place", "an unknown entry"],
)
def test_a_table_that_is_not_that_of_a_claim(tmp_path: Path, table: str, says: str) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{table}")
    with pytest.raises(VitreousError, match=says):
        book.check("ABC-01")(better)
    assert not list(book)


@pytest.mark.parametrize(
    "requires",
    ["[{clases = 50}]", "[{classes = 50, image = 32}]", "[{accuracy = 80, on = 'vit'}]", "[{}]"],
)
def test_a_precondition_that_there_is_not(tmp_path: Path, requires: str) -> None:
    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}requires = {requires}\n")
    with pytest.raises(VitreousError, match=r"ABC-01 has to name one of accuracy, matched"):
        book.check("ABC-01")(better)


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
        "variance of vit moment=start",
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
        vit = models("vit", moment="start" if main == "start" else None)
        yield more("main", accuracy(vit) if main == "accuracy" else before(vit).mean())

    book = read(tmp_path, f"{PAPER}[ABC-01]{CLAIM}control = {str(control).lower()}\n")
    book.check("ABC-01")(check)
    assert book.claims["ABC-01"].has_control() is wanted
