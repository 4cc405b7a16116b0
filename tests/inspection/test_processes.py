"""Two processes see each image once between them and answer as one does, also when one of them has nothing to see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vitreous
from inspection.looks import Roll, Spread, cnn, images, seen_once, vit

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
from pathlib import Path
import torch
import torch.distributed as dist
import vitreous
from inspection.looks import Roll, Spread, cnn, images, vit
torch.set_num_threads(1)
home = Path(sys.argv[1])
for count in map(int, sys.argv[2:]):
    found = vitreous.inspect([vit(), cnn()], images(count), [Roll(), Spread()], shard=20, device="cpu",
                             keep=home / f"kept-{count}")
    found.save(home / f"{count}-{dist.get_rank()}")
"""
COUNTS = (50, 70, 15)
"""Three shards for two processes, the last uneven; four; and one, which leaves a process without any."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("processes")
    (home / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(home / "script.py"), str(home), *map(str, COUNTS)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return home


@pytest.mark.parametrize("count", COUNTS)
def test_two_processes_answer_as_one(count: int, folder: Path) -> None:
    alone = vitreous.inspect([vit(), cnn()], images(count), [Roll(), Spread()], shard=20, device="cpu")
    for rank in (0, 1):
        found = vitreous.Inspection.load(folder / f"{count}-{rank}")
        assert seen_once(found["roll"])
        assert found["spread"].about["data"]["images"] == count
        ours, theirs = (each["spread"].table for each in (found, alone))
        assert list(ours["unit"]) == list(theirs["unit"])
        for column in ("value", "low", "high"):
            np.testing.assert_allclose(ours[column], theirs[column], rtol=1e-10)


def test_each_process_keeps_its_own_shards(folder: Path) -> None:
    from vitreous import store

    done = [store.load(folder / "kept-50" / f"sums-{rank}.safetensors")[1]["done"] for rank in (0, 1)]
    assert done == [[0, 2], [1]]
    assert not (folder / "kept-15" / "sums-1.safetensors").exists()
