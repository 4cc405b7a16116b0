"""One training on two processes gives what one process gives."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import torch

from processes import ended, started
from training.toy import RECIPE, go
from vitreous.models import loading
from vitreous.storage.run_folder import Run

WIDE = RECIPE.but(
    ema=None, **{"model.drop_path": 0.0, "model.qkv_bias": False}
)  # masks differ; a key's bias is noise


def _launch(folder: Path) -> None:
    """Start two processes as torchrun does: by its agent, which tells them of each other."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.1, start_method="fork",
    )  # fmt: skip
    elastic_launch(config, _train)(folder)


def _train(folder: Path) -> None:
    torch.set_num_threads(1)
    for sam in (None, 0.05):
        go(folder / str(sam), WIDE.but(sam=sam))


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    """Mixing partners come from the other's half, SAM climbs along the mean gradient, 31 test
    images are shared."""
    assert ended(started(_launch, tmp_path)) == [0]
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
