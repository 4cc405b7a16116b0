"""One thread, one seed, no network: tests give the same answer on every machine."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["COLUMNS"] = "120"

import pytest
import torch
from hypothesis import settings

from left_behind import as_before
from vitreous.random_numbers import seed_torch

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # jobs in the background of a script ignore Ctrl-C, and tests of Ctrl-C would wait for ever
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Nobody waits for the disk: only a power cut would show the difference, and test_atomic_files.py
# tests that it is asked.
os.fsync = os.fstat  # type: ignore[assignment]
# half a million objects of torch and pandas: walking them took a tenth of the time
gc.set_threshold(100_000, 20, 100)
settings.register_profile("same everywhere", derandomize=True, database=None, deadline=None)
settings.load_profile("same everywhere")


SLOWEST = (
    "test_executors_ray",
    "test_documents",
    "test_site",
    "test_page_reading",
    "test_page",
    "test_reading",
    "test_probes",
    "test_analyses",
    "test_damage",
    "test_families",
    "test_guard",
    "test_models",
    "test_contributing",
    "test_distributed",
    "test_coverage",
    "test_claim_verdicts",
    "test_nano",
    "test_fifth_paper",
)
"""Files that begin first, so that no process is left with a long one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: first.get(item.path.stem, len(SLOWEST)))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # what is loaded by now stays to the end


def pytest_sessionfinish() -> None:
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _seed() -> None:
    seed_torch(0)


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_of_a_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with as_before(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture(autouse=True)
def _nothing_left_of_a_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with as_before(tmp_path_factory.getbasetemp()):
        yield
