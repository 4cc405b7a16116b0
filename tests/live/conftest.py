"""Servers and one browser for all tests of the live page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.browsing import SEEN, Servers, complaints
from report.browser import Page, browser, found


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    started = Servers()
    yield started
    for each in started.values():
        each.running.stop()


@pytest.fixture(scope="session")
def window() -> Iterator[Page]:
    program = found()
    if program is None:
        pytest.skip("There is no Chromium on this machine to open the page with.")
    with browser(program) as page:
        page.call("Page.addScriptToEvaluateOnNewDocument", source=SEEN)
        yield page


@pytest.fixture
def tab(window: Page) -> Iterator[Page]:
    """A test that uses it fails if the page complains."""
    window.said.clear()
    yield window
    assert complaints(window) == [], "The page complained."


@pytest.fixture(scope="session")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ.get("VITREOUS_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
