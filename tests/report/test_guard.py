"""A report is never lost: whatever fails while it is rendered, the page shows why, and shows
everything else."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vitreous
from vitreous import Inspection, claims
from vitreous.claims.loading import evidence_of
from vitreous.claims.quantity import Quantity
from vitreous.claims.statistics import UNKNOWN, estimate_effect
from vitreous.claims.verdicts import judge
from vitreous.cli import main
from vitreous.commands.inspect_run import load_inspection
from vitreous.commands.judge import judge_inspection
from vitreous.errors import reason
from vitreous.measure import analyses, probes
from vitreous.measure.report_section import find_measurement
from vitreous.model_names import bundled
from vitreous.report import (
    attention,
    cards,
    contents,
    effect,
    forest,
    judgement,
    models,
    origin,
    overview,
    packing,
    papers,
    surface,
    verdicts,
)
from vitreous.report import page as page_module
from vitreous.report.guard import Guard, Unrendered
from vitreous.report.judgement import Judgement
from vitreous.report.page import page, write
from vitreous.results import Result
from vitreous.results.charts import chart_spec


class Broken(Exception):
    """What a part of a report raises here."""


def broken(*_: Any, **__: Any) -> Any:
    raise Broken("on purpose")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> tuple[int | str | None, Path]:
    """Exit code and folder of all bundled models, asked all probes in one report."""
    home = tmp_path_factory.mktemp("bundle")
    names = [f"nano:{name}" for name in bundled()]
    where = ["--out", str(home / "report.html"), "--results", str(home / "results")]
    with pytest.raises(SystemExit) as end:
        main(["inspect", *names, "--limit", "6", "--device", "cpu", *where])
    return end.value.code, home


@pytest.fixture(scope="module")
def found(bundle: tuple[int, Path]) -> Inspection:
    asked = Inspection.load(bundle[1] / "results")
    return Inspection({**asked, **load_inspection("nano")}, asked.left_out, asked.anatomies)


@pytest.fixture(scope="module")
def small(found: Inspection) -> tuple[Inspection, Judgement | None]:
    """One result of every kind that a page shows in its own way, of two models, and verdicts."""
    models = ["nano:vit", "nano:resnet"]
    few = vitreous.inspect(
        models, "world:shapes", ["accuracy", "cost", "attention_maps"], limit=6, device="cpu"
    )
    landscape = found["landscape"]
    one = landscape.table[landscape.table["model"] == "nano:vit"]
    kept = {**few, "lesion": found["lesion"], "landscape": replace(landscape, table=one)}
    return Inspection(kept, few.left_out, few.anatomies), judge_inspection(found, {})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their drawing library, and charts that are not drawn: seconds of a page, and
    not asked about."""
    monkeypatch.setattr(page_module, "_library", lambda: "0")
    monkeypatch.setattr(cards, "chart_data", lambda *_: {})
    monkeypatch.setattr(cards, "static_chart", lambda *_: "")
    monkeypatch.setattr(attention, "MAX_BYTES", 1)
    compress = gzip.compress
    monkeypatch.setattr(gzip, "compress", lambda raw, _, **how: compress(raw, 1, **how))


def test_all_bundled_models_with_all_probes_in_one_report(bundle: tuple[int, Path]) -> None:
    code, home = bundle
    text = (home / "report.html").read_text()
    assert code == 0
    assert len(bundled()) == 7
    assert "could not be rendered" not in text
    results = Inspection.load(home / "results")
    assert {*results, *results.left_out} == set(probes.names())
    assert all(f'id="{name}"' in text for name in probes.names())


def units() -> Iterator[tuple[object, str]]:
    """Every function that renders a part of the page, found in the modules themselves."""
    for module in (
        attention,
        cards,
        contents,
        effect,
        forest,
        judgement,
        models,
        origin,
        overview,
        papers,
        surface,
        verdicts,
        page_module,
    ):
        for name, value in vars(module).items():
            own = callable(value) and getattr(value, "__module__", "") == module.__name__
            if own and not isinstance(value, type) and name not in STRUCTURE:
                yield module, name


STRUCTURE = {
    *("write", "page"),  # the file as a whole
    *(
        "_library",
        "height_colours",
        "height_rules",
    ),  # files of the package, always the same
    *(
        "inspected_models",
        "has_maps",
        "verdicts_by_paper",
    ),  # which models and papers there are at all
    *("_measurements", "card", "overview_section", "key_charts"),  # nothing but calls of the guard
    "stands_alone",  # the widths of cards, which are narrow without it
    *("loss_grids", "summary_text"),  # of files and terminals, below
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("module", "name"), [*units()], ids=lambda each: getattr(each, "__name__", each)
)
def test_any_function_that_renders_a_part_may_fail(
    module: object, name: str, small: tuple[Inspection, Judgement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says what failed and why, has an end, and keeps the sections of the others."""
    for place in (module, *(page_module, cards, contents, overview, verdicts)):
        if getattr(place, name, None) is getattr(module, name):
            monkeypatch.setattr(place, name, broken, raising=False)
    guard = Guard()
    text = page(*small, guard)
    if not guard.failures:
        pytest.skip("is not called for these models")
    assert all("Broken: on purpose" in why for why in guard.failures.values())
    assert "could not be rendered:</b> Broken: on purpose" in text
    assert text.endswith("</html>\n")
    assert text.count("<section") == text.count("</section>")
    whole = {"accuracy", "cost", "lesion", "verdicts"} - (
        {"verdicts"} if name == "verdicts_section" else set()
    )
    kept = {each for each in whole if f'id="{each}"' in text}
    assert kept == whole or name in ("_card", "fold", "_count_more"), whole - kept


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", [*probes.names(), *analyses.names()])
def test_a_sentence_that_fails(
    name: str, found: Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name not in found:
        pytest.skip("was not asked")
    monkeypatch.setattr(find_measurement(name), "sentences", broken)
    guard = Guard()
    text = page(Inspection({name: found[name]}, {}, found.anatomies), None, guard)
    assert list(guard.failures) == [f"The findings of {name}"]
    start = text.index(f'id="{name}" aria-labelledby')
    assert (
        f"The findings of {name} could not be rendered:"
        in text[start : text.index("</section>", start)]
    )


@pytest.mark.parametrize("name", [*probes.names(), *analyses.names()])
def test_a_chart_that_fails(name: str, found: Inspection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "_library", lambda: "0")
    if name not in found or not found[name].views:
        pytest.skip("has no chart here")
    monkeypatch.setattr(packing, "chart_spec", broken)
    guard = Guard()
    text = page(Inspection({name: found[name]}, {}, {}), None, guard)
    assert len(guard.failures) == len(found[name].views)
    assert all(what.startswith("Figure ") for what in guard.failures)
    assert f'id="table-{name}"' in text


def test_every_claim_may_fail(found: Inspection, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, and the verdicts on the others stay as they are."""
    peace = judge_inspection(found, {})
    assert peace is not None
    evidence, whole = evidence_of(found), claims.every_claim()
    others = {each.claim.id: each.outcome for each in peace.verdicts}
    for place, claim in enumerate(whole):
        near = whole[max(place - 2, 0) : place + 3]
        for verdict in judge(
            evidence, [replace(each, check=broken) if each is claim else each for each in near]
        ):
            if verdict.claim.id == claim.id:
                assert re.fullmatch(
                    r"Broken: on purpose \(test_guard\.py, line \d+\)", verdict.failed
                )
                assert verdict.outcome == "undecided"
                assert verdict.notes == (f"It could not be judged: {verdict.failed}",)
            else:
                assert verdict.outcome == others[verdict.claim.id]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, said.out, said.err


def test_the_command_writes_the_rest_saves_the_results_and_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("accuracy", "variance"):
        monkeypatch.setattr(find_measurement(name), "sentences", broken)
    drawn: Callable[..., Any] = Result.chart
    spec: Callable[..., Any] = chart_spec
    monkeypatch.setattr(
        Result, "chart", lambda self, *at: broken() if self.name == "variance" else drawn(self, *at)
    )
    monkeypatch.setattr(
        packing, "chart_spec", lambda of, *at: broken() if of.name == "variance" else spec(of, *at)
    )
    asked = (
        "inspect",
        "nano:vit",
        "--probes",
        "accuracy",
        "variance",
        "--limit",
        "8",
        "--figures",
        "pictures",
    )
    code, out, err = run(capsys, *asked)
    assert code == 1
    lines = err.splitlines()
    assert all(
        " could not be rendered: Broken: on purpose (test_guard.py, line " in line for line in lines
    )
    assert lines[0].startswith("The findings of accuracy could not")
    assert len(lines) == 2 + 2 * len(FIGURES)
    assert "Traceback" not in err
    assert "Wrote inspect-nano-vit.html" in " ".join(out.split())
    assert 'id="chart-accuracy-0"' in (tmp_path / "inspect-nano-vit.html").read_text()
    assert (tmp_path / "pictures" / "accuracy-by-model-overall-nano_vit.svg").is_file()
    assert (tmp_path / "pictures" / "variance-nano_vit.csv").is_file()
    assert list(Inspection.load("inspect-nano-vit-results")) == ["accuracy", "variance"]


FIGURES = ("a figure on the page", "and its file")


@pytest.mark.usefixtures("quick")
def test_write_raises_if_a_part_cannot_be_rendered(
    small: tuple[Inspection, Judgement], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_measurement("accuracy"), "sentences", broken)
    with pytest.raises(
        Unrendered, match="The findings of accuracy could not be rendered: Broken: on purpose"
    ):
        write(small[0], tmp_path / "report.html")
    assert 'id="lesion"' in (tmp_path / "report.html").read_text()


def test_a_reason_is_one_line_and_says_where() -> None:
    with pytest.raises(KeyError) as caught:
        pd.DataFrame({"a": [1]})["b"]
    assert reason(caught.value).startswith("KeyError: 'b' (")
    assert reason(ValueError("two\nlines")) == "ValueError: two lines."


def test_a_row_of_no_numbers_is_not_a_number() -> None:
    """A network of one stage has no rise from stage to stage (HDV-29)."""
    none = Quantity({0: np.zeros((3, 0))})
    for reduced in (none.minimum(), none.maximum(), none.mean()):
        assert estimate_effect(reduced) is UNKNOWN


@pytest.mark.usefixtures("quick")
def test_verdicts_that_fail_before_the_page_is_made_are_said_on_it(found: Inspection) -> None:
    """The command judges first; a page without a word about it would look complete."""
    guard = Guard()
    assert guard.run("The verdicts", broken, lambda _: None) is None
    assert "The verdicts could not be rendered:</b> Broken: on purpose" in page(found, None, guard)
