"""Evidence that is kept in the repository: smaller, with the same verdicts, enough to resume."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from studies.tiny import CLAIMS, cells, tables, tiny
from vitreous.claims.loading import load_evidence
from vitreous.claims.verdicts import judge
from vitreous.studies import run_cells
from vitreous.studies.packing import pack_evidence, unpack_evidence

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "keep_evidence.py"


def keep_evidence() -> ModuleType:
    spec = importlib.util.spec_from_file_location("keep_evidence", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_study_resumes_from_kept_evidence(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.zip"
    keep_evidence().keep(done, kept)
    assert str(kept) in capsys.readouterr().out
    [whole] = pack_evidence(done, tmp_path / "whole.zip").archives
    assert kept.stat().st_size < whole.stat().st_size
    new = tmp_path / "new"
    assert unpack_evidence([kept], new) == len(tables(done))
    assert not list(new.glob("trainings/**/*.safetensors"))
    monkeypatch.setattr(run_cells, "do_cell", lambda *given: pytest.fail("It was kept."))
    report = run_cells.run_cells(cells(), new, tiny(), "cpu")
    assert len(report.done) == len(cells())
    before, after = (judge(load_evidence(study), CLAIMS) for study in (done, new))
    assert [verdict.outcome for verdict in after] == [verdict.outcome for verdict in before]
    for name in ("recipe.json", "metrics.jsonl"):
        for record in done.glob(f"trainings/*/{name}"):
            assert (new / record.relative_to(done)).read_bytes() == record.read_bytes()
