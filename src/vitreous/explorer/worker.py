"""The worker thread: it computes the newest request of each page, and measurements in between.

All models run on this one thread, which needs no locks. A moving slider sends requests faster than
a model computes them. So requests wait in a queue; a newer request of the same page and kind
replaces an older one, and a running one stops at its next operation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from typing import Any

from vitreous.errors import VitreousError
from vitreous.specimen.rerun import Cancelled, Stopped

MAX_WAITING = 64
"""Maximum number of waiting requests."""
MAX_SERIALS = 1024
"""Number of keys (page and kind of request) whose newest serial number is kept."""
Compute = Callable[[Cancelled], Any]


class Stale(VitreousError):
    """A newer request has replaced this one."""

    def __init__(self) -> None:
        super().__init__("A newer request has replaced this one.")


class QueueFull(VitreousError):
    """Too many requests are waiting."""

    def __init__(self) -> None:
        super().__init__("Too many requests are waiting; try again in a moment.")


class Task:
    """A request that is waiting, running or done; `future` has its result."""

    def __init__(self, compute: Compute, key: Hashable, serial: int) -> None:
        self.compute, self.key, self.serial = compute, key, serial
        self.future: Future[Any] = Future()
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Stop it at its next operation, or before it begins."""
        self._cancelled.set()

    def cancelled(self) -> bool:
        """Whether the result is no longer needed."""
        return self._cancelled.is_set()

    def run(self) -> None:
        """Compute the result, unless it is no longer needed."""
        try:
            if self.cancelled():
                raise Stopped
            result = self.compute(self.cancelled)
        except Stopped:
            self.future.set_exception(Stale())
        except BaseException as error:  # passed on to the thread that waits for the future
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Worker:
    """The thread, its queue of requests, and the measurements that it continues in between.

    Examples
    --------
    >>> worker = Worker()
    >>> worker.submit(lambda cancelled: 6 * 7).future.result()
    42
    >>> worker.stop()
    """

    def __init__(self, waiting: int = MAX_WAITING) -> None:
        self._most = waiting
        self._queue: deque[Task] = deque()
        self._pieces: deque[Iterator[None]] = deque()
        self._newest: OrderedDict[Hashable, int] = OrderedDict()
        self._running: Task | None = None
        self._stopped = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="vitreous worker", daemon=True)
        self._thread.start()

    def submit(self, compute: Compute, key: Hashable = None, serial: int = 0) -> Task:
        """Add a request to the queue.

        Parameters
        ----------
        compute
            The function to call; its argument is a function that returns whether to stop.
        key
            Of the requests with the same key, only the one with the highest serial number is
            computed. Requests with the key None are independent.
        serial
            Serial number of the request.
        """
        task = Task(compute, key, serial)
        with self._change:
            if self._stopped:
                raise QueueFull
            if key is not None:
                self._supersede(task)
            if len(self._queue) >= self._most:
                raise QueueFull
            self._queue.append(task)
            self._change.notify()
        return task

    def _supersede(self, task: Task) -> None:
        """Drop older requests with the same key; raise `Stale` if there has been a newer one."""
        if self._newest.get(task.key, task.serial) > task.serial:
            raise Stale
        self._newest[task.key] = task.serial
        self._newest.move_to_end(task.key)
        while len(self._newest) > MAX_SERIALS:
            self._newest.popitem(last=False)
        older = [each for each in self._queue if each.key == task.key]
        for each in older:
            self._queue.remove(each)
            each.future.set_exception(Stale())
        if self._running is not None and self._running.key == task.key:
            self._running.cancel()

    def continue_with(self, pieces: Iterator[None]) -> None:
        """Let the thread advance an iterator to its end, one step whenever no request waits.

        The iterator has to handle its own errors.
        """
        with self._change:
            self._pieces.append(pieces)
            self._change.notify()

    def stop(self) -> None:
        """Stop at the next operation and end the thread."""
        with self._change:
            self._stopped = True
            waiting = list(self._queue)
            self._queue.clear()
            self._pieces.clear()
            if self._running is not None:
                self._running.cancel()
            self._change.notify()
        for task in waiting:
            task.future.set_exception(QueueFull())
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)

    def _work(self) -> None:
        while True:
            with self._change:
                while not (self._queue or self._pieces or self._stopped):
                    self._change.wait()
                if self._stopped:
                    return
                task = self._running = self._queue.popleft() if self._queue else None
                pieces = None if task is not None else self._pieces.popleft()
            if task is not None:
                task.run()
                with self._change:
                    self._running = None
            elif pieces is not None and next(pieces, StopIteration) is not StopIteration:
                with self._change:
                    self._pieces.append(pieces)  # at the end: measurements alternate
