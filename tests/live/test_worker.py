"""One thread answers: the newest request of a page, measurements in between, and not for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from vitreous.explorer.cache import RecentlyUsed
from vitreous.explorer.worker import QueueFull, Stale, Worker
from vitreous.specimen.rerun import Cancelled, Stopped


@pytest.fixture
def worker() -> Iterator[Worker]:
    working = Worker(waiting=8)
    yield working
    working.stop()


class Gate:
    """A computation that runs until it is let go or cancelled."""

    def __init__(self) -> None:
        self.began, self.open = threading.Event(), threading.Event()

    def __call__(self, cancelled: Cancelled) -> str:
        self.began.set()
        while not self.open.wait(0.001):
            if cancelled():
                raise Stopped
        return "done"


def answer(value: object) -> Callable[[Cancelled], object]:
    return lambda cancelled: value


def test_a_newer_request_of_the_same_page_replaces_those_that_wait(worker: Worker) -> None:
    gate = Gate()
    first = worker.submit(gate, "another page")
    gate.began.wait(5)
    waiting = [worker.submit(answer(serial), ("view", "page"), serial) for serial in range(5)]
    other = worker.submit(answer("other"), ("attention", "page"), 0)
    gate.open.set()
    assert first.future.result(5) == "done"
    assert waiting[-1].future.result(5) == 4
    assert other.future.result(5) == "other"
    for task in waiting[:-1]:
        with pytest.raises(Stale):
            task.future.result(5)


def test_a_newer_request_stops_the_one_that_runs(worker: Worker) -> None:
    gate = Gate()
    old = worker.submit(gate, "page", 1)
    gate.began.wait(5)
    new = worker.submit(answer("new"), "page", 2)
    with pytest.raises(Stale):
        old.future.result(5)
    assert new.future.result(5) == "new"
    with pytest.raises(Stale):
        worker.submit(answer("late"), "page", 1)  # it was overtaken on its way


def test_too_many_requests_are_refused(worker: Worker) -> None:
    gate = Gate()
    worker.submit(gate)
    gate.began.wait(5)
    tasks = [worker.submit(answer(number)) for number in range(8)]
    with pytest.raises(QueueFull):
        worker.submit(answer(9))
    gate.open.set()
    assert [task.future.result(5) for task in tasks] == list(range(8))


def test_an_error_is_raised_by_the_future_and_the_thread_continues(worker: Worker) -> None:
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda cancelled: 1 // 0).future.result(5)
    assert worker.submit(answer(1)).future.result(5) == 1


def test_measurements_wait_for_requests_and_take_turns(worker: Worker) -> None:
    order: list[str] = []

    def pieces(name: str) -> Iterator[None]:
        for _ in range(3):
            order.append(name)
            yield

    gate = Gate()
    worker.submit(gate)
    gate.began.wait(5)
    worker.continue_with(pieces("a"))
    worker.continue_with(pieces("b"))
    task = worker.submit(lambda cancelled: order.append("request"))
    gate.open.set()
    task.future.result(5)
    for _ in range(500):
        if len(order) == 7:
            break
        time.sleep(0.01)
    assert order == ["request", "a", "b", "a", "b", "a", "b"]


def test_stopping_ends_what_runs_and_refuses_the_rest() -> None:
    others = set(threading.enumerate())
    worker, gate = Worker(), Gate()
    running = worker.submit(gate)
    gate.began.wait(5)
    waiting = worker.submit(answer(1))
    worker.stop()
    worker.stop()
    for task, error in ((running, Stale), (waiting, QueueFull)):
        with pytest.raises(error):
            task.future.result(5)
    with pytest.raises(QueueFull):
        worker.submit(answer(1))
    left = set(threading.enumerate()) - others  # pages of other tests are still served
    assert not any(each.name == "vitreous worker" for each in left)


def test_a_cache_forgets_what_was_used_least_recently() -> None:
    cache = RecentlyUsed[str](room=10, size=len)
    for word in ("aaa", "bbb", "ccc"):
        cache.put(word, word)
    assert cache.get("aaa") == "aaa"
    cache.put("dddd", "dddd")
    assert cache.get("bbb") is None
    assert (cache.get("aaa"), cache.used, len(cache)) == ("aaa", 10, 3)
    cache.put("aaa", "a")
    assert cache.used == 8
    cache.put("long", "x" * 50)  # the newest is kept, however large
    assert (cache.get("long"), len(cache)) == ("x" * 50, 1)
