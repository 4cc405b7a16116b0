"""`vitreous claims judge` as a person meets it, and verdicts in the report of `vitreous
inspect`."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from math import isfinite
from pathlib import Path

import pytest
from rich.console import Console

import vitreous
from claims.cases.dosovitskiy_2021 import CASES, trained
from report.made_up import BELOW, GAP, WIDE, made_up
from vitreous import claims
from vitreous.claims.effects import Effect
from vitreous.claims.evidence import Evidence, EvidenceItem, Need
from vitreous.claims.loading import load_evidence
from vitreous.claims.quantity import replicates_from_interval
from vitreous.claims.statistics import UNKNOWN
from vitreous.claims.verdicts import Verdict, judge
from vitreous.cli import main
from vitreous.commands.judge import (
    choose_claims,
    parse_ids,
    print_verdicts,
    verdict_rows,
    verdicts_csv,
    verdicts_json,
    verdicts_latex,
)
from vitreous.results import Result
from vitreous.results.latex import escape_latex
from vitreous.results.replicates import Replicates


def resampled(result: Result) -> Result:
    """The result with replicates that are as far from the value as its interval says."""
    if "low" not in result.table:
        return result
    value, low, high = (result.table[each].to_numpy(float) for each in ("value", "low", "high"))
    drawn = replicates_from_interval(result.name, value, low, high)[1:]
    return replace(result, replicates={"value": Replicates.of(value, drawn.T)})


def stored(folder: Path, exhibits: Sequence[EvidenceItem]) -> Path:
    """As a study leaves them."""
    for number, each in enumerate(exhibits):
        home = folder / "exhibits" / f"{number:02d}"
        for result in each.results.values():
            resampled(result).save(home)
        index = {
            "facts": dict(each.facts),
            "name": each.name,
            "other": each.other,
            "classes": 10,
            "left_out": {},
            "results": each.marks(),
        }
        (home / "exhibit.json").write_text(json.dumps(index))
    return folder


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return stored(tmp_path / "study", CASES["VIT-02"].holds)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and what was complained about."""
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, " ".join(said.out.split()), said.err


def test_a_table_a_page_and_files(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["new/v.html", "new/v.csv", "new/v.json"]
    asked = [word for name in names for word in ("--out", name)]
    code, out, err = run(capsys, "claims", "judge", "study", *asked)
    assert (code, err) == (0, "")
    verdicts = judge(load_evidence("study"), claims.every_claim())
    measured = [verdict for verdict in verdicts if verdict.measured]
    untestable = sum(verdict.outcome == "not testable here" for verdict in measured)
    assert out.startswith(f"149 claims, {len(measured) - untestable} of them measured.")
    assert f"{untestable} not testable here: a precondition is not met." in out.replace("\n", " ")
    assert out.endswith("Wrote new/v.html, new/v.csv, new/v.json")
    page = Path("new/v.html").read_text()
    assert page.count('<article class="verdict"') == len(measured)
    assert page.count('<li class="verdict"') == 149 - len(measured)
    assert Path("new/v.csv").read_text() == verdicts_csv(verdicts)
    assert json.loads(Path("new/v.json").read_text()) == verdict_rows(verdicts)
    rows = list(csv.DictReader(StringIO(Path("new/v.csv").read_text())))
    assert {row["claim"] for row in rows} == {claim.id for claim in claims.every_claim()}


def test_only_some(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "claims", "judge", "study", "--only", "vit-02, HDV-26,VIT-02")
    assert code == 0
    assert out.startswith("2 claims, 1 of them measured. 1 reproduced.")
    assert "Missing: fourier of vit" in out, "what is asked for by name is always shown"
    assert parse_ids("vit-02, HDV-26,VIT-02") == ["VIT-02", "HDV-26"]
    chosen = [claim.id for claim in choose_claims(claims.every_claim(), "vit-02,CVT,vit-02")]
    assert chosen[0] == "VIT-02"
    assert len(chosen) == 1 + sum(claim.id.startswith("CVT-") for claim in claims.every_claim())


def test_all_prints_what_was_not_decided(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, short, _ = run(capsys, "claims", "judge", "study")
    _, full, _ = run(capsys, "claims", "judge", "study", "--all")
    assert "--all shows them." in short
    assert "HDV-26" not in short
    assert "--all shows them." not in full
    assert all(claim.id in full for claim in claims.every_claim())


def printed(width: int, everything: bool, *verdicts: Verdict) -> list[str]:
    console = Console(width=width, file=StringIO(), color_system=None)
    print_verdicts(verdicts, console, everything)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_headings_take_no_room_from_sentences() -> None:
    once = replace(GAP, measured=replace(GAP.measured, seeds=1))
    text = printed(
        100,
        False,
        made_up("TST-01", "not testable here", GAP),
        made_up("TST-02", "holds untrained", once),
        made_up("TST-03", "weaker", GAP),
    )
    assert "◐ weaker (1)" in text
    assert "◇ holds untrained (1)" in text
    [row] = [line for line in text if "TST-02" in line]
    assert row.startswith("  TST-02  A sentence")
    assert row.split()[-6:] == ["4.2", "[3.1,", "5.4]¹", "26%", "of", "paper"]
    assert "¹ seen once: fewer than 3 trainings" in text
    assert not any("TST-01" in line for line in text)
    assert text[-1].startswith("1 more are undecided, not testable here or not measured")


def test_claims_show_prints_everything_about_a_claim() -> None:
    agrees = Effect("agrees", GAP.measured, "more")
    against = Effect("against", BELOW.measured, "more")
    text = "\n".join(
        printed(
            120,
            True,
            made_up("TST-01", "mixed", GAP, agrees, against, notes=("Because.",)),
            made_up("TST-02", "undecided", missing=(Need({"model": "vit"}, "cka"),)),
            made_up("TST-03", "weaker", GAP, withdrawn="Gone."),
            made_up("TST-04", "undecided", WIDE, replace(agrees, label="another")),
            made_up("TST-05", "undecided", Effect("unknown", UNKNOWN, "more"), agrees),
            made_up("TST-06", "weaker", replace(GAP, control=BELOW.measured, learned=GAP.measured)),
        )
    )
    assert "? undecided (1)" in text, "as the first paragraph counts"
    assert "not measured (2)" in text
    assert "wide (1 of 1 others agree)" in text
    assert "unknown (" not in text
    assert "Untrained: −1.00; training adds 4.20 (3.10 to 5.40)" in text
    assert "error of ViT minus error of ResNet (1 of 2 others agree)" in text
    assert "Because." in text
    assert "Missing: cka of vit. vitreous study zoo measures it." in text
    assert "Withdrawn: Gone." in text
    assert "seen once" not in text


def test_rows_have_the_numbers_that_were_judged() -> None:
    chosen = [c for c in claims.every_claim() if c.id in ("VIT-02", "VIT-09")]
    verdicts = judge(Evidence(CASES["VIT-02"].holds), chosen)
    found = list(csv.DictReader(StringIO(verdicts_csv(verdicts))))
    effects = [(verdict, effect) for verdict in verdicts for effect in verdict.effects]
    assert len(found) == len(effects)
    for row, (verdict, effect) in zip(found, effects, strict=True):
        told = (row["claim"], row["verdict"], row["label"])
        assert told == (verdict.claim.id, verdict.outcome, effect.label)
        known = isfinite(effect.measured.value)
        assert row["value"] == (repr(effect.measured.value) if known else "")
        assert row["outcome"] == (effect.outcome or "noted")
        assert (row["role"] == "main") == (effect is verdict.main)
        assert int(row["trainings"]) == effect.seeds
    assert json.loads(verdicts_json(verdicts)) == verdict_rows(verdicts)
    main = [effect for verdict, effect in effects if effect is verdict.main]
    main = [effect for effect in main if isfinite(effect.measured.value)]
    lines = verdicts_latex(verdicts).splitlines()
    rows = [line for line in lines if line.startswith("VIT-")]
    assert len(rows) == len(main) > 0
    for line, effect in zip(rows, main, strict=True):
        assert f"& {escape_latex(effect.label)} &" in line


def test_a_table_without_rows_is_written() -> None:
    assert verdicts_json([]) == "[]\n"
    assert verdicts_csv([]).strip() == ""


def damaged(home: Path, what: str) -> None:
    """A study that somebody has spoiled."""
    inside = home / "exhibits" / "00"
    if what == "index":
        (inside / "exhibit.json").write_text('{"facts": {"model": "vit"}')
    elif what == "fact":
        (inside / "exhibit.json").write_text(
            (inside / "exhibit.json").read_text().replace('"positions"', '"position"')
        )
    elif what == "table":
        next(inside.glob("*.parquet")).write_bytes(b"PAR1")
    elif what == "empty":
        for each in home.glob("exhibits/*/exhibit.json"):
            each.unlink()
    elif what == "inspection":
        (home.parent / "looked").mkdir()
        (home.parent / "looked" / "inspection.json").write_text('{"results": 3}')


@pytest.mark.parametrize(
    ("what", "arguments", "sentence"),
    [
        (
            "",
            ["nowhere"],
            "There is no folder 'nowhere' of saved results or of a study.",
        ),
        (
            "empty",
            ["study"],
            "There is nothing to judge in 'study': no model in it has been measured yet",
        ),
        ("", ["study", "--only", "VIT-200"], "There is no claim 'VIT-200'. Did you mean VIT-20"),
        (
            "",
            ["study", "--only", ","],
            "--only takes ids of claims, for example HDV-26,SLC-03, not ','.",
        ),
        (
            "",
            ["study", "--out", "v.pdf"],
            "A report is written as HTML, and 'v.pdf' ends otherwise",
        ),
        ("", ["study", "--out", "file/v.csv"], "Cannot write 'file"),
        (
            "",
            ["study", "--role", "mine"],
            "--role takes NAME=FACTS, for example run:mine='vit pool=gap', not 'mine'.",
        ),
        ("index", ["study"], "exhibit.json' is damaged (no JSON: Expecting"),
        ("fact", ["study"], "There is no fact 'position'. Did you mean positions"),
        ("table", ["study"], "its content is not what was saved"),
        ("inspection", ["looked"], "inspection.json' is damaged (TypeError"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    what: str, arguments: list[str], sentence: str, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged(study, what)
    (study.parent / "file").touch()
    code, _, err = run(capsys, "claims", "judge", *arguments)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert not (study.parent / "v.pdf").exists()


def test_judging_needs_no_torch(study: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from rich.console import Console; "
        "from vitreous.commands.judge import judge_folder; "
        "judge_folder(Path('study'), None, (), [Path('v.html')], False, Console(quiet=True)); "
        "print(sorted({'torch', 'timm'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(vitreous.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


def test_different_versions_are_not_judged_together(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(study / "more", trained("resnet", 80.0))
    (study / "more" / "exhibits" / "00").rename(study / "exhibits" / "99")
    index = study / "exhibits" / "99" / "exhibit.json"
    index.write_text(index.read_text().replace('["0", "0"]', '["0.9", "0"]'))
    code, _, err = run(capsys, "claims", "judge", "study")
    assert code == 2
    assert "has version '0.9'" in err


def test_an_inspection_ends_with_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On what was measured just now; and the same from its folder, also under other roles."""
    monkeypatch.chdir(tmp_path)
    asked = [
        "--probes",
        "variance",
        "accuracy",
        "--limit",
        "20",
        "--device",
        "cpu",
        "--results",
        "numbers",
    ]
    code, out, err = run(capsys, "inspect", "nano:vit", "nano:resnet", *asked)
    assert (code, err) == (0, "")
    assert "of 149 findings could be judged" in out
    page = Path("inspect-nano-vit-nano-resnet.html").read_text()
    assert page.index('id="first"') < page.index('id="verdicts"') < page.index('id="models"')
    assert "<b>vit</b> is nano:vit and <b>resnet</b> is nano:resnet" in page
    code, out, _ = run(capsys, "claims", "judge", "numbers", "--only", "HDV-36", "--out", "v.html")
    assert code == 0
    assert "1 training of each · world:shapes (synthetic images)" in Path("v.html").read_text()
    swapped = ["--role", "nano:resnet=vit", "--role", "nano:vit=resnet"]
    assert (
        run(capsys, "claims", "judge", "numbers", "--only", "HDV-36", *swapped, "--out", "v.html")[
            0
        ]
        == 0
    )
    assert "<b>resnet</b> is nano:vit" in Path("v.html").read_text()
    code, _, err = run(capsys, "claims", "judge", "numbers", "--role", "nano:vitt=vit")
    assert code == 2
    assert "There is no model of the inspection 'nano:vitt'. Did you mean nano:vit" in err


def test_a_role_for_an_unknown_model_is_an_error_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "vitreous.measure.engine.inspect", lambda *_, **__: pytest.fail("it looks first")
    )
    code, _, err = run(capsys, "inspect", "nano:vit", "--role", "nano:resnet=resnet")
    assert code == 2
    assert "There is no model to inspect 'nano:resnet'" in err
