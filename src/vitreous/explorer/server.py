"""The server of the explorer: routes, limits, starting and stopping.

`access.py` decides which requests are allowed, `worker.py` in which order they are computed, and
`views.py` computes the responses.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from logging import getLogger
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from vitreous.errors import UnknownName, VitreousError, reason
from vitreous.explorer.access import OwnPageOnly, new_token
from vitreous.explorer.as_python import python_of
from vitreous.explorer.assets import PageFile, page_files
from vitreous.explorer.connections import PATIENCE, ImpatientProtocol
from vitreous.explorer.jobs import Job, Jobs
from vitreous.explorer.pictures import describe_picture
from vitreous.explorer.state import parse_state
from vitreous.explorer.views import Explorer
from vitreous.explorer.worker import Compute, QueueFull, Stale, Worker
from vitreous.specimen.rerun import Cancelled

MAX_BODY = 64 << 10
"""Maximum size of a request with a state, in bytes."""
MAX_UPLOAD = 20 << 20
"""Maximum size of an uploaded image, in bytes."""
JSON = "application/json"
BYTES = "application/octet-stream"
Endpoint = Callable[[Request], Awaitable[Response]]
log = getLogger("vitreous")


class App:
    """The routes of one explorer.

    Parameters
    ----------
    explorer
        Computes the views.
    worker
        The thread that views are computed on.
    jobs
        Measurements and reports.
    """

    def __init__(self, explorer: Explorer, worker: Worker, jobs: Jobs) -> None:
        self.explorer, self.worker, self.jobs = explorer, worker, jobs
        self.files = page_files([each.subject.name for each in explorer.models])
        self._decoding = asyncio.Semaphore(1)
        self._uploading = 0

    def routes(self) -> list[Route]:
        """All routes, without the token in front."""
        routes = [
            self._route("/", self.page, "GET"),
            self._route("/static/{name}", self.static, "GET"),
            self._route("/api/session", self.session, "GET"),
            self._route("/api/images/{name}", self.image, "GET"),
            self._route("/api/upload", self.upload, "POST"),
            self._route("/api/measure", self.measure, "POST"),
            self._route("/api/pending", self.pending, "GET"),
            self._route("/api/jobs/{name}", self.job, "GET"),
            self._route("/api/jobs/{name}", self.cancel, "DELETE"),
            self._route("/reports/{name}", self.report, "GET"),
        ]
        explorer, jobs = self.explorer, self.jobs
        for name, media, view in (
            ("picture", "image/png", lambda state, body, stop: explorer.picture(state)),
            ("view", JSON, lambda state, body, stop: explorer.view(state, stop)),
            ("stream", JSON, lambda state, body, stop: explorer.stream(state, stop)),
            ("rollout", BYTES, lambda state, body, stop: explorer.rollout(state, stop)),
            ("attention", BYTES, self._attention),
            ("report", JSON, lambda state, body, stop: _begun(jobs.report(state), body)),
            ("python", JSON, lambda state, body, stop: {"text": python_of(explorer, state)}),
        ):
            routes.append(self._route(f"/api/{name}", self._view(name, media, view), "POST"))
        return routes

    def _route(self, path: str, endpoint: Endpoint, method: str) -> Route:
        return Route(path, with_error_responses(endpoint), methods=[method])

    async def page(self, request: Request) -> Response:
        return _file(self.files[""])

    async def static(self, request: Request) -> Response:
        name = f"static/{request.path_params['name']}"
        if name not in self.files:
            raise HTTPException(404, "There is no such file.")
        return _file(self.files[name])

    async def session(self, request: Request) -> Response:
        return _json(self.explorer.session())

    async def image(self, request: Request) -> Response:
        name = str(request.path_params["name"])
        return Response(
            await run_in_threadpool(self.explorer.thumbnail, name), 200, None, "image/png"
        )

    async def upload(self, request: Request) -> Response:
        """Decode one image at a time: a large one takes hundreds of megabytes while it is read."""
        if self._uploading >= 4:
            raise QueueFull
        self._uploading += 1
        try:
            content = await read_body(request, MAX_UPLOAD)
            name = clean_name(request.headers.get("x-name", ""))
            async with self._decoding:
                picture = await run_in_threadpool(self.explorer.upload, content, name)
        finally:
            self._uploading -= 1
        return _json(describe_picture(picture))

    async def measure(self, request: Request) -> Response:
        body = await read_json(request)
        images = body.get("images", len(self.explorer.data))
        if isinstance(images, bool) or not isinstance(images, int) or not 1 <= images <= 10**6:
            raise HTTPException(422, "images is a number of images, from 1 on.")
        return _json(_begun(self.jobs.measure(parse_state(body), images), body))

    async def pending(self, request: Request) -> Response:
        """The jobs that a page which is loaded now may follow, the newest last."""
        jobs = self.jobs.pending()
        return _json({"jobs": [{"job": job.id, "kind": job.kind, **job.view} for job in jobs]})

    async def job(self, request: Request) -> Response:
        job = self.jobs.find(str(request.path_params["name"]))
        status = job.status()
        job.delivered = job.delivered or bool(status["result"] is not None or status["error"])
        return _json(status)

    async def cancel(self, request: Request) -> Response:
        self.jobs.cancel(str(request.path_params["name"]))
        return _json({})

    async def report(self, request: Request) -> Response:
        path = self.jobs.reports.get(str(request.path_params["name"]))
        if path is None:
            raise HTTPException(404, "There is no such report.")
        content = await run_in_threadpool(path.read_bytes)
        return Response(content, 200, None, "text/html; charset=utf-8")

    def _attention(self, state: Any, body: dict[str, Any], stop: Cancelled) -> bytes:
        return self.explorer.attention(state, stop, difference=body.get("difference") is True)

    def _view(self, name: str, media: str, view: Callable[..., Any]) -> Endpoint:
        """The endpoint of a view: parses the state, lets the worker compute, and responds."""

        async def endpoint(request: Request) -> Response:
            body = await read_json(request)
            state = parse_state(body)
            page, serial = body.get("page"), body.get("serial")
            key = (name, page[:64]) if isinstance(page, str) else None
            number = serial if isinstance(serial, int) else 0
            answer = await self.compute(request, lambda stop: view(state, body, stop), key, number)
            return _json(answer) if media == JSON else Response(answer, 200, None, media)

        return endpoint

    async def compute(
        self, request: Request, compute: Compute, key: Any = None, serial: int = 0
    ) -> Any:
        """Let the worker compute; cancels the task if the browser disconnects meanwhile."""
        task = self.worker.submit(compute, key, serial)
        answer = asyncio.wrap_future(task.future)
        gone = asyncio.ensure_future(_disconnect(request))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                task.cancel()
                answer.add_done_callback(lambda done: done.cancelled() or done.exception())
                raise ClientDisconnect
            return await answer
        finally:
            gone.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _begun(job: Job, body: Mapping[str, Any]) -> dict[str, str]:
    """The answer to a page that began a job, whose view is kept for one that is loaded later."""
    job.view = {name: body.get(name) for name in ("edits", "changes", "mirror")}
    return {"job": job.id}


def build_app(
    explorer: Explorer, worker: Worker, jobs: Jobs, token: str, port: int, embed: bool = False
) -> ASGIApp:
    """The whole application, for uvicorn or for tests."""
    app = Starlette(
        routes=App(explorer, worker, jobs).routes(),
        exception_handlers={404: _no_route, 405: _no_route},
    )
    app.router.redirect_slashes = False
    return OwnPageOnly(app, token, port, embed)


async def _no_route(request: Request, error: Exception) -> Response:
    """The response for a path that does not exist, or not with this method."""
    return Response(status_code=getattr(error, "status_code", 404))


def with_error_responses(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint so that errors become responses with one sentence, never a traceback."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HTTPException as error:
            return _error(error.status_code, error.detail, error.headers)
        except Stale as error:
            return _error(409, str(error))
        except QueueFull as error:
            return _error(429, str(error))
        except UnknownName as error:
            return _error(404, str(error))
        except VitreousError as error:
            return _error(422, str(error))
        except ClientDisconnect:
            return Response(status_code=400)
        except TimeoutError:
            return _error(408, "The request did not arrive in time.")
        except Exception as error:
            log.error("The explorer failed: %s", reason(error))
            return _error(500, f"Vitreous failed: {reason(error).rstrip('.')}. This is a bug.")

    return answer


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request; raises as soon as it turns out to be larger than `most` bytes."""
    # The connection is closed, so that the rest is not received.
    closing = {"connection": "close"}
    too_large = HTTPException(413, f"At most {most:,} bytes can be sent here.", closing)
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > most:
        raise too_large
    parts, size = [], 0
    async with asyncio.timeout(PATIENCE):
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large
            parts.append(part)
    return b"".join(parts)


async def read_json(request: Request) -> dict[str, Any]:
    """The JSON object in the body of a request."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise HTTPException(415, "Requests are JSON: set Content-Type to application/json.")
    content = await read_body(request, MAX_BODY)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise HTTPException(400, "The request is no JSON.") from None
    if not isinstance(body, dict):
        raise HTTPException(400, "The request has to be an object.")
    return body


def clean_name(text: str) -> str:
    """The name of an uploaded file: without folders and control characters, and not too long.

    >>> clean_name("C%3A%5Cphotos%5Ccat%00.png")
    'cat.png'
    """
    name = re.split(r"[\\/]", unquote(text, errors="replace"))[-1]
    printable = "".join(letter for letter in name if letter.isprintable()).strip()
    return printable[:80] or "uploaded image"


def _json(answer: Any) -> Response:
    return Response(json.dumps(answer, allow_nan=False), 200, None, JSON)


def _error(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps({"error": sentence}), status, headers, JSON)


def _file(file: PageFile) -> Response:
    return Response(file.content, 200, None, file.media_type)


class Running:
    """A server that runs in a thread of its own.

    Examples
    --------
    >>> running = start(explorer)
    >>> running.url
    'http://127.0.0.1:43210/…/'
    >>> running.stop()
    """

    def __init__(
        self, explorer: Explorer, port: int | socket.socket, embed: bool, folder: Path
    ) -> None:
        self.explorer, self.worker = explorer, Worker()
        self.jobs = Jobs(explorer, self.worker, folder)
        self._socket = bind(port) if isinstance(port, int) else port
        self.port: int = self._socket.getsockname()[1]
        token = new_token()
        self.url = f"http://127.0.0.1:{self.port}/{token}/"
        app = build_app(explorer, self.worker, self.jobs, token, self.port, embed)
        config = uvicorn.Config(
            app, log_level="critical", access_log=False, server_header=False, lifespan="off",
            http=ImpatientProtocol, ws="none", timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="vitreous server", daemon=True)
        self.worker.submit(lambda _: explorer.warm_up())
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._server.run([self._socket])
        finally:
            self._ended.set()

    @property
    def alive(self) -> bool:
        """Whether the server still runs."""
        return not self._ended.is_set()

    def stop(self) -> None:
        """Stop all jobs, close the port and end both threads; calling it again is fine."""
        self.jobs.stop()
        self.worker.stop()
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._socket.close()


def start(
    explorer: Explorer,
    port: int | socket.socket = 0,
    embed: bool = False,
    folder: Path | str = ".",
) -> Running:
    """Serve an explorer on this machine alone.

    Parameters
    ----------
    explorer
        The models and images.
    port
        0 takes a free one; or what `bind` has returned.
    embed
        Whether notebooks on this machine may show the page in a cell.
    folder
        Where reports are saved.
    """
    return Running(explorer, port, embed, Path(folder))


def bind(port: int) -> socket.socket:
    """A socket on the loopback interface, which other machines cannot reach."""
    # With an explicit protocol asyncio disables Nagle's algorithm, which costs 40 ms a response.
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
        found.listen(128)  # already: a notebook loads the page as soon as it has the address
    except (OSError, OverflowError) as error:
        found.close()
        why = getattr(error, "strerror", None) or "ports are numbers from 0 to 65535"
        raise VitreousError(
            f"Port {port} cannot be used: {why}. Choose another one with --port, or 0 for any."
        ) from None
    return found
