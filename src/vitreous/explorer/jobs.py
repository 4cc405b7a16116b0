"""Long-running jobs: measuring the cost of edits over the dataset, and writing reports.

A measurement runs on the worker thread that also computes views, in steps of a tenth of a second,
so that the page stays responsive. A report runs on a thread of its own, with copies of the
specimens.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from vitreous.errors import UnknownName, VitreousError, reason
from vitreous.explorer.edit_cost import EditCost
from vitreous.explorer.state import State
from vitreous.explorer.views import Explorer
from vitreous.explorer.worker import QueueFull, Worker
from vitreous.progress import watch_progress
from vitreous.specimen.rerun import Stopped
from vitreous.specimen.specimen import Specimen
from vitreous.storage.file_names import name_models

MAX_RUNNING = 4
MAX_KEPT = 32
"""Number of jobs whose results are kept."""


@dataclass
class Job:
    """A measurement or a report, with its progress."""

    id: str
    kind: Literal["measure", "report"]
    of: int = 0
    done: int = 0
    result: dict[str, Any] | None = None
    error: str = ""
    began: float = field(default_factory=perf_counter)
    cancelled: threading.Event = field(default_factory=threading.Event)
    view: dict[str, Any] = field(default_factory=dict)
    """Edits and changes of the page that began it, as it sent them."""
    delivered: bool = False
    """Whether a page has fetched its result or error."""

    @property
    def running(self) -> bool:
        """Whether it is neither finished nor cancelled."""
        return self.result is None and not self.error and not self.cancelled.is_set()

    def status(self) -> dict[str, Any]:
        """Progress, result and error, as plain values for the page."""
        left = None
        if self.running and 0 < self.done < self.of:
            left = (perf_counter() - self.began) / self.done * (self.of - self.done)
        return {
            "done": self.done,
            "of": self.of,
            "seconds_left": left,
            "result": self.result,
            "error": self.error,
            "cancelled": self.cancelled.is_set(),
        }


class Jobs:
    """The jobs of one explorer.

    Parameters
    ----------
    explorer
        The models and images.
    worker
        The thread that measures while no request waits.
    folder
        Where reports are written.
    """

    def __init__(self, explorer: Explorer, worker: Worker, folder: Path) -> None:
        self.explorer, self.worker, self.folder = explorer, worker, folder
        self.reports: dict[str, Path] = {}
        """Reports that were written, by their names."""
        self._jobs: dict[str, Job] = {}
        self._threads: list[threading.Thread] = []
        self._count = 0

    def find(self, name: str) -> Job:
        """The job of an id."""
        if name not in self._jobs:
            raise UnknownName("job", name, ())
        return self._jobs[name]

    def pending(self) -> list[Job]:
        """Jobs that run, or whose result no page has fetched: those a page finds when it loads."""
        jobs = self._jobs.values()
        return [job for job in jobs if job.running or not (job.delivered or job.cancelled.is_set())]

    def cancel(self, name: str) -> None:
        """Stop a job at its next piece; a finished one stays finished."""
        job = self.find(name)
        if job.running:
            job.cancelled.set()

    @property
    def reporting(self) -> bool:
        """Whether a report is being written; stopping it takes some seconds."""
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Stop all jobs, and wait until the threads of reports have ended."""
        for job in self._jobs.values():
            if job.running:
                job.cancelled.set()
        for thread in self._threads:
            thread.join(timeout=10)

    def _begin(self, kind: Literal["measure", "report"]) -> Job:
        if sum(job.running for job in self._jobs.values()) >= MAX_RUNNING:
            raise QueueFull
        finished = [name for name, job in self._jobs.items() if not job.running]
        for name in finished[: len(self._jobs) - MAX_KEPT]:
            del self._jobs[name]
        self._count += 1
        job = Job(f"j{self._count}", kind)
        self._jobs[job.id] = job
        return job

    def measure(self, state: State, images: int) -> Job:
        """Begin to measure what changes and edits cost over the dataset."""
        for model in self.explorer.models:
            self.explorer.intended(model, state)  # raises for units that do not exist
        if not state.edits and not state.changes:
            raise VitreousError("There is nothing to measure: edit a unit or change the image.")
        job = self._begin("measure")
        count = min(images, len(self.explorer.data))
        job.of = count * len(self.explorer.models)
        self.worker.continue_with(self._measure_in_steps(job, state, count))
        return job

    def _measure_in_steps(self, job: Job, state: State, count: int) -> Iterator[None]:
        """Yield after each batch of each model, so that the worker can compute views in between."""
        try:
            results = []
            for model in self.explorer.models:
                intended = self.explorer.intended(model, state)
                edited = model.edited(intended.edits, job.cancelled.is_set)
                cost = EditCost(model, edited, state.changes)
                for done in cost.batches(count):
                    job.done += done
                    yield
                    if job.cancelled.is_set():
                        return
                results.append(cost.result())
            job.result = {"models": results, "n": count}
        except Stopped:
            job.cancelled.set()
        except Exception as error:
            job.error = _sentence(error)

    def report(self, state: State) -> Job:
        """Begin to write a report on the models, and on each edited model beside its original."""
        models = {}
        for model in self.explorer.models:
            edited = model.edited(self.explorer.intended(model, state).edits)
            name = model.subject.name
            models[name] = model.subject.specimen.twin()
            if edited.edits:
                models[f"{name} (edited)"] = edited.runner.specimen.twin()
        job = self._begin("report")
        thread = threading.Thread(
            target=self._write_report, args=(job, models), name="vitreous report", daemon=True
        )
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()
        return job

    def _write_report(self, job: Job, models: dict[str, Specimen]) -> None:
        # pandas and Altair come with these, which only reports need
        from vitreous.measure.engine import inspect
        from vitreous.report import write

        def watch(what: str, done: int, total: int) -> None:
            if job.cancelled.is_set():
                raise Stopped
            job.done, job.of = done, total

        try:
            with watch_progress(watch):
                origin, device = self.explorer.origin, self.explorer.models[0].subject.device
                inspection = inspect(
                    models,
                    self.explorer.data,
                    limit=None,
                    device=device,
                    **origin.shared_options(),
                )
                if job.cancelled.is_set():
                    raise Stopped
                path = self._free_path()
                write(inspection, path)
            self.reports[path.name] = path
            job.result = {"file": str(path), "url": f"reports/{path.name}"}
        except Stopped:
            job.cancelled.set()
        except Exception as error:
            job.error = _sentence(error)

    def _free_path(self) -> Path:
        """The path of a new report, which no file in the folder has."""
        stem = f"live-{name_models([each.subject.name for each in self.explorer.models])}"
        path, number = self.folder / f"{stem}.html", 1
        while path.exists():
            number += 1
            path = self.folder / f"{stem}-{number}.html"
        return path


def _sentence(error: Exception) -> str:
    if isinstance(error, VitreousError):
        return str(error)
    return f"Vitreous failed: {reason(error).rstrip('.')}. This is a bug."
