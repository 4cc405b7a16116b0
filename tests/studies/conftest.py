"""A study done here, one cell after the other: what every other way of doing it has to give."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies.tiny import cells, tiny
from vitreous.studies import run_cells


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    assert not run_cells.run_cells(cells(), root, tiny(), "cpu").failed
    return root
