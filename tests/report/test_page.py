"""The file as a file: complete, closed to the network, closed to what names might contain, and true
to the tables."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from report.conftest import EVIL, NET, OTHER, VIT
from vitreous import Inspection, Result, VitreousError
from vitreous.measure.report_section import arrange
from vitreous.report import write
from vitreous.report.cards import stands_alone
from vitreous.report.origin import origin_section
from vitreous.report.overview import first_clause, key_charts
from vitreous.report.page import page as page_text
from vitreous.results.charts import chart_spec


class Reader(HTMLParser):
    """What a browser would make of it: elements with their attributes, scripts, styles and the
    words between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.words: list[str] = []
        self.blocks: dict[str, str] = {}
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.inside and self.inside[-1] == "script":
            about = self.elements[-1][1]
            if about.get("type") == "text/plain":
                self.blocks[str(about["id"])] = data
            else:
                self.scripts.append(data)
        elif self.inside and self.inside[-1] == "style":
            self.styles.append(data)
        else:
            self.words.append(data)

    def unpacked(self, name: str) -> str:
        return gzip.decompress(base64.b64decode(self.blocks[name])).decode()


@pytest.fixture(scope="module")
def text(inspection: Inspection, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    path = write(inspection, folder / "deep" / "report.html")
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text: str) -> Reader:
    return Reader(text)


def policy(page: Reader) -> dict[str, list[str]]:
    [content] = [
        a["content"]
        for tag, a in page.elements
        if tag == "meta" and "Content-Security" in str(a.get("http-equiv"))
    ]
    return {part.split()[0]: part.split()[1:] for part in str(content).split(";")}


def test_nothing_is_fetched(page: Reader) -> None:
    for tag, attributes in page.elements:
        for name in ("src", "href", "data", "action", "poster", "srcset"):
            target = attributes.get(name) or "#"
            inside = "https://arxiv.org/abs/" if tag == "a" else "data:image/png;base64,"
            assert target.startswith(("#", inside)), f"{tag} {name}={target}"
        assert tag not in ("link", "iframe", "object", "embed", "base")
    assert not re.search(r"url\(|@import", "".join(page.styles))
    assert "fetch(" not in "".join(page.scripts)


def test_the_policy_allows_our_scripts_and_styles_and_nothing_else(page: Reader) -> None:
    allowed = policy(page)
    assert allowed["default-src"] == ["'none'"]
    assert allowed["img-src"] == ["data:"]
    whole = " ".join(word for words in allowed.values() for word in words)
    assert "unsafe" not in whole
    assert "http" not in whole

    def digest(given: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(given.encode()).digest()).decode()}'"

    library = page.unpacked("library")
    assert allowed["script-src"] == [digest(each) for each in (*page.scripts, library)]
    assert allowed["style-src"] == [digest(page.styles[0])]
    assert (len(page.scripts), len(page.styles)) == (2, 1)
    first = [tag for tag, _ in page.elements[:5]]
    assert first.index("meta") < 4
    assert "script" not in first


def test_no_style_and_no_handler_in_an_attribute(page: Reader) -> None:
    """The policy would drop them without a word."""
    for tag, attributes in page.elements:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag


def test_names_cannot_become_markup(page: Reader, text: str) -> None:
    assert EVIL not in text
    assert "onerror=alert" not in re.sub(r"&[a-z#0-9]+;.*?onerror=alert", "", text)
    images = [str(a["src"]) for tag, a in page.elements if tag == "img"]
    assert all(each.startswith("data:image/png;base64,") for each in images)
    words = "".join(page.words)
    for name in (VIT, OTHER, f"folder:{EVIL}", f"It has no gates {EVIL}.", f"head{EVIL}"):
        assert name in words, name


def test_every_question_is_there_once_with_its_charts(page: Reader, inspection: Inspection) -> None:
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(set(ids)) == len(ids)
    for name in [*inspection, *inspection.left_out]:
        assert name in ids
    for name, result in inspection.items():
        for i in range(len(result.views)):
            assert f"{name}-{i}" in ids
            assert json.loads(page.unpacked(f"chart-{name}-{i}"))["name"] == name
    links = {str(a["href"]) for tag, a in page.elements if tag == "a"}
    links = {each[1:] for each in links if each.startswith("#")}
    assert links <= set(ids), "a link leads nowhere"


def test_the_report_shows_an_unknown_probe(page: Reader) -> None:
    words = "".join(page.words)
    assert "Brand new" in words
    assert "Mean distance." in words
    assert "More" in words


def test_the_order_is_that_of_the_table(page: Reader) -> None:
    ids = [a["id"] for tag, a in page.elements if tag == "section"]
    order = [
        "first",
        "models",
        "representation",
        "cka",
        "attention",
        "attention_distance",
        "attention_maps",
    ]
    order += [
        "frequency",
        "fourier",
        "output",
        "calibration",
        "weights",
        "filters",
        "gates",
        "more",
        "brand_new",
        "origin",
    ]
    assert ids == order


def test_the_file_of_a_table_is_the_table(page: Reader, inspection: Inspection) -> None:
    for name, result in inspection.items():
        read = pd.read_csv(StringIO(page.unpacked(f"table-{name}")))
        pd.testing.assert_frame_equal(
            read, result.table.reset_index(drop=True), check_dtype=False, check_exact=True
        )


def test_the_report_lists_what_was_left_out_and_why(page: Reader) -> None:
    words = "".join(page.words)
    assert f"{NET}: It has no attention {EVIL}." in words
    assert f"{VIT} (head{EVIL}): It has no map." in words
    assert f"{VIT} (stem): Too early." in words
    assert f"{NET}: It has no gates" in words


def test_how_to_read_references_and_papers_are_there(page: Reader) -> None:
    words = "".join(page.words)
    assert "To compare with. uniform attention: 21.5." in words
    assert "Dosovitskiy et al. 2021, Fig. 7" in words
    assert "64 images of folder:" in words
    assert "16 November 2026" in words


def six_digits(number: str) -> float:
    return float(f"{float(number):.6g}")


def test_a_dark_chart_is_the_light_one_with_its_changes(
    page: Reader, inspection: Inspection
) -> None:
    for name, result in inspection.items():
        for i in range(len(result.views)):
            kept = json.loads(page.unpacked(f"chart-{name}-{i}"), parse_float=six_digits)
            for path, value in kept["dark"]:
                part = kept["spec"]
                for step in path[:-1]:
                    part = part[step]
                part[path[-1]] = value
            whole = json.dumps(chart_spec(result, result.views[i], "dark"))
            wanted = json.loads(whole, parse_float=six_digits)
            found = {key: value for key, value in kept["spec"].items() if key in wanted}
            assert found == {key: wanted[key] for key in found}, f"view {i} of {name}"
            assert wanted.keys() - found.keys() <= {"title"}


def test_writing_twice_gives_the_same_bytes(
    inspection: Inspection, text: str, tmp_path: Path
) -> None:
    assert write(inspection, tmp_path / "again.html").read_text(encoding="utf-8") == text


def test_one_model_and_one_question_are_enough(inspection: Inspection, tmp_path: Path) -> None:
    alone = Inspection({"calibration": inspection["calibration"]})
    read = Reader(write(alone, tmp_path / "small.html").read_text(encoding="utf-8"))
    assert "calibration" in [a.get("id") for _, a in read.elements]


def test_an_empty_table_is_no_chart(inspection: Inspection, tmp_path: Path) -> None:
    full = inspection["attention_distance"]
    empty = Result(full.name, full.table.head(0), full.columns, full.views)
    read = Reader(
        write(Inspection({full.name: empty}), tmp_path / "empty.html").read_text(encoding="utf-8")
    )
    assert not [name for name in read.blocks if name.startswith("chart-")]


def test_bad_input_is_refused_in_one_sentence(inspection: Inspection, tmp_path: Path) -> None:
    with pytest.raises(VitreousError, match="no results"):
        write(Inspection({}), tmp_path / "report.html")
    with pytest.raises(VitreousError, match=r"call it report\.html"):
        write(inspection, tmp_path / "report.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(VitreousError, match="Cannot write"):
        write(inspection, tmp_path / "file" / "report.html")


def test_figures_and_tables_as_files(inspection: Inspection, tmp_path: Path) -> None:
    full = inspection["attention_distance"]
    few = Inspection({full.name: replace(full, views=full.views[:2])}, {}, inspection.anatomies)
    write(few, tmp_path / "report.html", figures=tmp_path / "figures")
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    two = "vit_script_alert_1_script-convit_script_img_src_x_onerror_alert_2"
    every = "vit_script_alert_1_script-and-2-more"
    figures = [f"attention_distance-by-depth-{two}", f"attention_distance-by-depth-{two}-2"]
    tables = [f"attention_distance-{two}", f"summary-{every}"]
    pictures = [*figures, f"anatomy-{every}"]
    expected = {f"{stem}.{suffix}" for stem in pictures for suffix in ("svg", "pdf", "png")}
    assert names == expected | {
        f"{stem}.{suffix}" for stem in tables for suffix in ("csv", "parquet", "tex")
    }
    assert (tmp_path / "figures" / f"anatomy-{every}.png").read_bytes()[:4] == b"\x89PNG"
    read = pd.read_parquet(tmp_path / "figures" / f"{tables[0]}.parquet")
    pd.testing.assert_frame_equal(read, few["attention_distance"].table)
    assert (tmp_path / "figures" / f"{figures[0]}.pdf").read_bytes()[:4] == b"%PDF"
    latex = (tmp_path / "figures" / f"{tables[0]}.tex").read_text()
    assert latex == few["attention_distance"].to_latex()


def test_provenance_combines_what_the_results_record(
    inspection: Inspection,
) -> None:
    """Results of an older version know less about the same model."""
    known = {"fingerprint": "ab", "preprocessing": "16x16 as they are"}
    one, other = list(inspection.values())[:2]
    new = replace(one, about={**one.about, "models": {VIT: known, NET: known}})
    old = replace(other, about={**other.about, "models": {VIT: {"fingerprint": "ab"}}})
    words = "\n".join(origin_section(Inspection({one.name: new, other.name: old})))
    timed = {
        name: replace(one, name=name, about={**one.about, "seconds": seconds})
        for name, seconds in (("variance", 41), ("cka", 41), ("erf", 7), ("linear_probe", 9))
    }
    times = "\n".join(origin_section(Inspection(timed)))
    assert "41 s for all probes together, 7 s for erf and 9 s for linear probe" in times
    assert words.count("16x16 as they are") == 1


def test_a_chart_without_a_number_is_not_drawn(inspection: Inspection) -> None:
    result = inspection["brand_new"]
    empty = replace(result, table=result.table.assign(value=float("nan")), replicates={})
    text = page_text(Inspection({"brand_new": empty}))
    assert "There is no number to draw" in text
    assert 'data-chart="brand_new-0"' not in text


def test_what_was_left_out_comes_last_in_its_group(inspection: Inspection) -> None:
    names = ["accuracy", "cost"]
    there = {"cost": replace(inspection["cka"], name="cost")}
    assert arrange(names, there) == {"overview": ["cost", "accuracy"]}
    assert arrange(names, {}) == {"overview": names}


def test_what_was_not_measured_is_one_card_of_its_group(inspection: Inspection) -> None:
    reasons = {name: {NET: f"Not for {name}."} for name in ("head_diversity", "rollout", "gates")}
    few = {name: inspection[name] for name in ("attention_distance", "cka")}
    text = page_text(Inspection(few, reasons, inspection.anatomies))
    attention = text[text.index('id="attention"') : text.index('id="weights"')]
    assert attention.count("Not measured") == 1
    cards, _, absent = attention.partition("Not measured")
    assert 'id="attention_distance"' in cards
    for name in ("head_diversity", "rollout"):
        assert f'id="{name}"' in absent
        assert f"Not for {name}." in absent
    assert 'class="cards"' not in text[text.index('id="weights"') : text.index('id="origin"')]


def test_cards_without_a_neighbour_or_a_chart_are_wide(inspection: Inspection) -> None:
    chart = inspection["attention_distance"]
    bare = replace(chart, views=())
    assert stands_alone({"a": chart, "b": chart}) == set()
    assert stands_alone({"a": chart, "b": chart, "c": chart}) == {"c"}
    assert stands_alone({"a": chart, "b": bare, "c": chart, "d": chart}) == {"a", "b"}
    assert stands_alone({"a": bare}) == {"a"}
    assert stands_alone({}) == set()


@pytest.mark.parametrize(
    ("sentence", "clause"),
    [
        ("<b>a</b> most, 1; <b>b</b> least, 2.", "<b>a</b> most, 1."),
        ("<b>a &amp; b</b> most; c least.", "<b>a &amp; b</b> most."),
        ("a attends over 15 pixels (14 to 16; 91 %), far.", None),
        ("a over 15 pixels (14 to 16; 91 %); b less.", "a over 15 pixels (14 to 16; 91 %)."),
        ("a :-( most; b least.", "a :-( most."),
        ("All are tied.", None),
    ],
)  # fmt: skip
def test_a_key_chart_has_the_first_clause_of_its_sentence(
    sentence: str, clause: str | None
) -> None:
    assert first_clause(sentence) == (clause or sentence)


def test_the_first_screen_is_filled_and_says_nothing_twice(inspection: Inspection) -> None:
    """Also where no measurement asks for a place there."""
    names = ["a model"]
    table = inspection["brand_new"].table.assign(model="a model")
    plain = replace(inspection["brand_new"], table=table)
    assert key_charts(Inspection({"brand_new": plain}), names) == ["brand_new"]
    text = page_text(inspection)
    first = text[text.index('id="first"') : text.index('id="models"')]
    said = re.findall(r'<span data-models="[^"]*">(.*?)</span> <a class="where"', first)
    assert len(said) == len(set(said)) >= 2
