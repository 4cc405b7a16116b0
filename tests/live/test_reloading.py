"""A page that is reloaded finds the job that it began, with its progress, and can cancel it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.browsing import Live, chip, serve, text, visit
from report.browser import Page
from vitreous.explorer.edit_cost import EditCost

UNIT = "blocks.1.attn"
MEASURED = "document.querySelector('#job .result') !== null"
ASKED = "performance.getEntriesByType('resource').some(({ name }) => name.endsWith('/pending'))"
PROGRESS = "document.querySelector('#job progress') !== null"


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Measurements stop after their first batch until this is set."""
    opened, batches = threading.Event(), EditCost.batches

    def waiting(cost: EditCost, count: int) -> Iterator[int]:
        for done in batches(cost, count):
            yield done
            while not opened.is_set():
                time.sleep(0.005)
                yield 0

    monkeypatch.setattr(EditCost, "batches", waiting)
    return opened


@pytest.fixture
def live(tab: Page, tmp_path: Path) -> Iterator[Live]:
    live = serve(["nano:vit"], images=8, folder=tmp_path)
    yield live
    tab.call("Page.navigate", url="about:blank")  # else it notices that the server has gone
    live.running.stop()


def begin(tab: Page, live: Live) -> None:
    """Edit a unit, and begin to measure what that costs."""
    visit(tab, live.url)
    tab.click(chip(UNIT))
    tab.press("o")
    tab.wait("!document.querySelector('#measure').disabled")
    tab.click("#measure")
    tab.wait(PROGRESS)


def test_a_reloaded_page_can_cancel_its_job(tab: Page, live: Live, gate: threading.Event) -> None:
    begin(tab, live)
    [job] = live.running.jobs.pending()
    visit(tab, tab.value("location.href"))
    tab.wait(PROGRESS)
    tab.wait("/^[1-8] of 8/.test(document.querySelector('#job .words').textContent)")
    assert tab.value("document.querySelector('#measure').disabled")
    tab.click("#job .progress button")
    tab.wait("document.querySelector('#job').innerText === 'Cancelled.'")
    assert job.cancelled.is_set()
    assert not tab.value("document.querySelector('#measure').disabled")
    visit(tab, tab.value("location.href"))
    tab.wait(ASKED)
    assert text(tab, "#job") == ""


def test_a_job_that_ends_while_no_page_is_open_shows_its_result_once(
    tab: Page, live: Live, gate: threading.Event
) -> None:
    begin(tab, live)
    address = tab.value("location.href")
    [job] = live.running.jobs.pending()
    tab.call("Page.navigate", url="about:blank")
    gate.set()
    while job.running:
        time.sleep(0.005)
    visit(tab, address)
    tab.wait(MEASURED)
    assert "points" in text(tab, "#job")
    assert not tab.value("document.querySelector('#job').classList.contains('stale')")
    visit(tab, address)
    tab.wait(ASKED)
    assert text(tab, "#job") == ""


def test_a_job_that_another_page_cancels_ends_here_too(
    tab: Page, live: Live, gate: threading.Event
) -> None:
    begin(tab, live)
    [job] = live.running.jobs.pending()
    live.running.jobs.cancel(job.id)
    tab.wait("document.querySelector('#job').innerText === 'Cancelled.'")
    assert not tab.value("document.querySelector('#measure').disabled")
