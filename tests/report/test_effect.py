"""The picture of an effect is to scale, whatever the numbers are."""

from __future__ import annotations

import re
from math import inf, nan
from xml.etree import ElementTree

import pytest

from report.made_up import measured
from vitreous.claims.effects import Direction, Effect
from vitreous.claims.statistics import UNKNOWN
from vitreous.report import effect


def drawn(given: Effect) -> dict[str, dict[str, str]]:
    """Attributes of what is drawn, by class; of a text, by what it says."""
    root = ElementTree.fromstring(effect.picture(given))
    return {each.text or each.attrib["class"]: dict(each.attrib) for each in root}


def start(path: dict[str, str]) -> float:
    match = re.match(r"M([\d.]+) ", path["d"])
    assert match
    return float(match[1])


@pytest.mark.parametrize("direction", ["more", "less"])
def test_a_picture_is_to_scale_and_shades_the_side_that_counts(direction: Direction) -> None:
    sign = 1 if direction == "more" else -1
    given = Effect("x", measured(4 * sign, 3 * sign, 6 * sign), direction, 0.0, 8.0 * sign)
    seen = drawn(given)
    null, paper = start(seen["nothing"]), start(seen["reported"])
    unit = (paper - null) / 8
    assert abs(unit) > 10
    assert (unit > 0) == (sign > 0)
    assert float(seen["point"]["cx"]) == pytest.approx(null + 4 * unit, abs=0.2)
    assert start(seen["interval"]) == pytest.approx(null + 3 * unit, abs=0.2)
    end = float(seen["interval"]["d"].split("H")[1].split("M")[0])
    assert end == pytest.approx(null + 6 * unit, abs=0.2)
    left, width = (float(seen["counts"][name]) for name in ("x", "width"))
    edge = left if sign > 0 else left + width
    assert edge == pytest.approx(null + 4 * unit, abs=0.2), "half of the paper's effect"
    assert width > 10
    assert f"paper {effect.format_given(8.0 * sign)}" in seen
    assert "no effect 0" in seen


def test_equivalence_is_shaded_on_both_sides_of_the_null() -> None:
    seen = drawn(Effect("x", measured(0.2, -0.1, 0.5), "within", 0.0, bound=1.0))
    null = start(seen["nothing"])
    left, width = (float(seen["counts"][name]) for name in ("x", "width"))
    assert left + width / 2 == pytest.approx(null, abs=0.2)
    assert float(seen["point"]["cx"]) == pytest.approx(null + 0.2 * width / 2, abs=0.2)


def test_a_paper_that_is_far_away_is_pointed_to() -> None:
    bound = {"bound": 2.0, "null": 2.0}
    near = drawn(Effect("x", measured(4, 3, 6), "more", **bound))  # type: ignore[arg-type]
    far = drawn(Effect("x", measured(4, 3, 6), "more", paper=900.0, **bound))  # type: ignore[arg-type]
    below = drawn(Effect("x", measured(4, 3, 6), "more", paper=-900.0, **bound))  # type: ignore[arg-type]
    assert near["point"] == far["point"], "it would be a hair's breadth"
    assert "paper 900 →" in far
    assert "← paper −900" in below


@pytest.mark.parametrize(
    "given",
    [
        Effect("exactly none", measured(0, 0, 0), "more", 0.0, 0.0),
        Effect("no end", measured(5, 4, inf), "more", 2.0),
        Effect("no ends", measured(5, nan, nan), "more", 1.0, 5.5),
        Effect("huge", measured(1e12, 1e11, 1e13), "more", 1e-9),
    ],
    ids=lambda given: given.label,
)
def test_a_picture_of_odd_numbers_stays_in_its_frame(given: Effect) -> None:
    places = re.findall(r' (?:x|cx|width)="([^"]+)"|[MH](-?[\d.a-z]+)', effect.picture(given))
    numbers = [float(one or other) for one, other in places]
    assert numbers
    assert all(0 <= each <= effect.WIDTH for each in numbers)


def test_no_picture_without_number_or_direction() -> None:
    assert effect.picture(Effect("x", UNKNOWN, "more")) == ""
    assert effect.picture(Effect("x", measured(1, 1, 1))) == ""


# The page.
