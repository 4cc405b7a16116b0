"""Evidence that is small enough to keep in `results/`: what the findings read, and no more.

    python benchmarks/keep_evidence.py study --out results/sanity-2026-11-18.zip

All findings are judged on the study's folder, and of each result those columns keep their bootstrap
replicates that were read, rounded to a sixteenth of their standard error (which adds less than a
thousandth to it). Pictures and maps are left out, and so are weights. The verdicts stay the same,
and a study that runs in the folder of the unpacked archive trains and measures nothing again. A
finding that reads something new needs the study again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np

from vitreous import claims
from vitreous.claims.loading import EXHIBITS, INDEX, load_evidence, read_exhibit
from vitreous.claims.verdicts import judge
from vitreous.results import Result
from vitreous.results.files import save_result
from vitreous.results.replicates import Replicates
from vitreous.storage.atomic_files import read_json, write_json
from vitreous.storage.fingerprints import checksum
from vitreous.studies.measuring import TRAININGS
from vitreous.studies.packing import pack_evidence

STEPS = 16
"""Steps in one standard error to which replicates are rounded."""


class Recorded(dict[str, Replicates]):
    """Replicates by column, which remembers the columns that were read."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.read: set[str] = set()

    def __getitem__(self, column: str) -> Replicates:
        self.read.add(column)
        return super().__getitem__(column)


def read_columns(study: Path) -> dict[tuple[str, str], set[str]]:
    """By folder and result, the columns whose replicates some finding reads."""
    evidence = load_evidence(study)
    folders = sorted(path.parent.name for path in (study / EXHIBITS).glob(f"*/{INDEX}"))
    recorded = {}
    for folder, item in zip(folders, evidence.items, strict=True):
        for name in item.results:
            result = item.results[name]
            recorded[folder, name] = Recorded(result.replicates)
            object.__setattr__(result, "replicates", recorded[folder, name])
    judge(evidence, claims.every_claim())
    return {key: each.read for key, each in recorded.items()}


def reduced(result: Result, columns: set[str]) -> Result:
    """The result with rounded replicates of these columns only, or of its first one."""
    wanted = columns or set(list(result.replicates)[:1])
    replicates = {}
    for name in result.replicates:
        if name in wanted:
            given = result.replicates[name]
            steps = np.round(given.deviations.astype(np.float32) * STEPS)
            replicates[name] = Replicates((steps / STEPS).astype(np.float16), given.spread)
    views = tuple(view for view in result.views if not view.array)
    return Result(result.name, result.table, result.columns, views, {}, result.about, replicates)


def keep(study: Path, out: Path) -> None:
    """Write the archive."""
    columns = read_columns(study)
    evidence = load_evidence(study)
    with TemporaryDirectory() as home:
        copy = Path(home) / "study"
        heavy = shutil.ignore_patterns("weights", "*.safetensors*", "locks")
        shutil.copytree(study / TRAININGS, copy / TRAININGS, ignore=heavy)
        others = shutil.ignore_patterns(TRAININGS, "locks")
        shutil.copytree(study, copy, ignore=others, dirs_exist_ok=True)
        folders = sorted(path.parent for path in (copy / EXHIBITS).glob(f"*/{INDEX}"))
        for folder, item in zip(folders, evidence.items, strict=True):
            index = read_exhibit(folder)
            for name in item.results:
                header = save_result(
                    reduced(item.results[name], columns[folder.name, name]), folder / f"{name}.json"
                )
                index["checksums"][name] = checksum(read_json(header))
            write_json(folder / INDEX, index)
        for archive in pack_evidence(copy, out).archives:
            print(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path, help="folder of the study")
    parser.add_argument("--out", type=Path, required=True, help="archive to write")
    given = parser.parse_args()
    keep(given.study, given.out)


if __name__ == "__main__":
    main()
