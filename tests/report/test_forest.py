"""The forest plot: marks lie where the numbers are, in units of the papers' effects."""

from __future__ import annotations

import re
from math import exp, log
from xml.etree import ElementTree

import pytest

from report.made_up import BELOW, GAP, WIDE, made_up, measured
from vitreous.claims.effects import Effect
from vitreous.claims.statistics import UNKNOWN, Interval95
from vitreous.claims.verdicts import Verdict
from vitreous.report.forest import LEAST, LEFT, MOST, RIGHT, WIDTH, forest


def place(value: float) -> float:
    """Pixel of a relative effect, from the two ends of the axis."""
    return LEFT + (value - LEAST) * (WIDTH - LEFT - RIGHT) / (MOST - LEAST)


class Row:
    """What is drawn of one claim."""

    def __init__(self, link: ElementTree.Element) -> None:
        self.id = link.attrib["href"][1:]
        self.kind = link.attrib["class"]
        self.title = link.findtext("title") or ""
        self.y = float(link.findall("text")[0].attrib["y"])
        [interval] = [e for e in link if e.get("class") == "interval"]
        [self.mark] = [e for e in link if str(e.get("class")).startswith("point")]
        ends = re.match(r"M([\d.]+) [\d.]+H([\d.]+)", interval.attrib["d"])
        assert ends
        self.ends = (float(ends[1]), float(ends[2]))
        self.heads = interval.attrib["d"].count("M") - 1
        self.is_open = "open" in self.mark.attrib["class"]

    @property
    def x(self) -> float:
        return float(self.mark.get("cx") or self.mark.attrib["d"][1:].split()[0])


def rows(*verdicts: Verdict) -> list[Row]:
    return [Row(each) for each in ElementTree.fromstring(forest(verdicts)).findall("a")]


def row(effect: Effect) -> Row:
    [found] = rows(made_up("TST-01", "reproduced", effect))
    return found


def test_ticks_name_their_places() -> None:
    root = ElementTree.fromstring(forest([made_up("TST-01", "weaker", GAP)]))
    ticks = {e.text: float(e.attrib["x"]) for e in root.findall("text") if "class" not in e.attrib}
    assert ticks == {
        label: pytest.approx(place(value), abs=0.06)
        for label, value in {"−1": -1, "no effect": 0, "half": 0.5, "paper": 1, "2 ×": 2}.items()
    }


def test_one_is_the_papers_effect() -> None:
    found = row(Effect("x", measured(12.0, 11.0, 14.0), "more", 10.0, paper=20.0))
    assert found.x == pytest.approx(place(0.2), abs=0.1)
    assert found.ends == pytest.approx((place(0.1), place(0.4)), abs=0.1)
    assert not found.is_open


def test_the_papers_direction_is_to_the_right() -> None:
    found = row(Effect("x", measured(-3.0, -4.0, 1.0), "less", 0.0, paper=-4.0))
    assert found.x == pytest.approx(place(0.75), abs=0.1)
    assert found.ends == pytest.approx((place(-0.25), place(1.0)), abs=0.1)


def test_ratios_are_on_a_logarithmic_scale() -> None:
    number = Interval95(2.0, exp(0.5), 4.0, spread=0.2, freedom=9.0, seeds=3, ratio=True)
    found = row(Effect("x", number, "more", 1.0, paper=8.0))
    assert found.x == pytest.approx(place(1 / 3), abs=0.1)
    assert found.ends == pytest.approx((place(0.5 / log(8)), place(2 / 3)), abs=0.1)


def test_without_the_papers_number_one_is_the_size_that_matters() -> None:
    found = row(WIDE)
    assert found.x == pytest.approx(place(0.5), abs=0.1)
    assert found.ends == pytest.approx((place(-0.5), place(1.5)), abs=0.1)
    assert not found.is_open


@pytest.mark.parametrize(
    ("effect", "at"),
    [
        (Effect("x", measured(7.0, 3.5, 10.5), "more"), 1.0),
        (BELOW, -1.0),
        (Effect("bound", measured(7.0, 6.0, 8.0), "more", 5.0, bound=5.0), 1.0),
        (Effect("paper finds none", measured(7.0, 6.0, 8.0), "more", 5.0, paper=5.0), 1.0),
        (Effect("exactly none", measured(0.0, -0.1, 0.1), "more"), 0.0),
    ],
    ids=lambda each: each.label if isinstance(each, Effect) else "",
)
def test_marks_without_a_unit_are_open(effect: Effect, at: float) -> None:
    found = row(effect)
    assert found.is_open
    assert found.x == pytest.approx(place(at), abs=0.1)


def test_what_lies_beyond_the_axis_is_an_arrow_at_its_edge() -> None:
    right = row(Effect("x", measured(9.0, 2.0, 10.0), "more", 0.0, paper=1.0))
    assert right.mark.tag == "path"
    assert right.x == pytest.approx(place(MOST))
    assert right.ends == pytest.approx((place(2.0), place(MOST)), abs=0.1)
    left = row(Effect("x", measured(-9.0, -10.0, -8.0), "more", 0.0, paper=1.0))
    assert left.mark.tag == "path"
    assert left.x == pytest.approx(place(LEAST))
    both = row(Effect("x", measured(0.5, -9.0, 9.0), "more", 0.0, paper=1.0))
    assert both.mark.tag == "circle"
    assert both.heads == 2
    assert row(GAP).heads == 0


def test_rows_are_grouped_by_verdict_and_link_to_it() -> None:
    given = [
        made_up("TST-01", "opposite", BELOW),
        made_up("TST-02", "reproduced", GAP),
        made_up("TST-03", "holds untrained", GAP),
        made_up("TST-04", "reproduced", GAP),
    ]
    found = rows(*given)
    assert [each.id for each in found] == ["TST-02", "TST-04", "TST-01", "TST-03"]
    heights = [each.y for each in found]
    assert heights == sorted(set(heights))
    assert found[-1].kind == "outcome-holds-untrained"
    assert found[0].title.startswith("TST-02 reproduced: error of ViT minus error of ResNet: 4.20")
    root = ElementTree.fromstring(forest(given))
    headings = {e.text: float(e.attrib["y"]) for e in root.findall("text") if "class" in e.attrib}
    assert list(headings) == ["reproduced (2)", "opposite (1)", "holds untrained (1)"]
    assert headings["reproduced (2)"] < heights[0] < heights[1] < headings["opposite (1)"]
    bottom = float(root.attrib["viewBox"].split()[3])
    assert bottom > heights[-1]


def test_an_equivalence_is_a_square_relative_to_its_bound() -> None:
    equal = row(Effect("x", measured(0.5, -1.0, 1.5), "within", bound=2.0))
    assert (equal.x, *equal.ends) == pytest.approx([place(0.25), place(-0.5), place(0.75)], abs=0.1)
    assert equal.mark.tag == "path"
    assert not equal.is_open
    assert row(GAP).mark.tag == "circle"


def test_what_has_no_place_is_left_out() -> None:
    unread = Effect("x", UNKNOWN, "more")
    noted = Effect("x", measured(1.0, 0.0, 2.0))
    for left_out in (
        made_up("TST-01", "identity", GAP),
        made_up("TST-01", "not testable here", unread),
        made_up("TST-01", "undecided", noted),
    ):
        assert forest([left_out]) == ""
