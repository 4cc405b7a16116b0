"""One training on two processes gives what one process gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import vitreous
from training.toy import RECIPE, go
from vitreous.models import loading
from vitreous.storage.run_folder import Run

DDP = """
import sys
from training.test_distributed import WIDE
from training.toy import go
for sam in (None, 0.05):
    go(f"{sys.argv[1]}/{sam}", WIDE.but(sam=sam))
"""

WIDE = RECIPE.but(
    ema=None, **{"model.drop_path": 0.0, "model.qkv_bias": False}
)  # masks differ; a key's bias is noise


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    """Mixing partners come from the other's half, SAM climbs along the mean gradient, 31 test
    images are shared."""
    script = tmp_path / "train.py"
    script.write_text(DDP)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
    ]
    paths = [str(Path(vitreous.__file__).parents[1]), str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for sam in (None, 0.05):
        one = go(tmp_path / "one" / str(sam), WIDE.but(sam=sam))
        two = Run(tmp_path / str(sam))
        for a, b in zip(one.records, two.records(), strict=True):
            for key in {"train_nll", "test_nll", "test_error", "gradient_norm"} & set(a):
                assert a[key] == pytest.approx(b[key], rel=1e-4), key
        weights = loading.load_model(f"run:{two.folder}").state_dict()
        assert all(
            torch.allclose(value, weights[key], atol=1e-5)
            for key, value in one.model.state_dict().items()
        )
