"""Verdicts on the page: what is written and drawn is what was judged, and it can be filtered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from claims.cases.dosovitskiy_2021 import CASES, exact, trained
from claims.synthetic import accuracy, item
from report.browser import Page, browser, found
from report.conftest import EVIL
from report.made_up import BELOW, GAP, WIDE, made_up, measured
from report.test_page import Reader, policy
from vitreous import Inspection, claims
from vitreous.claims.book import find_claim
from vitreous.claims.effects import Effect
from vitreous.claims.evidence import Evidence, Need
from vitreous.claims.statistics import UNKNOWN
from vitreous.claims.verdicts import OUTCOMES, Verdict, judge, sentences_on_chance
from vitreous.report import effect, write
from vitreous.report.guard import Guard
from vitreous.report.judgement import Judgement, summary_sentences, summary_text
from vitreous.report.packing import policy_hash
from vitreous.report.verdicts import MEANINGS, SIGNS, verdicts_section


@pytest.fixture(scope="module")
def judgement() -> Judgement:
    """All claims on evidence for some of them, and four of a paper that does not exist."""
    evidence = Evidence([*CASES["VIT-02"].holds, *trained("resnet", 80.0, 3), exact(shuffled=0.0)])
    own = [
        made_up("TST-01", "weaker", GAP),
        made_up("TST-02", "opposite", BELOW),
        made_up("TST-03", "undecided", WIDE),
        made_up("TST-04", "undecided", missing=(Need({"model": "vit"}, "cka"),)),
    ]
    return Judgement([*judge(evidence, claims.every_claim()), *own], evidence.items)


@pytest.fixture(scope="module")
def text(
    inspection: Inspection, judgement: Judgement, tmp_path_factory: pytest.TempPathFactory
) -> str:
    path = tmp_path_factory.mktemp("verdicts") / "report.html"
    return write(inspection, path, judgement=judgement).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text: str) -> Reader:
    return Reader(text)


def html(*verdicts: Verdict) -> str:
    return "".join(verdicts_section(Judgement(verdicts, []), Guard()))


# Words.


def test_an_effect_in_words() -> None:
    assert effect.in_words(GAP) == (
        "error of ViT minus error of ResNet: 4.20 (3.10 to 5.40); paper 16.2 (26% of its effect)"
    )
    assert effect.in_words(Effect("n", measured(3, 3, 3), "less", -1.0)) == "n: 3.00"
    assert effect.in_words(Effect("a < b", measured(1, 0, 2))) == "a &lt; b: 1.00 (0 to 2.00)"
    assert effect.in_words(GAP, "<b>{}</b>").startswith(
        "error of ViT minus error of ResNet: <b>4.20 (3.10 to 5.40)</b>;"
    )
    beside = Effect("x", measured(2, 1, 3), "more", control=measured(0.5, 0.4, 0.6))
    assert effect.in_words(beside).endswith("; untrained 0.500")
    learned = replace(beside, learned=measured(1.5, 0.5, 2.5))
    assert effect.in_words(learned).endswith("; training adds 1.50 (0.500 to 2.50)")
    share = replace(measured(2, 1, 3), ratio=True)
    factor = effect.in_words(replace(learned, measured=share, null=1.0))
    assert factor.endswith("; training multiplies it by 1.50 (0.500 to 2.50)")


def test_an_effect_that_was_not_measured_has_no_share_of_the_papers() -> None:
    assert "%" not in effect.in_words(Effect("x", UNKNOWN, "more", paper=1.0))


def test_every_outcome_has_a_sign_and_a_meaning() -> None:
    assert set(SIGNS) == set(MEANINGS) == set(OUTCOMES)
    assert len(set(SIGNS.values())) == len(SIGNS)
    style = Path(effect.__file__).with_name("verdicts.css").read_text(encoding="utf-8")
    coloured = set(re.findall(r"\.outcome-([a-z-]+)", style))
    assert coloured == {*(outcome.replace(" ", "-") for outcome in OUTCOMES), "noted"}


def test_the_paragraph_counts(judgement: Judgement) -> None:
    outcomes = [verdict.outcome for verdict in judgement.verdicts if verdict.measured]
    paragraph = " ".join(summary_sentences(judgement))
    untestable = outcomes.count("not testable here")
    assert untestable
    assert paragraph.startswith(f"{len(outcomes) - untestable} of 153 findings could be judged: ")
    assert f"{untestable} cannot be tested here, because a precondition is not met." in paragraph
    for outcome in set(outcomes) - {"not testable here"}:
        assert f"{outcomes.count(outcome)} {outcome}" in paragraph
    assert paragraph.endswith(
        f"The other {153 - len(outcomes)} need models or measurements that are not here."
    )
    assert summary_text(judgement) == paragraph
    chance = " ".join(sentences_on_chance(judgement.measured))
    assert "by chance alone we would expect at most" in chance
    assert chance in "".join(verdicts_section(judgement, Guard()))


def test_nothing_and_one() -> None:
    missing = made_up("TST-09", "undecided", missing=(Need({"model": "vit"}, "cka"),))
    assert summary_sentences(Judgement([missing], [])) == [
        "None of 1 finding could be judged.",
        "The other 1 needs models or measurements that are not here.",
    ]
    one = Judgement([made_up("TST-01", "weaker", GAP)], [])
    assert summary_sentences(one) == ["1 of 1 finding could be judged: 1 weaker."]


def test_the_main_effect_decides_whether_a_claim_was_measured() -> None:
    unread = Effect("x", UNKNOWN, "more")
    noted = Effect("noted", measured(1, 1, 1))
    need = (Need({"model": "vit"}, "cka"),)
    assert made_up("TST-01", "weaker", GAP, unread, missing=need).measured
    assert made_up("TST-01", "undecided", noted, GAP).measured
    assert not made_up("TST-01", "undecided", unread, GAP).measured
    assert not made_up("TST-01", "undecided", noted).measured
    assert made_up("TST-01", "not testable here", unread).measured


def test_tags_warn() -> None:
    assert "seen once" not in html(made_up("TST-01", "weaker", GAP))
    once = Effect("x", measured(2, 1, 3, seeds=2), "more")
    assert '<span class="tag">seen once</span>' in html(made_up("TST-01", "reproduced", once))
    assert "Fewer than 3 trainings (“seen once”) refute nothing." in html(
        made_up("TST-01", "opposite", once)
    )
    assert "seen once" not in html(made_up("TST-01", "undecided", once))
    lost = made_up("TST-01", "reproduced", GAP, survives=False)
    assert "not certain among all findings (Holm)" in html(lost)
    withdrawn = html(made_up("TST-01", "weaker", GAP, withdrawn="Gone."))
    assert '<span class="tag">withdrawn</span>' in withdrawn
    assert "<dt>withdrawn</dt><dd>Gone.</dd>" in withdrawn


def test_supporting_effects_are_counted_and_tabled() -> None:
    agrees = Effect("agrees", measured(2, 1, 3), "more")
    against = Effect("against", measured(-2, -3, -1), "more")
    noted = Effect("noted", measured(7, 7, 7))
    text = html(made_up("TST-01", "mixed", GAP, agrees, against, noted, notes=("Because.",)))
    assert "1 of 2 supporting effects agree" in text
    assert "<b>error of ViT minus error of ResNet</b>" in text
    assert '<td class="says">agrees</td>' in text
    assert "more than 0 for certain, at least 8.1 (half of the paper&#x27;s effect)" in text
    assert '<p class="told warned">Because.</p>' in text


def test_what_is_not_testable_shows_why_and_no_number() -> None:
    unread = Effect("x", UNKNOWN, "more", paper=1.0)
    text = html(made_up("TST-01", "not testable here", unread, notes=("It needs more.",)))
    assert "It needs more." in text
    assert "nan" not in text
    assert '<svg class="effect' not in text


# The small picture.


def test_verdicts_follow_the_first_screen_and_every_finding_is_there_once(
    page: Reader, judgement: Judgement
) -> None:
    sections = [str(a["id"]) for tag, a in page.elements if tag == "section"]
    assert sections[:3] == ["first", "verdicts", "models"]
    papers = [str(a["id"]) for tag, a in page.elements if "data-paper" in a and tag == "details"]
    assert papers == [f"verdicts-{key}" for key in ("HDV", "SLC", "VIT", "CVT", "TST")]
    ids = [str(a["id"]) for _, a in page.elements if a.get("id")]
    assert len(set(ids)) == len(ids)
    assert {verdict.claim.id for verdict in judgement.verdicts} <= set(ids)
    links = {str(a["href"]) for tag, a in page.elements if tag == "a"}
    assert {each[1:] for each in links if each[0] == "#"} <= set(ids), "a link leads nowhere"
    assert all(each.startswith("https://arxiv.org/abs/") for each in links if each[0] != "#")
    outcomes = {
        str(a["id"]): a["data-outcome"]
        for _, a in page.elements
        if "verdict" in str(a.get("class")).split()
    }
    for verdict in judgement.verdicts:
        assert outcomes[verdict.claim.id] == (
            "lacking" if not verdict.measured else verdict.outcome
        )


def test_the_page_stays_closed(page: Reader, text: str) -> None:
    assert EVIL not in text
    assert f"A sentence {EVIL}." in "".join(page.words)
    for tag, attributes in page.elements:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag
    library = page.unpacked("library")
    assert policy(page)["script-src"] == [policy_hash(each) for each in (*page.scripts, library)]


def test_what_a_verdict_says(page: Reader) -> None:
    words = " ".join("".join(page.words).split())
    assert "reproduced" in words
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
    claim = find_claim(claims.every_claim(), "HDV-09")
    said = html(Verdict(claim, "reproduced", (GAP,), "cifar10", "ten"))
    assert '<span class="tag">disputed</span>' in said
    assert "Chen et al. (2022) find it sharper" in said


def test_a_missing_analysis_can_be_added_to_an_inspection() -> None:
    there = [item("vit", accuracy(90.0)), item("resnet", accuracy(80.0))]

    def command(models: list[str], result: str, inspected: bool) -> str:
        missing = tuple(Need({"model": model}, result) for model in models)
        given = Judgement([made_up("TST-01", "undecided", missing=missing)], there, inspected)
        return "".join(re.findall("<code>(.*?)</code>", "".join(verdicts_section(given, Guard()))))

    assert command(["vit", "resnet"], "erf", True) == "vitreous inspect … --analyses erf"
    assert command(["vit", "resnet"], "erf", False) == "vitreous study zoo"
    assert command(["vit", "swin"], "erf", True) == "vitreous study zoo"
    assert command(["vit"], "training", True) == "vitreous study zoo"


def test_a_page_of_verdicts_alone(judgement: Judgement, tmp_path: Path) -> None:
    path = write(Inspection({}), tmp_path / "verdicts.html", judgement=judgement)
    page = Reader(path.read_text(encoding="utf-8"))
    assert "library" not in page.blocks
    assert policy(page)["script-src"] == [policy_hash(each) for each in page.scripts]
    ids = [str(a["id"]) for _, a in page.elements if a.get("id")]
    assert "verdicts" in ids
    assert "models" not in ids
    links = {str(a["href"]) for tag, a in page.elements if tag == "a"}
    assert {each[1:] for each in links if each[0] == "#"} <= set(ids)
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


def test_on_a_phone_all_marks_of_the_forest_plot_are_in_sight(tab: Page) -> None:
    size = {"height": 844, "deviceScaleFactor": 1, "mobile": False}
    tab.call("Emulation.setDeviceMetricsOverride", width=390, **size)
    ends = "[...document.querySelectorAll('.forest .point')].map((e) => e.getBoundingClientRect())"
    places = tab.value(f"{ends}.map((e) => [e.left, e.right])")
    ids = tab.value(
        "[...document.querySelectorAll('.forest .id')].map((e) => e.getBoundingClientRect().right)"
    )
    tab.call("Emulation.clearDeviceMetricsOverride")
    assert len(places) >= 3
    assert all(max(ids) < left <= right < 390 for left, right in places)


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
    measured = {verdict.claim.id: verdict.outcome for verdict in judgement.measured}
    opposite = {id for id, outcome in measured.items() if outcome == "opposite"}
    untestable = {id for id, outcome in measured.items() if outcome == "not testable here"}
    absent = every - set(measured)
    assert opposite
    assert untestable
    assert shown(tab) == every
    tab.click(".filters [data-outcome='not testable here']")
    assert shown(tab) == untestable
    tab.click(".filters [data-outcome='not testable here']")
    tab.click(".filters [data-outcome=opposite]")
    assert shown(tab) == opposite
    assert (
        tab.value("document.querySelector('#verdict-count').textContent")
        == f"{len(opposite)} of {len(every)}"
    )
    tab.click(".filters [data-outcome=lacking]")
    assert shown(tab) == opposite | absent
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
