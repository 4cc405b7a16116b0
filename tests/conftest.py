"""One thread, one seed, no network: tests give the same answer on every machine."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["COLUMNS"] = "120"

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("same everywhere", derandomize=True, database=None, deadline=None)
settings.load_profile("same everywhere")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
