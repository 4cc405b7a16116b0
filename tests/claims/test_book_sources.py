"""Books of other packages: by entry point, module and file; what is wrong is told in a sentence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from other_books import (
    BOOK,
    CHECK,
    EXAMPLE,
    FINDING,
    forgotten_books,
    install,
    write_book,
)
from vitreous import claims
from vitreous.claims import book_sources
from vitreous.claims.facts import parse_roles
from vitreous.claims.loading import load_evidence
from vitreous.cli import main
from vitreous.commands.claims import list_claims, show_claim
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure import probes
from vitreous.studies.facts_to_training import training_for
from vitreous.studies.plan import plan
from vitreous.studies.scales import scale_named

TOKEN_NORM = "fifth_paper.token_norm:TokenNorm"
MINE = FINDING.format(id="MINE-1"), CHECK.format(id="MINE-1")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with forgotten_books():
        yield


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and what was complained about."""
    with pytest.raises(SystemExit) as stopped:
        main(words)
    said = capsys.readouterr()
    return int(stopped.value.code or 0), " ".join(said.out.split()), said.err


# Where they come from.


def test_an_installed_book_is_among_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built_in = len(claims.every_claim())
    install(monkeypatch, books={"registers": BOOK})
    every = claims.every_claim()
    assert [each.id for each in every[built_in:]] == [f"REG-0{n}" for n in range(1, 6)]
    assert claims.use_books([BOOK])[0] in claims.every_book()
    assert len(claims.every_claim()) == len(every), "given and installed, it counts once"
    assert every[-1].command == "vitreous study registers"
    for name in ("REG", "reg"):
        assert claims.claims_of_study(name) == claims.claims_of_study("registers")
    list_claims(paper="REG")
    show_claim("reg-05")
    assert "small_vit" in capsys.readouterr().out


def test_words_of_an_installed_book_are_known_to_evidence_and_roles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, books={"registers": BOOK})
    (tmp_path / "exhibits").mkdir()
    load_evidence(tmp_path)
    assert parse_roles(["mine=large_vit registers=4"]) == {"mine": "large_vit registers=4"}
    with pytest.raises(UnknownName, match="Did you mean registers"):
        parse_roles(["mine=large_vit registerz=4"])


def test_a_book_from_a_file_is_used_once(tmp_path: Path) -> None:
    name = write_book(tmp_path, *MINE)
    [book] = claims.use_books([name])
    assert [claim.id for claim in book] == ["MINE-1"]
    assert claims.use_books([name]) == [book]
    assert next(iter(book)).command == f"vitreous study zoo --book {name}"


def test_a_file_of_a_package_is_the_module_of_that_package() -> None:
    files = [EXAMPLE / "fifth_paper" / name for name in ("__init__.py", "findings.py")]
    books = claims.use_books([BOOK, *(f"{file}:BOOK" for file in files)])
    assert books[0] is books[1] is books[2]
    assert len(claims.every_book()) == 5


def test_a_relative_path_and_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_book(tmp_path / "sub", *MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    [one, other] = claims.use_books(["sub/mine.py:BOOK", "~/sub/mine.py:BOOK"])
    assert one is other
    assert list(book_sources.GIVEN) == [f"{tmp_path / 'sub' / 'mine.py'}:BOOK"]


def test_a_module_beside_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_book(tmp_path, *MINE)
    monkeypatch.chdir(tmp_path)
    assert [claim.id for claim in claims.use_books(["mine:BOOK"])[0]] == ["MINE-1"]


# Installed packages that are broken.


@pytest.mark.parametrize(
    ("book", "says"),
    [
        ("mine_gone:BOOK", "There is no module 'mine_gone'"),
        ("mine_bad:BOOK", r"'mine_bad:BOOK' cannot be imported: ZeroDivisionError: .*mine_bad\.py"),
        ("mine_lost:BOOK", "cannot be imported: ModuleNotFoundError: No module named 'nonsense'"),
        ("mine_ends:BOOK", "cannot be imported: SystemExit"),
        ("mine_half:BOOK", "'MINE-1' of the book mine_half:BOOK has no check"),
        ("mine_bad_text:BOOK", r"mine_bad_text\.toml' is no valid TOML"),
        ("fifth_paper.findings:SHARE", "is no book: it is a float"),
    ],
)
def test_a_broken_package_is_named_and_the_others_work(
    book: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_book(tmp_path, "", "1 / 0", "mine_bad")
    write_book(tmp_path, "", "import nonsense", "mine_lost")
    write_book(tmp_path, "", "raise SystemExit(3)", "mine_ends")
    write_book(tmp_path, MINE[0], "", "mine_half")
    write_book(tmp_path, "=", "", "mine_bad_text")
    install(monkeypatch, books={"a": book, "registers": BOOK})
    with caplog.at_level(logging.WARNING, "vitreous"):
        every = claims.every_claim()
        claims.every_claim()
    assert every[-1].id == "REG-05"
    assert not any(claim.id.startswith("MINE") for claim in every)
    [record] = caplog.records
    package = book.partition(":")[0].partition(".")[0]
    assert f"The findings of the package {package} are left out: " in record.getMessage()
    assert "\n" not in record.getMessage()
    with pytest.raises(VitreousError, match=says):
        claims.use_books([book])


# Names that are wrong.


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fifth_papr:BOOK", "There is no module 'fifth_papr'. Did you mean fifth_paper"),
        ("fifth_paper.finding:BOOK", "Did you mean fifth_paper.findings"),
        ("fifth_paper:BOK", "There is no book 'fifth_paper:BOK'. Did you mean fifth_paper:BOOK"),
        ("fifth_paper", "MODULE:NAME or FILE.py:NAME, for example mypkg.findings:NAME, not"),
        ("fifth_paper:", "MODULE:NAME or FILE.py:NAME"),
        (":BOOK", "MODULE:NAME or FILE.py:NAME"),
        ("fifth_paper.findings:SHARE", "is no book: it is a float, and has to be a vitreous"),
        ("fifth_paper.networks:BOOK", "fifth_paper.networks has none."),
        ("nowhere.py:BOOK", "There is no file 'nowhere.py'. "),
        ("mime.py:BOOK", "There is no file 'mime.py'. Did you mean mine.py?"),
    ],
)
@pytest.mark.parametrize("command", ["claims list", "claims show VIT-13", "study --dry-run"])
def test_a_wrong_name(
    command: str,
    name: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_book(tmp_path, *MINE)
    monkeypatch.chdir(tmp_path)
    code, _, err = typed(capsys, *command.split(), "--book", name)
    assert (code, err.count("\n")) == (2, 1)
    assert says in err


# Books that are wrong.


@pytest.mark.parametrize(
    ("text", "checks", "says"),
    [
        (FINDING.format(id="HDV-01"), CHECK.format(id="HDV-01"), "both have a finding 'HDV-01'"),
        (FINDING.format(id="hdv-01"), CHECK.format(id="hdv-01"), "both have a finding 'hdv-01'"),
        (MINE[0], "", "'MINE-1' of the book .* has no check"),
        (MINE[0], 2 * MINE[1], "'MINE-1' has two checks"),
        (2 * MINE[0], MINE[1], r"has two tables \[MINE-1\], the second in line 12"),
        (MINE[0], CHECK.format(id="MINE-2"), "no claim 'MINE-2'. Did you mean MINE-1"),
        ('[models]\nvit = "another"\n', "", "The model 'vit' of mine.toml already is 'ViT with"),
        ('[facts.pool]\nsays = "another"\n', "", "The fact 'pool' of mine.toml already is"),
        ("[models]\nmine = 3\n", "", "has mine = 3, and that has to be text in quotes"),
        ("models = 3\n[paper]\n", "", r"\[paper\] in mine\.toml lacks key"),
        ('[facts]\na = "b"\n', "", r"\[facts\.a\] in mine\.toml has to be a table"),
        ('[facts.a]\nmodels = ["vit"]\n', "", r"\[facts\.a\] in mine\.toml lacks says"),
        ('[facts.a]\nsays = "b"\nmodels = ["vitt"]\n', "", "Did you mean vit"),
        ('[facts.a]\nsays = "b"\nmodel = ["vit"]\n', "", "Did you mean models"),
        ('[facts.a]\nsays = "b"\nmodels = "vit"\n', "", "that has to be a list"),
        ('[scales.sanity.vit]\nnetwork = "vit_s"\n', "", "use a model word of your own"),
        ("[scales]\nsanity = 3\n", "", r"\[scales\.sanity\] in mine\.toml has to be a table"),
        (
            '[models]\na = "b"\n[scales.sanity.a]\nnetworks = "vit_s"\n',
            "",
            "no entry 'networks'. Did you mean network",
        ),
        ("", "1 / 0", r"cannot be imported: ZeroDivisionError: .* \(mine\.py, line 4\)\."),
        ("", "import nonsense_of_mine", "cannot be imported: ModuleNotFoundError"),
        ("", "BOOK = (", r"cannot be imported: SyntaxError: .*mine\.py, line 4"),
    ],
)
def test_a_bad_book(text: str, checks: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(VitreousError, match=says) as raised:
        claims.use_books([write_book(tmp_path, text, checks)])
    assert "\n" not in str(raised.value)
    assert not book_sources.GIVEN


def test_two_books_with_one_finding_or_key(tmp_path: Path) -> None:
    first = write_book(tmp_path, *MINE, name="mine_first")
    claims.use_books([first])
    again = write_book(tmp_path, *MINE, name="mine_again", key="OTHER")
    with pytest.raises(VitreousError, match=r"mine_first\.py:BOOK and .*mine_again.*'MINE-1'"):
        claims.use_books([again])
    same = write_book(tmp_path, "", name="mine_same")
    with pytest.raises(VitreousError, match="both have the key 'MINE'"):
        claims.use_books([same])
    assert len(claims.every_book()) == 5


def test_a_study_that_is_in_no_book() -> None:
    with pytest.raises(UnknownName, match="a book's own are known with --book"):
        claims.claims_of_study("registers")


def test_several_books_have_no_study_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = write_book(tmp_path, *MINE)
    code, _, err = typed(capsys, "study", "--dry-run", "--book", BOOK, "--book", mine)
    assert (code, "say which study to run, for example REG" in err) == (2, True)


# Checks that fail.


def test_a_check_that_raises_stops_its_own_study_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = '@BOOK.check("MINE-1")\ndef check(models): raise KeyError("layer")\n'
    name = write_book(tmp_path, MINE[0], checks)
    for words in (("claims", "show", "MINE-1"), ("study", "MINE", "--dry-run")):
        code, _, err = typed(capsys, *words, "--book", name)
        assert (code, err.count("\n")) == (2, 1)
        assert "The check of MINE-1 failed: KeyError: 'layer' (mine.py, line 5)." in err
    assert plan(claims.claims_of_study("skips"), scale_named("sanity"), "world:shapes", [0])


# Probes.


def test_an_installed_probe_is_listed_and_runs_if_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, probes={"token_norm": TOKEN_NORM})
    assert "token_norm" in probes.names()
    assert "token_norm" not in probes.own_names()
    assert probes.named("token_norm").name == "token_norm"
    assert probes.summary("token_norm").startswith("Norms of patch tokens")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("token_norms", TOKEN_NORM, "calls itself 'token_norm'"),
        ("mine", "nowhere_mine:Probe", "There is no module 'nowhere_mine'"),
        ("mine", "fifth_paper.token_norm:MEASURES", "is no probe: it is a tuple"),
    ],
)
def test_a_probe_that_is_wrong(
    name: str, text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, probes={name: text})
    with pytest.raises(VitreousError, match=says):
        probes.named(name)


def test_two_probes_of_one_name(tmp_path: Path) -> None:
    claims.use_books([BOOK])
    assert probes.named("token_norm").name == "token_norm"
    with pytest.raises(VitreousError, match=r"The probe 'token_norm' of mine\.toml already is"):
        claims.use_books([write_book(tmp_path, '[probes]\ntoken_norm = "mine:Probe"\n')])


# Networks.


NETWORKS = """
[models]
tall = "a deep ViT"
[facts.blocks]
says = "number of blocks"
models = ["tall", "vit"]
option = "depth"
[scales.sanity.tall]
network = "vit_nano"
options = {patch = 4, depth = 9}
recipe = {epochs = 3, lr = 0.5}
[scales.small.tall]
network = "vit_ti"
recipe = {name = "hdv_cifar", batch = 7}
[scales.paper.tall]
network = "vit_ti"
recipe = {name = "mine_recipes:short"}
"""


def test_networks_and_recipes_of_a_book(tmp_path: Path) -> None:
    (tmp_path / "mine_recipes.py").write_text(
        "from vitreous.training.recipes import named\n"
        "def short(): return named('sanity').but(epochs=2)\n"
    )
    claims.use_books([write_book(tmp_path, NETWORKS)])
    tall = training_for({"model": "tall"}, scale_named("sanity"), "world:shapes")
    assert (tall.model, dict(tall.recipe.model)["depth"]) == ("vit_nano", 9)
    assert (tall.recipe.epochs, tall.recipe.lr) == (3, 0.5)
    deep = training_for({"model": "tall", "blocks": 12}, scale_named("sanity"), "world:shapes")
    assert dict(deep.recipe.model)["depth"] == 12
    vit = training_for({"model": "vit", "blocks": 5}, scale_named("sanity"), "world:shapes")
    assert dict(vit.recipe.model)["depth"] == 5
    small = training_for({"model": "tall"}, scale_named("small"), "tv:CIFAR10").recipe
    assert (small.warmup, small.batch) == (scale_named("paper").recipe.warmup, 7)
    assert training_for({"model": "tall"}, scale_named("paper"), "tv:CIFAR10").recipe.epochs == 2
    with pytest.raises(VitreousError, match=r"A resnet cannot have blocks=3; .*: vit, tall"):
        training_for({"model": "resnet", "blocks": 3}, scale_named("sanity"), "world:shapes")
    with pytest.raises(VitreousError, match=r"'tall' is no model .* at scale 'reproduction'"):
        training_for({"model": "tall"}, scale_named("reproduction"), "tv:CIFAR10")
