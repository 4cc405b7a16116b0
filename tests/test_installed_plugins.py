"""Plugins of installed packages and of books: found without running them, and broken ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vitreous
from left_behind import forget_installed
from other_books import CHECK, FINDING, write_book
from plugin_files import (
    ANALYSIS,
    FEW,
    MODEL,
    PROBE,
    RECIPE,
    forgotten_plugins,
    install_package,
    typed,
)
from vitreous import claims, model_listing, plugin_source
from vitreous.errors import VitreousError
from vitreous.measure import analyses, probes
from vitreous.models.loading import list_models, load_model
from vitreous.training import recipes


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    """The current folder, with a probe, an analysis, a recipe and a model."""
    with forgotten_plugins(tmp_path) as folder:
        yield folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which Python looks for installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    forget_installed()
    return folder


def test_everything_an_installed_package_can_bring(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install_package(
        site,
        "glass-tools",
        {"glass_tools": PROBE + ANALYSIS + RECIPE + MODEL},
        probes={"token_norm": "glass_tools:TokenNorm"},
        analyses={"count_images": "glass_tools:Count"},
        recipes={"short": "glass_tools:short"},
        models={"glass_net": "glass_tools:make"},
    )
    for what in ("probes", "analyses", "recipes"):
        code, out, _ = typed(capsys, "list", what)
        assert (code, out.count("[glass-tools 1.2, glass_tools:")) == (0, 1)
    assert (
        "Norm of the tokens after each unit. [glass-tools 1.2, gl"
        in typed(capsys, "list", "probes")[1]
    )
    assert "glass_net" in typed(capsys, "list", "models", "--filter", "glass*")[1]
    assert "glass_tools" not in sys.modules  # nothing has been run so far
    assert "glass_net" in list_models("glass*")
    assert load_model("glass_net", classes=3)[-1].out_features == 3  # type: ignore[index]
    assert recipes.named("short").epochs == 1
    assert "count_images" in typed(capsys, "--help")[1]
    assert "times=2" in typed(capsys, "count_images", "--help")[1]
    code, out, err = typed(
        capsys, "count_images", "glass_net", "--image", "32", "--set", "times=1", *FEW
    )
    assert (code, "Wrote count_images-glass_net.html" in out) == (0, True), err
    assert "token_norm" not in probes.own_names()  # so that only `--probes` runs it
    assert "count_images" not in analyses.own_names()
    code, out, _ = typed(capsys, "doctor")
    assert "plugin glass-tools 1.2" in out
    assert code == 0


BROKEN = {
    "gone": ("gone_package:Thing", "there is no module 'gone_package'"),
    "gone_part": ("glass_tools.part:Thing", "there is no module 'glass_tools.part'"),
    "no_such": ("glass_tools:Thing", "'glass_tools' has no 'Thing'"),
    "shape": ("glass_tools", "is not of the form MODULE:NAME"),
    "syntax": ("glass_syntax:Thing", "glass_syntax.py is no Python"),
}


@pytest.mark.parametrize("group", ["probes", "analyses", "recipes", "models", "books"])
def test_a_broken_package_breaks_nothing_else(
    group: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list and the doctor say what is wrong; using it is one sentence; all else works."""
    points = {name: text for name, (text, _) in BROKEN.items()}
    files = {"glass_tools": "x = 1", "glass_syntax": "x = ("}
    install_package(site, "glass-tools", files, **{group: points})
    code, _, err = typed(capsys, "doctor")
    assert code == 1
    for name, (_, why) in BROKEN.items():
        assert re.search(f"'{name}' of the package glass-tools cannot be used: .*{why}", err), err
    for words in (["list", "probes"], ["list", "analyses"], ["list", "recipes"], ["--help"]):
        code, out, err = typed(capsys, *words)
        assert (code, err) == (0, "")
        if words[-1] == group:
            assert all(
                f"(cannot be used: {why}" in out
                for name, (_, why) in BROKEN.items()
                if name != "syntax" and name != "shape"
            ), out
    assert typed(capsys, "claims", "show", "VIT-13")[0] == 0
    find = {"probes": probes.named, "analyses": analyses.named, "recipes": recipes.named}
    for name in BROKEN:
        if group in find:
            with pytest.raises(VitreousError):
                find[group](name)


def test_a_package_that_raises_is_found_by_the_full_doctor(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = "class Other: ...\nraise RuntimeError('too old')\n"
    points = {
        "token_norm": "glass_more:TokenNorm",
        "other": "glass_tools:Other",
        "odd": "glass_more:TokenNorm",
    }
    install_package(site, "glass-tools", {"glass_tools": old, "glass_more": PROBE}, probes=points)
    assert typed(capsys, "doctor")[0] == 0
    code, _, err = typed(capsys, "doctor", "--full")
    assert code == 1
    assert "RuntimeError: too old (glass_tools.py, line 2); mend or remove glass-tools." in err
    assert "known as the probe 'odd', and calls itself 'token_norm'" in err
    assert probes.named("token_norm").name == "token_norm"


def test_names_that_are_taken(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Our names mean what they always did; of two packages neither is guessed."""
    points = {"cka": "glass_tools:TokenNorm", "token_norm": "glass_tools:TokenNorm"}
    more = {"resnet18": "glass_tools:make", "vit_nano": "glass_tools:make"}
    files = {"glass_tools": PROBE + MODEL + RECIPE}
    install_package(
        site,
        "glass-tools",
        files,
        probes=points,
        models=more,
        recipes={"fast": "glass_tools:short"},
    )
    install_package(
        site, "other-tools", {"other_tools": PROBE}, probes={"token_norm": "other_tools:TokenNorm"}
    )
    assert probes.named("cka").__module__ == "vitreous.measure.probes.cka"
    assert recipes.named("fast").name == "fast"
    assert len(load_model("resnet18").state_dict()) > 100
    with pytest.raises(VitreousError, match=r"glass-tools and other-tools both bring a probe 'tok"):
        probes.named("token_norm")
    assert probes.named("other_tools:TokenNorm").__module__ == "other_tools"
    code, _, err = typed(capsys, "doctor")
    assert code == 1
    for name in ("probe 'cka'", "model 'resnet18'", "model 'vit_nano'", "recipe 'fast'"):
        assert f"{name} of the package glass-tools 1.2 has the name of one of Vitreous" in err
    assert typed(capsys, "list", "probes")[0] == 0
    assert model_listing.list_names("resnet18") == ["resnet18"]


def test_two_books_of_one_key(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The second installed one is left out with a warning; the first and all others work."""
    for name in ("mine_one", "mine_two"):
        write_book(site, FINDING.format(id="MINE-1"), CHECK.format(id="MINE-1"), name=name)
        install_package(site, name, {}, books={name: f"{name}:BOOK"})
    assert [book.paper.key for book in claims.every_book()].count("MINE") == 1
    assert "The findings of the package mine_two are left out" in caplog.text


def test_measurements_of_a_book_lie_beside_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker elsewhere, which only gets the book's name, finds them by whole paths."""
    tables = '[probes]\ntoken_norm = "my_probe.py:TokenNorm"\n'
    tables += '[analyses]\ncount_images = "my_analysis.py:Count"\n'
    name = write_book(home, tables)
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    claims.use_books([name])
    assert probes.named("token_norm").name == "token_norm"
    assert analyses.named("count_images").name == "count_images"
    assert {"token_norm", "count_images"} <= {*probes.names(), *analyses.names()}


# Quickly.


def test_lists_and_help_run_no_plugin(site: Path) -> None:
    """Not even the packages above its module, which may import torch."""
    loud = "import torch\nraise RuntimeError('run')\n"
    files = {"glass/__init__": loud, "glass/norms": loud + PROBE, "glass/counting": ANALYSIS}
    install_package(
        site, "glass", files,
        probes={"token_norm": "glass.norms:TokenNorm"},
        analyses={"count_images": "glass.counting:Count"},
    )  # fmt: skip
    script = (
        "import sys\nfrom vitreous.cli import main\n"
        "for words in (['--help'], ['list', 'probes'], ['list', 'analyses'], ['doctor'],\n"
        "              ['count_images', '--help'], ['my_analysis.py:Count', '--help']):\n"
        "    try: main(words)\n    except SystemExit as end: assert not end.code, words\n"
        "print('torch' in sys.modules, 'glass' in sys.modules)"
    )
    path = os.pathsep.join([str(site), str(Path(vitreous.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "False False"
    assert "Norm of the tokens after each unit. [glass 1.2, glass.norms:TokenNorm]" in done.stdout
    assert "How often they are counted." in done.stdout


def test_facts_of_plugins_are_read_from_their_source(home: Path) -> None:
    assert plugin_source.summary("my_recipe.py:short") == "One epoch."
    assert plugin_source.summary("my_recipe.py:fixed") == "Recipes."
    assert plugin_source.find_problem("my_recipe.py:fixed") == ""
    (home / "lazy.py").write_text("from os.path import *\n")
    assert plugin_source.find_problem("lazy.py:anything") == ""
    (home / "branch.py").write_text("try:\n    from x import A\nexcept ImportError:\n    A = 1\n")
    assert plugin_source.find_problem("branch.py:A") == ""
    assert plugin_source.find_problem("branch.py:B") == "'branch.py' has no 'B'"
