"""Access control of the server: only its own page may send requests, with the token in the address.

Pages of other sites can send requests to 127.0.0.1 as well. They are refused because they do not
know the token, because their browser sends their `Origin` and `Sec-Fetch-Site`, and because the
`Host` header shows a foreign name that resolves to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
)
REPORT_POLICY = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The policy of a report, which itself contains a stricter one with the hashes of its scripts."""
NOTEBOOKS = (
    "'self' http://localhost:* http://127.0.0.1:* https://localhost:* https://127.0.0.1:* "
    "vscode-webview:"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
OWN_SITE = ("same-origin", "none")


def new_token() -> str:
    """A random token of 32 characters."""
    return secrets.token_urlsafe(24)


class OwnPageOnly:
    """ASGI middleware that passes on requests from the server's own page and refuses all others.

    Parameters
    ----------
    app
        Gets the requests that pass, with the token removed from their paths.
    token, port
        The token and port of the server's address.
    embed
        Whether pages of other ports of this machine, such as notebooks, may show the page in a
        frame.
    """

    def __init__(self, app: ASGIApp, token: str, port: int, embed: bool = False) -> None:
        self.app, self.token, self.embed = app, token, embed
        names = ("127.0.0.1", "localhost", "[::1]")
        self.hosts = {f"{name}:{port}" for name in names}
        if port == 80:
            self.hosts |= set(names)
        ancestors = NOTEBOOKS if embed else "'self'"
        self.policy = POLICY.format(ancestors=ancestors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":  # start and end of the server
            await self.app(scope, receive, send)
            return
        path = self._path_behind_token(str(scope["path"]))
        reports = path is not None and path.startswith("/reports/")
        answer = self._with_headers(send, REPORT_POLICY if reports else self.policy)
        if not self._is_own(scope, page=path == "/"):
            await _refuse(answer, 403)
        elif path is None:
            await _refuse(answer, 404)
        else:
            inside = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
            await self.app(inside, receive, answer)

    def _path_behind_token(self, path: str) -> str | None:
        """`/api/view` for `/TOKEN/api/view`; None if the token is wrong."""
        token, slash, rest = path.removeprefix("/").partition("/")
        is_valid = secrets.compare_digest(token.encode(), self.token.encode())
        return f"/{rest}" if is_valid and slash else None

    def _is_own(self, scope: Scope, page: bool) -> bool:
        """Whether a request comes from the server's page, or is a navigation to that page."""
        hosts = _header(scope, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return False
        if any(origin != f"http://{hosts[0].lower()}" for origin in _header(scope, b"origin")):
            return False
        sites = _header(scope, b"sec-fetch-site")
        if all(site in OWN_SITE for site in sites):
            return True
        # Navigating here from another site, as by a link in a mail, reveals nothing to that site.
        navigates = _header(scope, b"sec-fetch-mode") == ["navigate"]
        kinds = {"document", "iframe"} if self.embed else {"document"}
        targets = _header(scope, b"sec-fetch-dest")
        is_navigation = navigates and bool(targets) and set(targets) <= kinds
        return page and scope["method"] == "GET" and is_navigation

    def _with_headers(self, send: Send, policy: str) -> Send:
        fixed = {**HEADERS, "content-security-policy": policy}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [
                    each for each in message.get("headers", ()) if each[0].decode() not in fixed
                ]
                message = {**message, "headers": [*given, *_encoded(fixed.items())]}
            await send(message)

        return answer


def _header(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers]


async def _refuse(send: Send, status: int) -> None:
    start: MutableMapping[str, Any] = {
        "type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")],
    }  # fmt: skip
    await send(start)
    await send({"type": "http.response.body", "body": b""})
