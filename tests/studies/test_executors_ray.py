"""A Ray cluster does what one process does, bit by bit, whoever is killed on the way."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from processes import ready, started
from studies.killing import alive, at_work, below, files, opened, until
from studies.tiny import cells, equal, tiny
from vitreous.errors import VitreousError
from vitreous.studies import cell_records, executors, run_cells
from vitreous.studies.plan import Cell

ray = pytest.importorskip("ray")

HOST = """
import logging, sys
import ray
found = ray.init(address="local", num_cpus=1, object_store_memory=80 << 20, include_dashboard=False,
                 log_to_driver=False, logging_level=logging.CRITICAL)
print(found.address_info["gcs_address"], flush=True)
sys.stdin.read()  # until the test ends, however it does
ray.shutdown()
"""


@pytest.fixture(scope="module", autouse=True)
def home() -> Iterator[None]:
    """A folder for Ray's files, with a short name for its sockets; workers find the package."""
    folder = tempfile.mkdtemp(prefix="vr", dir="/tmp")
    source = str(Path(run_cells.__file__).parents[2])
    given = {
        "RAY_TMPDIR": folder,
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": source,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        ready()
        yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def host(home: None) -> Iterator[subprocess.Popen[str]]:
    """The process that keeps a cluster of one worker; nothing of it is left at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    family = below(process.pid)
    process.communicate()
    until(lambda: not any(map(alive, family)))
    assert process.returncode == 0


def drive(root: Path, address: str | None) -> BaseProcess:
    return started(
        executors.run_cluster,
        cells(),
        root,
        tiny(),
        "cpu",
        run_cells.ignore_state,
        run_cells.NO_LIMITS,
        2,
        address,
    )


def workers(pid: int) -> list[int]:
    """The workers below a process. Ray's other processes stand for the machine."""
    return [
        each for each, title in below(pid).items() if title.startswith(("ray::IDLE", "ray::_task"))
    ]


@pytest.mark.timeout(900)
def test_killing_a_worker_or_the_driver_loses_no_results(
    host: subprocess.Popen[str], tmp_path: Path, done: Path
) -> None:
    """A worker and then the driver of a cluster; a study on a cluster of its own does the rest."""
    assert host.stdout is not None
    address = host.stdout.readline().strip()
    draws = random.Random(7)
    driver = drive(tmp_path, address)
    kill_at_work(host, driver, tmp_path, draws)
    until(lambda: at_work(tmp_path) or not driver.is_alive())
    time.sleep(draws.uniform(0, 1))
    kill(driver.pid, signal.SIGKILL)
    driver.join()
    kept = files(cells(), tmp_path)
    assert kept
    driver = drive(tmp_path, None)
    rest(driver, tmp_path)
    assert kept.items() <= files(cells(), tmp_path).items()
    equal(tmp_path, done)


def kill_at_work(
    host: subprocess.Popen[str], driver: BaseProcess, root: Path, draws: random.Random
) -> None:
    """The worker that is at a cell; the same driver sees that another does it."""
    found: dict[int, Path] = {}

    def seen() -> bool:
        found.update(opened(workers(host.pid), root / "locks"))
        return bool(found) or not driver.is_alive()

    until(seen)
    time.sleep(draws.uniform(0, 0.5))
    pid, lock = found.popitem()
    kill(pid, signal.SIGKILL)
    cell = next(cell for cell in cells() if cell_records.lock_path(cell, root).name == lock.name)
    until(lambda: run_cells.is_finished(cell, root) or not driver.is_alive())
    assert run_cells.is_finished(cell, root)


def kill(pid: int | None, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was quicker
        if pid is not None:
            os.kill(pid, how)


def rest(driver: BaseProcess, root: Path) -> None:
    """A cell that another process runs is waited for; the driver's end ends its cluster."""
    last = cells()[-1]
    assert driver.pid is not None
    with cell_records.try_lock(cell_records.lock_path(last, root)):
        until(lambda: bool(workers(driver.pid or 0)) or not driver.is_alive())
        until(
            lambda: (
                {cell.key for cell in run_cells.unfinished_cells(cells(), root)} <= {last.key}
                or not driver.is_alive()
            )
        )
        assert driver.is_alive()
        family = below(driver.pid)
    driver.join()
    assert driver.exitcode == 0
    until(lambda: not any(map(alive, family)))


class Cluster:
    """A cluster that answers as it is told, in the place of Ray."""

    exceptions = ray.exceptions

    def __init__(self, answers: Callable[[str, int], Any]) -> None:
        self.answers = answers
        self.sent: list[str] = []

    def send(self, cell: Cell) -> tuple[str, int]:
        self.sent.append(cell.key)
        return cell.key, self.sent.count(cell.key)

    def wait(self, references: list[Any], **given: Any) -> tuple[list[Any], list[Any]]:
        return references[:1], references[1:]

    def get(self, reference: tuple[str, int]) -> Any:
        answer = self.answers(*reference)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self, reference: Any) -> None:
        self.sent.append("cancelled")

    def do(self, root: Path) -> run_cells.Report:
        return executors.Dispatch(self, cells(), run_cells.ignore_state, self.send, root).follow()


def test_a_cell_whose_worker_dies_is_sent_again_so_many_times(tmp_path: Path) -> None:
    first, second = cells()[:2]

    def answers(key: str, time: int) -> Any:
        dies = key == first.key or (key == second.key and time <= executors.MAX_RESTARTS)
        return ray.exceptions.WorkerCrashedError() if dies else ("done", "")

    cluster = Cluster(answers)
    report = cluster.do(tmp_path)
    assert report.failed.keys() == {first.key}
    assert "died 4 times" in report.failed[first.key] == cell_records.read_failure(first, tmp_path)
    assert {key: cluster.sent.count(key) for key in cluster.sent} == {
        cell.key: 4 if cell in (first, second) else 1 for cell in cells()
    }


def test_a_cell_is_sent_when_those_it_follows_are_done(tmp_path: Path) -> None:
    cluster = Cluster(lambda key, time: ("held", "") if time == 1 else ("done", ""))
    report = cluster.do(tmp_path)
    assert sorted(report.done) == sorted(cell.key for cell in cells())
    for cell in cells():
        assert cluster.sent.count(cell.key) == 2
        for before in cell.follows:
            assert report.done.index(before) < report.done.index(cell.key)
            assert max(
                n for n, key in enumerate(cluster.sent) if key == before
            ) < cluster.sent.index(cell.key)


def test_a_cell_that_fails_leaves_those_that_do_not_follow_it(tmp_path: Path) -> None:
    last = next(cell for cell in cells() if cell.follows)
    cluster = Cluster(
        lambda key, time: ("failed", "No.") if key == last.follows[0] else ("done", "")
    )
    report = cluster.do(tmp_path)
    assert report.failed[last.follows[0]] == "No."
    assert "waits for" in report.failed[last.key]
    assert len(report.done) + len(report.failed) == len(cells())
    assert last.key not in cluster.sent


def test_a_worker_that_cannot_begin_ends_the_study(tmp_path: Path) -> None:
    error = ray.exceptions.RayTaskError(
        "_task", "", ModuleNotFoundError("No module named 'vitreous'")
    )
    cluster = Cluster(lambda key, time: error)
    with pytest.raises(
        VitreousError, match=r"could not begin: ModuleNotFoundError.*All machines need this version"
    ):
        cluster.do(tmp_path)
    assert "cancelled" in cluster.sent


def test_a_machine_that_does_not_see_the_folder(tmp_path: Path) -> None:
    with pytest.raises(VitreousError, match="does not see the study's folder"):
        executors._task(cells()[0], tmp_path, tiny(), "cpu", str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("device", "gpus", "taken"), [("auto", 2, 1), ("auto", 0, 0), ("cpu", 2, 0), ("cuda", 1, 1)]
)
def test_a_cell_takes_a_gpu_if_the_cluster_has_gpus(device: str, gpus: int, taken: int) -> None:
    assert (
        executors._gpus(SimpleNamespace(cluster_resources=lambda: {"GPU": float(gpus)}), device)
        == taken
    )


@pytest.mark.parametrize(
    ("device", "sentence"), [("cuda", "has no GPU"), ("cuda:1", "cannot be asked for")]
)
def test_a_gpu_that_cannot_be_had(device: str, sentence: str) -> None:
    with pytest.raises(VitreousError, match=sentence):
        executors._gpus(SimpleNamespace(cluster_resources=dict), device)


def test_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(VitreousError, match=r"pip install vitreous\[ray\]"):
        executors.run_cluster(cells(), tmp_path, tiny(), "cpu")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "local", "127.0.0.1:http", "127.0.0.1:99999"])
def test_an_unreachable_cluster_is_an_error(address: str, tmp_path: Path) -> None:
    with pytest.raises(
        VitreousError, match=f"A Ray cluster at '{address}' cannot be reached.*say auto"
    ):
        executors.run_cluster(cells(), tmp_path, tiny(), "cpu", address=address)
