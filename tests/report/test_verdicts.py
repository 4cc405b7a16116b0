"""Verdicts on the page: what is said and drawn is what was judged, in the right place, and can be filtered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from vitreous.claims.together import of_chance

from claims.cases.dosovitskiy_2021 import CASES, exact, trained
from claims.synthetic import accuracy, exhibit
from report.browser import Page, browser, found
from report.conftest import EVIL
from report.test_page import Reader, policy
from vitreous import Inspection, claims
from vitreous.claims.book import Claim, Paper
from vitreous.claims.evidence import Evidence, Need
from vitreous.claims.verdicts import Outcome, Verdict, judge
from vitreous.report import effect, write
from vitreous.report.guard import Guard
from vitreous.report.judgement import (
    Judgement,
    clearest_verdicts,
    summary_text,
    tally_sentences,
)
from vitreous.report.packing import policy_hash
from vitreous.report.verdicts import verdicts_section

PAPER = Paper("TST", f"A title {EVIL}", "Somebody & others", 2021, "2101.00001")
GAP = Part("error of ViT minus error of ResNet", 4.2, 3.1, 5.4, 2, "at least", 0.0, 16.2, 3)


def made_up(
    id: str, outcome: Outcome, *parts: Part, withdrawn: str = "", missing: tuple[Need, ...] = ()
) -> Verdict:
    claim = Claim(
        id,
        f"A sentence {EVIL}.",
        PAPER,
        "Fig. 1",
        "much",
        "zoo",
        lambda look: [],
        withdrawn=withdrawn,
    )
    return Verdict(claim, outcome, parts, "cifar10", "ten", missing)


@pytest.fixture(scope="module")
def judgement() -> Judgement:
    """All findings of the papers on evidence for some of them, and some nobody ever found."""
    evidence = Evidence(
        [*CASES["VIT-02"].supported, *trained("resnet", 80.0, 3), exact(shuffled=0.0)]
    )
    own = [
        made_up("TST-01", "supported", GAP),
        made_up("TST-02", "refuted", Part("worse", 1.0, 0.5, 1.5, 9.0)),
        made_up("TST-03", "inconclusive", Part("undecided", 1.0, -1.0, 3.0, 0.5, versus=0.0)),
        made_up("TST-04", "inconclusive", missing=(Need({"model": "vit"}, "cka"),)),
    ]
    return Judgement([*judge(evidence, claims.every_claim()), *own], evidence.items)


@pytest.fixture(scope="module")
def text(
    inspection: Inspection, judgement: Judgement, tmp_path_factory: pytest.TempPathFactory
) -> str:
    path = write(
        inspection, tmp_path_factory.mktemp("verdicts") / "report.html", judgement=judgement
    )
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text: str) -> Reader:
    return Reader(text)


# Words.


def test_an_effect_in_words() -> None:
    assert effect.effect_sentence(GAP) == (
        "error of ViT minus error of ResNet: 4.20 (3.10 to 5.40), at least 2 wanted; paper 16.2"
    )
    assert (
        effect.effect_sentence(Part("n", 3, 3, 3, -1, "at most", strict=True))
        == "n: 3.00, less than −1 wanted"
    )
    assert effect.effect_sentence(Part("a < b", 1.0, 0.0, 2.0)) == "a &lt; b: 1.00 (0 to 2.00)"
    assert effect.effect_sentence(GAP, "<b>{}</b>").startswith(
        "error of ViT minus error of ResNet: <b>4.20 (3.10 to 5.40)</b>,"
    )


def test_the_paragraph_counts(judgement: Judgement) -> None:
    outcomes = [verdict.outcome for verdict in judgement.verdicts if not verdict.lacking]
    said = " ".join(tally_sentences(judgement))
    assert said.startswith(
        f"{len(outcomes)} of the 153 findings could be judged on what was measured: "
    )
    for outcome in ("supported", "refuted", "inconclusive"):
        count = outcomes.count(outcome)
        assert f"{count} {'is' if count == 1 else 'are'} {outcome}" in said
    assert said.endswith(
        f"The other {153 - len(outcomes)} need models or measurements that are not here."
    )
    assert summary_text(judgement).startswith(said)
    chance = " ".join(of_chance(judgement.measured))
    assert "would seem certain by chance" in chance
    assert chance in verdicts_section(judgement, Guard())[1]


def test_nothing_and_one() -> None:
    missing = made_up("TST-09", "inconclusive", missing=(Need({"model": "vit"}, "cka"),))
    assert list(tally_sentences(Judgement([missing], []))) == [
        "None of 1 finding could be judged on what was measured.",
        "The other 1 needs models or measurements that are not here.",
    ]
    one = Judgement([made_up("TST-01", "supported", GAP)], [])
    assert list(tally_sentences(one)) == [
        "1 of 1 finding could be judged on what was measured: 1 is supported."
    ]


def test_what_lacks_a_number_was_not_measured() -> None:
    unread = Part("half", nan, nan, nan, 1.0)
    assert made_up("TST-01", "inconclusive", GAP, unread).lacking
    assert made_up("TST-01", "inconclusive", GAP, missing=(Need({"model": "vit"}, "cka"),)).lacking
    assert made_up("TST-01", "inconclusive", Part("only noted", 1.0, 1.0, 1.0)).lacking
    assert not made_up("TST-01", "inconclusive", GAP, Part("only noted", nan, nan, nan)).lacking
    assert not made_up("TST-01", "supported", GAP, missing=(Need({"model": "vit"}, "cka"),)).lacking


def test_the_clearest_are_farthest_from_their_thresholds_and_of_each_kind() -> None:
    def at(
        id: str, outcome: Outcome, distance: float, width: float = 1.0, withdrawn: str = ""
    ) -> Verdict:
        part = Part("x", distance, distance - width / 2, distance + width / 2, 0.0)
        return made_up(id, outcome, part, withdrawn=withdrawn)

    given = [
        at("TST-01", "refuted", -9), at("TST-02", "refuted", -7), at("TST-03", "refuted", -8),
        at("TST-04", "supported", 1), at("TST-05", "supported", 2), at("TST-06", "supported", 50, withdrawn="Gone."),
        at("TST-07", "refuted", -20, width=10), at("TST-08", "inconclusive", 90), at("TST-09", "refuted", -99, width=0),
    ]  # fmt: skip
    assert [verdict.claim.id for verdict, _ in clearest_verdicts(given)] == [
        "TST-05",
        "TST-01",
        "TST-03",
    ]
    assert clearest_verdicts([]) == []


# The small picture.


def drawn(part: Part) -> dict[str, dict[str, str]]:
    """What is drawn, by its kind; a word, by what it says."""
    root = ElementTree.fromstring(effect.effect_svg(part))
    return {each.text or each.attrib["class"]: dict(each.attrib) for each in root}


def start(path: dict[str, str]) -> float:
    match = re.match(r"M([\d.]+) ", path["d"])
    assert match
    return float(match[1])


@pytest.mark.parametrize("side", ["at least", "at most"])
def test_a_picture_is_to_scale_and_shades_the_side_that_counts(side: Any) -> None:
    part = Part("x", 4.0, 3.0, 6.0, 2.0, side, 0.0, 8.0)
    seen = drawn(part)
    unit = (float(seen["point"]["cx"]) - start(seen["threshold"])) / 2
    assert unit > 10
    line = start(seen["threshold"])
    assert start(seen["interval"]) == pytest.approx(line + unit, abs=0.2)
    assert start(
        {"d": "M" + seen["interval"]["d"].split("H")[1].replace("M", " ")}
    ) == pytest.approx(line + 4 * unit, abs=0.2)
    assert start(seen["reported"]) == pytest.approx(line + 6 * unit, abs=0.3)
    assert start(seen["nothing"]) == pytest.approx(line - 2 * unit, abs=0.2)
    left, width = (float(seen["counts"][name]) for name in ("x", "width"))
    assert (left if side == "at least" else left + width) == pytest.approx(line)
    assert width > 10
    assert ("≥ 2" if side == "at least" else "≤ 2") in seen
    assert "paper 8" in seen


def test_a_paper_that_is_far_away_is_pointed_to() -> None:
    near, far = (
        drawn(Part("x", 4.0, 3.0, 6.0, 2.0)),
        drawn(Part("x", 4.0, 3.0, 6.0, 2.0, paper=900.0)),
    )
    assert near["point"] == far["point"], "it would be a hair's breadth"
    assert "paper 900 →" in far
    assert "← paper −900" in drawn(Part("x", 4.0, 3.0, 6.0, 2.0, paper=-900.0))


@pytest.mark.parametrize(
    "part",
    [
        Part("exactly none", 0.0, 0.0, 0.0, 0.0, versus=0.0, paper=0.0),
        Part("no end", 5.0, 4.0, inf, 2.0),
        Part("no ends", 5.0, nan, nan, 2.0, versus=1.0, paper=5.5),
        Part("huge", 1e12, 1e11, 1e13, 1e-9, strict=True),
    ],
)
def test_a_picture_of_odd_numbers_stays_in_its_frame(part: Part) -> None:
    places = re.findall(r' (?:x|cx|width)="([^"]+)"|[MH](-?[\d.a-z]+)', effect.effect_svg(part))
    numbers = [float(one or other) for one, other in places]
    assert numbers
    assert all(0 <= each <= effect.WIDTH for each in numbers)


def test_no_picture_without_number_or_threshold() -> None:
    assert effect.effect_svg(Part("x", nan, nan, nan, 1.0)) == ""
    assert effect.effect_svg(Part("x", 1.0, 1.0, 1.0)) == ""


# The page.


def test_verdicts_come_first_and_every_finding_once(page: Reader, judgement: Judgement) -> None:
    sections = [str(a["id"]) for tag, a in page.elements if tag == "section"]
    assert sections[:7] == [
        "verdicts", "verdicts-HDV", "verdicts-SLC", "verdicts-VIT", "verdicts-CVT", "verdicts-TST", "summary",
    ]  # fmt: skip
    ids = [str(a["id"]) for _, a in page.elements if a.get("id")]
    assert len(set(ids)) == len(ids)
    assert {verdict.claim.id for verdict in judgement.verdicts} <= set(ids)
    links = {str(a["href"])[1:] for tag, a in page.elements if tag == "a"}
    assert links <= set(ids), "a link leads nowhere"
    outcomes = {
        str(a["id"]): a["data-outcome"]
        for _, a in page.elements
        if "verdict" in str(a.get("class")).split()
    }
    for verdict in judgement.verdicts:
        assert outcomes[verdict.claim.id] == ("lacking" if verdict.lacking else verdict.outcome)


def test_the_page_stays_closed(page: Reader, text: str) -> None:
    assert EVIL not in text
    assert f"A sentence {EVIL}." in "".join(page.words)
    for tag, attributes in page.elements:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag
    assert policy(page)["script-src"] == [
        policy_hash(page.scripts[0]),
        policy_hash(page.unpacked("library")),
    ]


def test_what_a_verdict_says(page: Reader) -> None:
    words = " ".join("".join(page.words).split())
    assert "supported" in words
    assert "Somebody & others (2021)" in words
    missing = words[words.index("TST-04 A sentence") :]
    assert "Missing: cka of vit. vitreous study zoo measures it." in missing
    assert (
        "accuracy of vit, vit positions=2d, vit positions=relative and vit positions=none" in words
    )
    assert "3 trainings of each · cifar10 (few classes)" in words
    hdv = words[words.index("HDV-12 ") :]
    assert "withdrawn" in hdv[:300]


def test_conflicts_stand_beside_the_claims_they_concern() -> None:
    found = next(claim for claim in claims.every_claim() if claim.id == "HDV-09")
    said = "".join(
        verdicts_section(
            Judgement([Verdict(found, "supported", (GAP,), "cifar10", "ten")], []), Guard()
        )
    )
    assert "disputed: X-04" in said
    assert "Chen et al. (2022) find it sharper" in said


def test_a_missing_question_can_be_asked_of_an_inspection() -> None:
    there = [exhibit("vit", accuracy(90.0)), exhibit("resnet", accuracy(80.0))]

    def command(models: list[str], result: str, inspected: bool) -> str:
        missing = tuple(Need({"model": model}, result) for model in models)
        given = Judgement([made_up("TST-01", "inconclusive", missing=missing)], there, inspected)
        return "".join(re.findall("<code>(.*?)</code>", "".join(verdicts_section(given, Guard()))))

    assert command(["vit", "resnet"], "erf", True) == "vitreous inspect … --analyses erf"
    assert command(["vit", "resnet"], "erf", False) == "vitreous study zoo"
    assert command(["vit", "swin"], "erf", True) == "vitreous study zoo"
    assert command(["vit"], "training", True) == "vitreous study zoo"


def test_a_page_of_verdicts_alone(judgement: Judgement, tmp_path: Path) -> None:
    path = write(Inspection({}), tmp_path / "verdicts.html", judgement=judgement)
    page = Reader(path.read_text(encoding="utf-8"))
    assert "library" not in page.blocks
    assert policy(page)["script-src"] == [policy_hash(page.scripts[0])]
    ids = [str(a["id"]) for _, a in page.elements if a.get("id")]
    assert "verdicts" in ids
    assert "models" not in ids
    assert {str(a["href"])[1:] for tag, a in page.elements if tag == "a"} <= set(ids)
    assert path.stat().st_size < 500_000


# In a browser.


@pytest.fixture(scope="module")
def tab(judgement: Judgement, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = found()
    if program is None:
        pytest.skip("There is no Chromium on this machine to open the page with.")
    path = write(
        Inspection({}), tmp_path_factory.mktemp("verdicts") / "verdicts.html", judgement=judgement
    )
    with browser(program) as page:
        page.open(path)
        page.wait("!document.querySelector('.filters').hidden")
        yield page
        assert page.said == [], "The page complained."


def shown(page: Page) -> set[str]:
    return set(
        page.value(
            "[...document.querySelectorAll('.verdict')].filter((e) => !e.hidden).map((e) => e.id)"
        )
    )


def set_to(page: Page, selector: str, value: str) -> None:
    page.value(
        f"(() => {{ const e = document.querySelector('{selector}'); e.value = '{value}';"
        " e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change')); })()"
    )


def test_filters(tab: Page, judgement: Judgement) -> None:
    every = {verdict.claim.id for verdict in judgement.verdicts}
    refuted = {verdict.claim.id for verdict in judgement.verdicts if verdict.outcome == "refuted"}
    absent = {verdict.claim.id for verdict in judgement.verdicts if verdict.lacking}
    assert shown(tab) == every
    tab.click(".filters [data-outcome=refuted]")
    assert shown(tab) == refuted
    assert (
        tab.value("document.querySelector('#verdict-count').textContent")
        == f"{len(refuted)} of {len(every)}"
    )
    tab.click(".filters [data-outcome=lacking]")
    assert shown(tab) == refuted | absent
    set_to(tab, "#verdict-paper", "TST")
    assert shown(tab) == {"TST-02", "TST-04"}
    assert tab.value("document.querySelector('#verdicts-HDV').hidden")
    set_to(tab, "#verdict-text", "CKA sentence")
    assert shown(tab) == {"TST-04"}
    assert tab.value("document.querySelector('#verdicts-TST .lacking').open"), (
        "what is found is shown"
    )
    tab.value("location.hash = 'VIT-07'")
    tab.wait("document.querySelector('#VIT-07').getBoundingClientRect().height > 0")
    assert shown(tab) == every, "a link shows what was filtered out"
    assert tab.value("document.querySelector('#verdict-count').textContent") == ""


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_sticks_out(tab: Page, width: int) -> None:
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    tab.value("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert tab.value("document.documentElement.scrollWidth") <= width
