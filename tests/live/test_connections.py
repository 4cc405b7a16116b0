"""Many connections, slow ones and lost ones are survived, and the server stops when told to."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from live.running import client, explorer_of, serving
from vitreous.errors import VitreousError
from vitreous.explorer.server import bind, start
from vitreous.explorer.state import parse_state

__all__ = ["client"]
OFF = {"model": 0, "unit": "blocks.1.attn", "what": "off"}


def test_two_hundred_requests_at_once(client: httpx2.Client) -> None:
    with serving() as running, ThreadPoolExecutor(40) as pool:

        def ask(number: int) -> int:
            edits = [{**OFF, "unit": f"blocks.{number % 6}.mlp"}]
            body = {"image": f"d{number % 8}", "edits": edits}
            return int(client.post(f"{running.url}api/view", json=body, timeout=60).status_code)

        found = list(pool.map(ask, range(200)))
        assert set(found) <= {200, 429}
        assert found.count(200) > 60
        assert client.get(f"{running.url}api/session").status_code == 200


def test_a_disconnected_browser_stops_the_computation(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as running:
        running.worker.submit(lambda _: None).future.result(30)  # it is warm
        stopped = threading.Event()

        def view(state: Any, cancelled: Any) -> Any:
            for _ in range(2000):
                if cancelled():
                    stopped.set()
                    break
                time.sleep(0.005)
            return {}

        monkeypatch.setattr(running.explorer, "view", view)
        for reset in (False, True):
            stopped.clear()
            body = json.dumps({"image": "d0"})
            path = running.url.split(str(running.port), 1)[1]
            connection = http.client.HTTPConnection("127.0.0.1", running.port)
            connection.request(
                "POST", f"{path}api/view", body, {"Content-Type": "application/json"}
            )
            time.sleep(0.1)
            assert connection.sock is not None
            if reset:
                linger = struct.pack("ii", 1, 0)
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.close()
            assert stopped.wait(5)
        # half a request, and then nothing
        with socket.create_connection(("127.0.0.1", running.port)) as half:
            half.sendall(f"POST {path}api/view HTTP/1.1\r\nHost: 127.0.0.1".encode())
        assert client.get(f"{running.url}api/session").status_code == 200


def trickle(slow: socket.socket, drop: bytes) -> bytes:
    """Send a little again and again until the server hangs up; what it has said until then."""
    received, end = b"", time.perf_counter() + 4
    with contextlib.suppress(ConnectionError):
        while time.perf_counter() < end:
            try:
                part = slow.recv(1 << 16)
            except TimeoutError:
                slow.sendall(drop)
                continue
            if not part:
                return received
            received += part
        raise AssertionError("the server still waits")
    return received


def test_connections_without_a_complete_request_are_closed(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a request, none at all, or another one behind the first: their connections end."""
    monkeypatch.setattr("vitreous.explorer.connections.PATIENCE", 0.2)
    with serving() as running:
        running.worker.submit(lambda _: None).future.result(30)  # it is warm
        path = "/" + running.url.split("/", 3)[3]
        whole = f"GET {path}static/main.js HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\n\r\n"
        endless = whole.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n")
        for begin, drop in (("", "x"), (whole[:40], "x"), (whole, "G"), (endless, "1\r\nx\r\n")):
            with socket.create_connection(("127.0.0.1", running.port), timeout=0.05) as slow:
                slow.sendall(begin.encode())
                received = trickle(slow, drop.encode())
                assert received.startswith(b"HTTP/1.1 200") == (begin in (whole, endless))
        # who asked is waited for, however long the answer takes
        later = threading.Timer(0.4, (opened := threading.Event()).set)
        later.start()
        monkeypatch.setattr(running.explorer, "view", lambda *_: opened.wait(5))
        assert client.post(f"{running.url}api/view", json={"image": "d0"}).status_code == 200


def test_stopping_in_the_middle_of_everything_leaves_nothing(tmp_path: Any) -> None:
    before = set(threading.enumerate())
    running = start(explorer_of("nano:vit", images=64), folder=tmp_path)
    state = parse_state({"image": "d0", "edits": [OFF]})
    measuring, reporting = running.jobs.measure(state, 64), running.jobs.report(state)
    while not measuring.done:
        time.sleep(0.005)
    began = time.perf_counter()
    running.stop()
    running.stop()
    assert time.perf_counter() - began < 15
    assert not measuring.running
    assert not reporting.running
    assert not running.alive
    assert [
        each.name for each in set(threading.enumerate()) - before if "vitreous" in each.name
    ] == []
    assert list(tmp_path.iterdir()) == []
    bind(running.port).close()  # the port is free again


def test_a_port_that_is_taken() -> None:
    taken = bind(0)
    with pytest.raises(VitreousError, match=r"Port \d+ cannot be used: .*--port"):
        bind(taken.getsockname()[1])
    taken.close()
    with pytest.raises(VitreousError, match="Port 99999 cannot be used"):
        bind(99999)


def test_other_machines_cannot_reach_it() -> None:
    with contextlib.closing(bind(0)) as found:
        assert found.getsockname()[0] == "127.0.0.1"
