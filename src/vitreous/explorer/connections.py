"""Connections of the server: one on which no complete request arrives in time is closed.

uvicorn waits for the rest of a request without a limit. A client that sends half a request on each
of many connections could otherwise exhaust the connections of the process, without the token.
"""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE = 60.0
"""Seconds in which a request has to arrive."""


class ImpatientProtocol(H11Protocol):
    """uvicorn's HTTP protocol with a time limit while a connection has no complete request."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._end: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()  # the request is complete, or `read_body` limits the rest
        else:
            self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(error)

    def _wait(self) -> None:
        """Start the timer that closes the connection, unless it runs already."""
        if self._end is None and not self.transport.is_closing():
            self._end = self.loop.call_later(PATIENCE, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
