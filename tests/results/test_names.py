"""Long names: as short as asked, and never two alike."""

from __future__ import annotations

import random

import pytest

from vitreous.results.names import LIMIT, short_names

LONG = "vit_small_patch16_224.augreg_in21k_ft_in1k"


def test_only_long_names_lose_their_middle() -> None:
    short = short_names(["nano:vit", "x" * LIMIT, LONG])
    assert short["nano:vit"] == "nano:vit"
    assert short["x" * LIMIT] == "x" * LIMIT
    assert len(short[LONG]) == LIMIT
    begin, end = short[LONG].split("…")
    assert LONG.startswith(begin)
    assert LONG.endswith(end)


def test_names_that_look_alike_show_where_they_differ() -> None:
    larger = LONG.replace("224", "384")
    short = short_names([LONG, larger])
    assert "224" in short[LONG]
    assert "384" in short[larger]
    assert all(len(text) <= LIMIT for text in short.values())


def test_both_of_a_pair_are_shortened() -> None:
    [text] = short_names([f"{LONG} × {LONG}.b"], 44).values()
    one, other = text.split(" × ")
    assert one.startswith("vit_")
    assert other.endswith(".b")
    assert len(text) <= 44


@pytest.mark.parametrize("seed", range(30))
def test_short_names_are_distinct(seed: int) -> None:
    """Names that differ in one place anywhere, extend each other, or end as our numbers do."""
    draw = random.Random(seed)
    base = "".join(draw.choice("ab") for _ in range(draw.randint(20, 90)))
    names = [base]
    for _ in range(40):
        place = draw.randrange(len(base))
        kinds = (base[:place] + draw.choice("abc ×") + base[place:], base[:place], base + " (1)")
        names.append(draw.choice(kinds))
    short = short_names(names, 12)
    assert set(short) == set(names)
    assert len(set(short.values())) == len(set(names))


def test_empty_names_stay_empty() -> None:
    assert short_names([]) == {}
    assert short_names(["", ""]) == {"": ""}
