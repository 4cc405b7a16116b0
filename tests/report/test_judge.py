"""`vitreous claims judge` as a person meets it, and verdicts in the report of `vitreous inspect`."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest

import vitreous
from claims.cases.dosovitskiy_2021 import CASES, trained
from vitreous import claims
from vitreous.claims.evidence import Evidence, EvidenceItem
from vitreous.claims.facts import parse_roles
from vitreous.claims.verdicts import judge
from vitreous.cli import main
from vitreous.commands.judge import FIELDS, parse_ids, verdicts_csv
from vitreous.errors import VitreousError


def stored(folder: Path, exhibits: Sequence[EvidenceItem]) -> Path:
    """As a study leaves them."""
    for number, each in enumerate(exhibits):
        home = folder / "exhibits" / f"{number:02d}"
        for result in each.results.values():
            result.save(home)
        index = {"facts": dict(each.facts), "name": each.name, "other": each.other, "classes": 10, "left_out": {},
                 "results": each.marks()}  # fmt: skip
        (home / "exhibit.json").write_text(json.dumps(index))
    return folder


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return stored(tmp_path / "study", CASES["VIT-02"].supported)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and what was complained about."""
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    said = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, " ".join(said.out.split()), said.err


def test_a_table_a_page_and_a_file(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(
        capsys, "claims", "judge", "study", "--out", "new/v.html", "--csv", "new/v.csv"
    )
    assert (code, err) == (0, "")
    assert "149 claims: 2 supported, 0 refuted, 147 inconclusive." in out
    assert out.endswith("Wrote new/v.html, new/v.csv")
    page = Path("new/v.html").read_text()
    assert page.count('<article class="verdict"') == 2
    assert page.count('<li class="verdict"') == 147
    found = list(csv.DictReader(StringIO(Path("new/v.csv").read_text())))
    assert list(found[0]) == list(FIELDS)
    assert {row["claim"] for row in found} == {claim.id for claim in claims.every_claim()}


def test_only_some(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "claims", "judge", "study", "--only", "vit-02, HDV-26,VIT-02")
    assert code == 0
    assert "2 claims: 1 supported, 0 refuted, 1 inconclusive." in out
    assert parse_ids("vit-02, HDV-26,VIT-02") == ["VIT-02", "HDV-26"]


def test_the_file_has_the_numbers_that_were_judged() -> None:
    verdicts = judge(
        Evidence(CASES["VIT-02"].supported),
        [c for c in claims.every_claim() if c.id in ("VIT-02", "VIT-09")],
    )
    found = list(csv.DictReader(StringIO(verdicts_csv(verdicts))))
    parts = [(verdict, part) for verdict in verdicts for part in verdict.parts]
    assert len(found) == len(parts)
    for row, (verdict, part) in zip(found, parts, strict=True):
        assert (row["claim"], row["verdict"], row["says"]) == (
            verdict.claim.id,
            verdict.outcome,
            part.says,
        )
        known = part.effect == part.effect
        assert row["effect"] == (repr(part.effect) if known else "")
        assert row["so"] == (part.outcome or "noted")
    assert {row["side"] for row in found} <= {"≥", ">", "≤", "<", ""}


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
            "There is nothing to judge in 'nowhere': it has neither a folder 'exhibits'",
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
        ("", ["study", "--csv", "file/v.csv"], "Cannot write 'file"),
        (
            "",
            ["study", "--role", "mine"],
            "--role takes NAME=FACTS, run:mine='vit pool=gap' for one, and not 'mine'.",
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
        "judge_folder(Path('study'), None, (), Path('v.html'), None, Console(quiet=True)); "
        "print(sorted({'torch', 'timm', 'scipy'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(vitreous.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


def test_roles() -> None:
    assert parse_roles(["run:mine=vit pool=gap", "b = resnet"]) == {
        "run:mine": "vit pool=gap",
        "b": "resnet",
    }
    with pytest.raises(VitreousError, match=r"There is no fact 'poll'\. Did you mean pool"):
        parse_roles(["a=vit poll=gap"])
    with pytest.raises(
        VitreousError, match=r"There is no model among the facts 'resent'\. Did you mean resnet"
    ):
        parse_roles(["a=resent"])


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
    assert "of the 149 findings could be judged on what was measured" in out
    page = Path("report.html").read_text()
    assert page.index('id="verdicts"') < page.index('id="summary"')
    assert "<b>vit</b> is nano:vit and <b>resnet</b> is nano:resnet" in page
    code, out, _ = run(capsys, "claims", "judge", "numbers", "--only", "HDV-36", "--out", "v.html")
    assert code == 0
    assert (
        "variance of resnet · 1 training of each · world:shapes (the embedded world)"
        in Path("v.html").read_text()
    )
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
    assert "There is no model among those looked at 'nano:vitt'. Did you mean nano:vit" in err


def test_a_role_of_nobody_is_refused_before_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "vitreous.measure.engine.inspect", lambda *_, **__: pytest.fail("it looks first")
    )
    code, _, err = run(capsys, "inspect", "nano:vit", "--role", "nano:resnet=resnet")
    assert code == 2
    assert "There is no model to inspect 'nano:resnet'" in err
