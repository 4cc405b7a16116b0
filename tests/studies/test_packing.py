"""Evidence without weights: packed, split, checked, and never measured again."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from studies.tiny import CLAIMS, cells, tables, tiny
from vitreous.claims.loading import load_evidence
from vitreous.claims.verdicts import judge
from vitreous.errors import VitreousError
from vitreous.storage.atomic_files import Damaged, read_json
from vitreous.studies import run_cells
from vitreous.studies.packing import pack_evidence, unpack_evidence


@pytest.fixture
def unpacked(done: Path, tmp_path: Path) -> Path:
    packed = pack_evidence(done, tmp_path / "evidence.zip")
    assert packed.results == len(tables(done)) == unpack_evidence(packed.archives, tmp_path / "new")
    assert "weights and saved states" in packed.dropped
    return tmp_path / "new"


def test_unpacked_evidence_is_the_same_and_never_done_again(
    unpacked: Path, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables(done)
    for name, table in tables(unpacked).items():
        pd.testing.assert_frame_equal(table, before[name], check_exact=True)
    monkeypatch.setattr(run_cells, "do_cell", lambda *given: pytest.fail("It was unpacked."))
    report = run_cells.run_cells(cells(), unpacked, tiny(), "cpu")
    assert len(report.done) == len(cells())
    assert not list(unpacked.glob("trainings/*/weights"))
    assert not any(verdict.missing for verdict in judge(load_evidence(unpacked), CLAIMS))


def test_commands_name_no_folder_of_the_machine(unpacked: Path, done: Path) -> None:
    for path in done.glob("trainings/*/environment.json"):
        before = read_json(path)
        after = read_json(unpacked / path.relative_to(done))
        assert "/" not in after["command"]
        assert {**after, "command": before["command"]} == before


def test_a_result_that_is_lost_needs_the_weights(unpacked: Path) -> None:
    """Nothing is trained anew behind one's back, and nobody waits for what will not come."""
    for path in unpacked.glob("exhibits/*/*.parquet"):
        path.unlink()
    report = run_cells.run_cells(cells(), unpacked, tiny(), "cpu")
    assert len(report.failed) == len([cell for cell in cells() if cell.items])
    assert all("left behind" in why for why in report.failed.values())


def test_large_evidence_is_split_and_each_part_stands_alone(done: Path, tmp_path: Path) -> None:
    whole = pack_evidence(done, tmp_path / "whole.zip").archives[0].stat().st_size
    packed = pack_evidence(done, tmp_path / "evidence.zip", limit=whole // 2)
    assert len(packed.archives) > 1
    assert all(path.stat().st_size < whole // 2 for path in packed.archives)
    added = [unpack_evidence([path], tmp_path / "new") for path in reversed(packed.archives)]
    assert sum(added) == packed.results
    assert unpack_evidence(packed.archives, tmp_path / "new") == 0
    assert not run_cells.unfinished_cells(cells(), tmp_path / "new")
    with pytest.raises(VitreousError, match="alone takes"):
        pack_evidence(done, tmp_path / "evidence.zip", limit=1000)


def test_unpacking_keeps_existing_results(done: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(done, tmp_path / "study"))
    packed = pack_evidence(done, tmp_path / "evidence.zip")
    assert unpack_evidence(packed.archives, copy) == 0
    assert not list(copy.glob("trainings/*/packed.json"))
    assert not run_cells.unfinished_cells(cells(), copy)


def test_damage_is_noticed(done: Path, tmp_path: Path) -> None:
    (archive,) = pack_evidence(done, tmp_path / "evidence.zip").archives
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(tmp_path / "other.zip", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content + b" " if name.endswith("metrics.jsonl") else content)
    with pytest.raises(Damaged, match="checksum of 'trainings"):
        unpack_evidence([tmp_path / "other.zip"], tmp_path / "new")
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(Damaged):
        unpack_evidence([archive], tmp_path / "new")
    with pytest.raises(VitreousError, match="no file"):
        unpack_evidence([tmp_path / "none.zip"], tmp_path / "new")
