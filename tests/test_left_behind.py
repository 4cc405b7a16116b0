"""What one test brings into the process is gone for the next."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from left_behind import as_before
from plugin_files import ANALYSIS, FEW, PROBE, typed
from vitreous.cli import app
from vitreous.measure import analyses, probes
from vitreous.plugins import import_source


def test_modules_paths_plugins_and_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("VALUE = 1\n")
    (tmp_path / "probe.py").write_text(PROBE)
    (tmp_path / "analysis.py").write_text(ANALYSIS)
    path, commands = list(sys.path), set(app)
    with as_before(tmp_path):
        sys.path.insert(0, str(tmp_path))
        assert import_source("mine:VALUE").VALUE == 1
        probes.named(f"{tmp_path / 'probe.py'}:TokenNorm")
        place = f"{tmp_path / 'analysis.py'}:Count"
        assert typed(capsys, place, "nano:vit", *FEW, "--out", str(tmp_path / "p.html"))[0] == 0
        assert ("mine" in sys.modules, "token_norm" in probes.REGISTRY.given) == (True, True)
    assert (list(sys.path), set(app)) == (path, commands)
    assert "mine" not in sys.modules
    assert not any(str(tmp_path) in name for name in sys.modules)
    assert "token_norm" not in probes.REGISTRY.given
    assert "count_images" not in analyses.REGISTRY.given
