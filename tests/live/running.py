"""An explorer of two bundled models behind its routes, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
import pytest
from starlette.testclient import TestClient

from vitreous.explorer.jobs import Jobs
from vitreous.explorer.opening import open_explorer
from vitreous.explorer.server import Running, build_app, start
from vitreous.explorer.views import Explorer
from vitreous.explorer.worker import Worker

TOKEN = "0123456789abcdefghijklmnopqrstuv"
PORT = 8642


class Page(NamedTuple):
    """What a browser would do."""

    explorer: Explorer
    client: TestClient

    def url(self, path: str) -> str:
        return f"/{TOKEN}/{path}"

    def get(self, path: str) -> httpx2.Response:
        return self.client.get(self.url(path))

    def post(self, path: str, body: Any) -> httpx2.Response:
        return self.client.post(self.url(path), json=body)


def explorer_of(*models: str, images: int = 70) -> Explorer:
    return open_explorer(models, limit=images, device="cpu")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    explorer, worker = explorer_of("nano:vit", "nano:resnet"), Worker()
    jobs = Jobs(explorer, worker, tmp_path_factory.mktemp("reports"))
    app = build_app(explorer, worker, jobs, TOKEN, PORT)
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}") as client:
        yield Page(explorer, client)
    jobs.stop()
    worker.stop()


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client(trust_env=False, timeout=60) as asking:
        yield asking


@contextmanager
def serving(explorer: Any = None) -> Iterator[Running]:
    running = start(explorer or explorer_of("nano:vit", images=8))
    try:
        yield running
    finally:
        running.stop()
