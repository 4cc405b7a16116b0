"""Tests of data never touch the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("VITREOUS_CACHE", str(folder))
    return folder
