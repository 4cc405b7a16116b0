"""An explorer of two bundled models behind its routes, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2
import pytest
from starlette.testclient import TestClient

from vitreous.explorer.server import build_app
from vitreous.explorer.views import Explorer
from vitreous.explorer.worker import Worker
from vitreous.measure.choosing import choose_images
from vitreous.measure.labels import match_labels
from vitreous.measure.subject import subjects

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


def explorer_of(*models: str, images: int = 96) -> Explorer:
    opened = subjects(list(models))
    data = match_labels(choose_images("world:shapes", None, images, opened, 0), opened)
    return Explorer(opened, data)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    explorer, worker = explorer_of("nano:vit", "nano:resnet"), Worker()
    app = build_app(explorer, worker, TOKEN, PORT)
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}") as client:
        yield Page(explorer, client)
    worker.stop()
