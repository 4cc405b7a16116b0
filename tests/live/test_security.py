"""Whatever is sent to the server is refused or survived, and it stops when it is told to."""

from __future__ import annotations

import contextlib
import json
import random
import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import httpx2
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from live.running import PORT, TOKEN, Page, client, page, serving
from vitreous.explorer.access import OwnPageOnly, new_token
from vitreous.explorer.opening import open_explorer
from vitreous.explorer.server import MAX_UPLOAD, clean_name

__all__ = ["client", "page"]
OFF = {"model": 0, "unit": "blocks.1.attn", "what": "off"}
HOST = f"127.0.0.1:{PORT}"


def answer(page: Page, path: str, method: str = "GET", **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return page.client.request(method, path, headers=named)


@pytest.mark.parametrize(
    "path",
    [
        "/", "/api/session", f"/{TOKEN}", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/api/session", "//",
        f"/{TOKEN.upper()}/api/session", f"/x/{TOKEN}/api/session", "/%00/", "/ÿ/api/session",
        f"/{TOKEN}%2fapi%2fsession%00",
    ],
)  # fmt: skip
def test_without_the_token_there_is_nothing(page: Page, path: str) -> None:
    found = answer(page, path)
    assert found.status_code == 404
    assert found.content == b""
    assert "default-src 'none'" in found.headers["content-security-policy"]


def test_tokens_cannot_be_guessed() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert {len(each) for each in tokens} == {32}


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"}, {"host": f"evil.example:{PORT}"}, {"host": "127.0.0.1"},
        {"host": f"127.0.0.1.evil.example:{PORT}"}, {"host": "127.0.0.1:1"}, {"host": ""},
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": f"https://{HOST}"},
        {"origin": "http://127.0.0.1:8888"}, {"origin": f"http://{HOST}.evil.example"},
        {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
    ],
)  # fmt: skip
def test_other_sites_and_names_are_refused(page: Page, headers: dict[str, str]) -> None:
    for path, method in (("api/session", "GET"), ("api/view", "POST"), ("static/main.js", "GET")):
        found = answer(page, page.url(path), method, **headers)
        assert found.status_code == 403
        assert found.content == b""


def test_requests_of_the_own_page_are_allowed(page: Page) -> None:
    for headers in (
        {}, {"origin": f"http://{HOST}"}, {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"}, {"host": f"localhost:{PORT}"}, {"host": f"[::1]:{PORT}"},
        {"host": f"localhost:{PORT}", "origin": f"http://localhost:{PORT}"},
    ):  # fmt: skip
        found = answer(page, page.url("api/session"), **headers)
        assert found.status_code == 200, headers
    policy = found.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'self'" in policy
    assert "unsafe" not in policy
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"
    assert found.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in found.headers


def test_a_link_opens_the_page_but_no_frame_does(page: Page) -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    for kind, status in (("document", 200), ("iframe", 403), ("embed", 403), ("script", 403)):
        found = answer(page, page.url(""), **link, sec_fetch_dest=kind)
        assert found.status_code == status
    assert answer(page, page.url(""), sec_fetch_site="cross-site").status_code == 403
    embedded = OwnPageOnly(page.client.app.app, TOKEN, PORT, embed=True)  # type: ignore[attr-defined]
    with TestClient(embedded, base_url=f"http://{HOST}") as client:
        headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        headers["sec-fetch-dest"] = "iframe"
        found = client.get(page.url(""), headers=headers)
        assert found.status_code == 200
        assert "http://localhost:*" in found.headers["content-security-policy"]
        assert client.get(page.url("api/session"), headers=headers).status_code == 403


NAMES = (
    "../server.py", "..%2fserver.py", "%2e%2e%2fserver.py", "..%5cserver.py", "..%252fserver.py",
    "/etc/passwd", "%2fetc%2fpasswd", "....//server.py", "main.js%00.png", "main.js/", ".", "..",
    "%00", "\u202emain.js", "main.js;x", "C:%5cwindows", "file:%2f%2f%2fetc%2fpasswd", "x" * 3000,
)  # fmt: skip


@pytest.mark.parametrize("route", ["static", "api/images", "api/jobs", "reports"])
def test_names_lead_nowhere_else(page: Page, route: str) -> None:
    for name in NAMES:
        for method in ("GET", "DELETE"):
            found = answer(page, page.url(f"{route}/{name}"), method)
            assert found.status_code in (404, 405), (name, found.status_code)
            assert b"root:" not in found.content
            assert b"import" not in found.content


def test_methods_and_types_of_requests(page: Page) -> None:
    body = json.dumps({"image": "d0"})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        found = page.client.post(
            page.url("api/view"), content=body, headers={"content-type": kind}
        )  # what a form of another site could send without being asked
        assert found.status_code == 415
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        found = page.client.request(method, page.url("api/view"))
        assert found.status_code == 405
    assert page.client.post(page.url("api/session")).status_code == 405


def test_large_bodies_are_refused(page: Page) -> None:
    image = {"image": "d0", "x": "y" * (64 << 10)}
    assert page.post("api/view", image).status_code == 413
    for length in ("104857600", "9" * 400, "-1", "x"):
        found = page.client.post(
            page.url("api/upload"), content=b"x", headers={"content-length": length}
        )
        assert found.status_code == 413, length


def test_a_hundred_megabytes_without_a_length_are_not_read(client: httpx2.Client) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1 << 20
            yield bytes(1 << 20)

    with serving() as running:
        with contextlib.suppress(httpx2.TransportError):  # it hangs up in the middle
            found = client.post(f"{running.url}api/upload", content=chunks())
            assert found.status_code == 413
        assert sent < 2 * MAX_UPLOAD
        assert client.get(f"{running.url}api/session").status_code == 200


def png_of(width: int, height: int, content: bytes) -> bytes:
    """A PNG with a header of our own."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def picture(side: int = 40) -> bytes:
    file = BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (side, side, 3), np.uint8)
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_pictures_that_are_none(page: Page) -> None:
    bombs = [png_of(60_000, 60_000, bytes(1 << 20)), png_of(12_000, 12_000, bytes(1 << 20))]
    broken = [b"", b"<svg onload=alert(1)>", b"%!PS-Adobe-3.0 EPSF-3.0\n", picture()[:200]]
    huge = [png_of(0, 0, b""), png_of(2**31 - 1, 1, b"")]
    for content in (*bombs, *broken, *huge, b"GIF89a" + b"\xff" * 40, bytes(1000)):
        found = page.client.post(page.url("api/upload"), content=content)
        assert found.status_code == 422
        assert found.json()["error"].startswith("'uploaded image'")
    assert len(page.explorer.pictures) <= 64 + 50
    assert page.client.post(page.url("api/upload"), content=picture()).status_code == 200


def test_only_so_many_uploads_are_kept(page: Page) -> None:
    small = page.get("api/images/d0").content
    first = page.client.post(page.url("api/upload"), content=small).json()["id"]
    for _ in range(50):
        last = page.client.post(page.url("api/upload"), content=small).json()["id"]
    assert page.post("api/view", {"image": first}).status_code == 404
    assert page.post("api/view", {"image": last}).status_code == 200
    assert sum(each.row is None for each in page.explorer.pictures.values()) == 50


SCRIPT = "<script>alert(1)</script>\"'`</title>\u2028"


def test_markup_in_names_is_only_text(page: Page) -> None:
    found = page.client.post(
        page.url("api/upload"),
        content=picture(),
        headers={"x-name": "%3Cscript%3E%2F%2E%2E%0a%22.png"},
    )
    assert found.headers["content-type"] == "application/json"
    assert found.json()["label"] == '..".png'
    for name in ("..%2f..%2fetc%2fpasswd", "a\\b", "\x1b[31m", "", "%ff%fe", "é" * 500):
        assert "/" not in clean_name(name)
        assert clean_name(name).isprintable()
        assert 0 < len(clean_name(name)) <= 80


def test_markup_in_class_and_model_names(client: httpx2.Client) -> None:
    classes = [f"{SCRIPT}{number}" for number in range(10)]
    explorer = open_explorer({SCRIPT: "nano:vit"}, limit=4, device="cpu", classes=classes)
    with serving(explorer) as running:
        session = client.get(f"{running.url}api/session")
        assert session.headers["content-type"] == "application/json"
        assert session.json()["models"][0]["name"] == SCRIPT
        for path in ("", "static/colours.css", "static/main.js"):
            assert b"alert(1)" not in client.get(running.url + path).content
        body = {"image": "d0", "edits": [OFF]}
        view = client.post(f"{running.url}api/view", json=body)
        assert view.json()["models"][0]["after"][0]["class"].startswith(SCRIPT)
        text = client.post(f"{running.url}api/python", json=body).json()["text"]
        compile(text, "copied", "exec")


JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 10**30, 0.5, -0.5, 1e308, float("nan"), float("inf"), "", "d0",
    "d-1", "u0", "class", "\ud800", "\x00", "x" * 5000, [], [[]], [0], [0.5, 0.5], [1, 0, 0, 1],
    [0.2, 0.2, 0.1, 0.1], {}, {"name": "fog"}, {"name": "fog", "severity": 2},
    {"name": "fog", "severity": "2"}, {"unit": "blocks.0.mlp", "what": "off"}, [OFF], [OFF] * 300,
    [{**OFF, "model": 7}], [{**OFF, "unit": "*"}], [{**OFF, "unit": ["a"]}],
    {"frequency": 0, "width": 0, "strength": 1}, {"frequency": 1, "width": 1, "strength": 0.1},
    {"frequency": 2, "width": 1, "strength": 1}, {"model": 0, "name": "blocks.0.mlp"},
    {"model": 1, "name": "blocks.0.mlp"}, {"__proto__": {}}, {"": ""},
)  # fmt: skip
KEYS = ("image", "changes", "edits", "mirror", "query", "unit", "panel", "page", "serial", "images")
CHANGES = ("noise", "low_pass", "high_pass", "boxes", "corruption")


def test_states_of_all_sorts_are_answered_or_refused_but_never_break_it(page: Page) -> None:
    draw = random.Random(0)
    statuses: dict[int, int] = {}
    for number in range(400):
        body: dict[str, Any] = {"image": "d0"} if draw.random() < 0.8 else {}
        for key in draw.sample(KEYS, draw.randint(0, 3)):
            body[key] = draw.choice(JUNK)
        if draw.random() < 0.4:
            body["changes"] = {key: draw.choice(JUNK) for key in draw.sample(CHANGES, 2)}
        route = ("view", "attention", "picture", "stream", "rollout", "python")[number % 6]
        content = json.dumps(body)
        found = page.client.post(
            page.url(f"api/{route}"), content=content, headers={"content-type": "application/json"}
        )
        statuses[found.status_code] = statuses.get(found.status_code, 0) + 1
        assert found.status_code in (200, 404, 409, 422), (route, content[:500], found.text)
        if found.status_code != 200:
            assert found.json()["error"]
    assert min(statuses[200], statuses[422]) > 20


def test_bodies_that_are_no_json(page: Page) -> None:
    for content in (
        b"", b"{", b"\xff\xfe", b"[" * 60_000, b'{"a":' * 10_000, b"9" * 60_000, b"NaN", b"[]",
        b'"d0"', b"null", b"{} {}",
    ):  # fmt: skip
        for route in ("view", "measure", "report"):
            found = page.client.post(
                page.url(f"api/{route}"),
                content=content,
                headers={"content-type": "application/json"},
            )
            assert found.status_code == 400, content[:20]
