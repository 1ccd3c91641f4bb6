"""HTTP/1.1 for one kind of request: short, answered in order, one at a time on a connection.

The package httptools parses; here is what a server adds: limits of size and time, answers in order,
and an end at which what was asked is answered.
"""

from __future__ import annotations

import asyncio
import http
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httptools

#: Requests of a connection that came before earlier ones were answered; then it is not read.
_PIPELINED_MAX = 8
_SWEEP_S = 0.5
JSON = "application/json"


@dataclass(frozen=True)
class HttpLimits:
    """body_bytes: of a request. head_bytes: of its line and headers. idle_s: how long a connection
    may say nothing; request_s: how long a request may take to come, and an answer to be taken.
    connections: how many there may be; more are closed at once."""

    body_bytes: int = 32 << 20
    head_bytes: int = 16 << 10
    idle_s: float = 75.0
    request_s: float = 30.0
    connections: int = 1024


class Request:
    """A request, to be answered once by reply()."""

    __slots__ = ("_connection", "body", "is_kept", "method", "on_gone", "path")

    def __init__(
        self, connection: Connection, method: str, path: str, body: bytes, is_kept: bool
    ) -> None:
        self._connection = connection
        self.method = method
        self.path = path
        self.body = body
        self.is_kept = is_kept
        #: Called when the connection ends before the answer.
        self.on_gone: Callable[[], None] | None = None

    def reply(self, status: int, body: bytes, content_type: str = JSON) -> None:
        self._connection._reply(self, status, body, content_type)


class HttpServer:
    """The connections of a port. `handle` answers requests; it does not raise. `refused` counts
    what is refused before that, by status."""

    def __init__(
        self,
        handle: Callable[[Request], None],
        error_body: Callable[[str], bytes],
        limits: HttpLimits,
        refused: Callable[[int], None] = lambda status: None,
    ) -> None:
        self.handle = handle
        self.error_body = error_body
        self.limits = limits
        self.refused = refused
        self.is_draining = False
        self.connections: set[Connection] = set()
        self._heads: dict[tuple[int, str], bytes] = {}
        self._servers: list[asyncio.AbstractServer] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event = asyncio.Event()

    async def listen(self, host: str, port: int, tls: Any = None) -> int:
        """Listens, and gives the port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self), host, port, ssl=tls)
        self._servers.append(server)
        self._sweep()
        return int(server.sockets[0].getsockname()[1])

    def head(self, status: int, content_type: str) -> bytes:
        """An answer up to its length."""
        known = self._heads.get((status, content_type))
        if known is None:
            phrase = http.HTTPStatus(status).phrase
            known = self._heads[status, content_type] = (
                f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {content_type}\r\ncontent-length: "
            ).encode()
        return known

    def gone(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    def _sweep(self) -> None:
        """Ends connections that take too long."""
        now = time.monotonic()
        for connection in list(self.connections):
            connection.look(now)
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    async def close(self, drain_s: float) -> None:
        """Takes no more connections, answers what was asked, and ends; what is not answered in
        `drain_s` is cut."""
        self.is_draining = True
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.drain()
        if self.connections:
            self._empty.clear()
            try:
                await asyncio.wait_for(self._empty.wait(), drain_s)
            except asyncio.TimeoutError:
                for connection in list(self.connections):
                    connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()


class Connection(asyncio.Protocol):
    """One connection: the parser's callbacks put a request together, _drive() hands it over."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._queue: deque[Request] = deque()
        self._busy: Request | None = None
        self._is_driving = self._is_paused = self._is_full = False
        self._is_reading = self._is_in_head = False
        self._complete = 0
        self._refusal: tuple[int, str] | None = None
        self._since = time.monotonic()
        self._url = b""
        self._body: list[bytes] = []
        self._head_size = self._head_bytes = self._body_size = 0

    # ---- the transport's calls ------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        server = self._server
        if server.is_draining or len(server.connections) >= server.limits.connections:
            server.refused(503)
            transport.abort()
            return
        server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.gone(self)
        self._queue.clear()
        busy, self._busy = self._busy, None
        if busy is not None and busy.on_gone is not None:
            busy.on_gone()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        complete = self._complete
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "no other protocol than HTTP/1.1 is spoken here")
        except httptools.HttpParserError as error:
            # Of what a callback has refused already, it is only the echo.
            self._refuse(400, f"this is no HTTP/1.1 request: {error}")
        if self._is_in_head and complete == self._complete:
            # The parser keeps a header that has not ended.
            self._head_bytes += len(data)
            self._check_head(self._head_bytes)
        if self._queue or self._refusal is not None:
            self._drive()

    def pause_writing(self) -> None:
        self._is_paused = True
        self._since = time.monotonic()

    def resume_writing(self) -> None:
        self._is_paused = False
        self._drive()

    def eof_received(self) -> bool:
        return False

    # ---- the parser's calls ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url, self._body = b"", []
        self._head_size = self._head_bytes = self._body_size = 0
        self._is_reading = self._is_in_head = True
        self._since = time.monotonic()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._add_to_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._add_to_head(len(name) + len(value))
        lowered = name.lower()
        if lowered == b"content-length":
            # The parser refuses what is no number.
            if value.isdigit() and int(value[:20]) > self._server.limits.body_bytes:
                self._refuse_body()
        elif lowered == b"content-encoding" and value.lower() != b"identity":
            self._refuse(415, "the body is encoded; send it plain")
        elif (
            lowered == b"expect" and value.lower() == b"100-continue"
            and self._refusal is None and not self._queue and self._busy is None
        ):  # fmt: skip
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_headers_complete(self) -> None:
        self._is_in_head = False

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        if self._body_size > self._server.limits.body_bytes:
            self._body = []
            self._refuse_body()
        elif self._refusal is None:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._is_reading = False
        self._complete += 1
        if self._refusal is not None:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        method = self._parser.get_method().decode("latin-1")
        path = self._url.decode("latin-1")
        self._queue.append(Request(self, method, path, body, self._parser.should_keep_alive()))
        if len(self._queue) >= _PIPELINED_MAX and not self._is_full:
            self._is_full = True
            self._transport.pause_reading()

    # ---- answers --------------------------------------------------------------------------------

    def _add_to_head(self, count: int) -> None:
        self._head_size += count
        self._check_head(self._head_size)

    def _check_head(self, size: int) -> None:
        if size > self._server.limits.head_bytes:
            self._refuse(431, f"the head is longer than {self._server.limits.head_bytes} bytes")

    def _refuse_body(self) -> None:
        self._refuse(
            413,
            f"the body is longer than {self._server.limits.body_bytes} bytes "
            "(--max-request-bytes)",
        )

    def _refuse(self, status: int, why: str) -> None:
        """The connection ends with this, behind what was asked before."""
        if self._refusal is None:
            self._refusal = (status, why)

    def _drive(self) -> None:
        """Hands requests over, one when the one before was answered."""
        if self._is_driving:
            return
        self._is_driving = True
        while self._queue and self._busy is None and not self._is_paused:
            self._busy = request = self._queue.popleft()
            self._server.handle(request)
        self._is_driving = False
        if self._queue or self._busy is not None:
            return
        if self._refusal is not None:
            self._send_refusal()
        elif self._is_full and not self._transport.is_closing():
            self._is_full = False
            self._transport.resume_reading()

    def _send_refusal(self) -> None:
        if self._transport.is_closing() or self._refusal is None:
            return
        status, why = self._refusal
        self._server.refused(status)
        body = self._server.error_body(why)
        head = self._server.head(status, JSON)
        self._transport.write(head + b"%d\r\nconnection: close\r\n\r\n" % len(body) + body)
        self._transport.close()

    def _reply(self, request: Request, status: int, body: bytes, content_type: str) -> None:
        if self._busy is not request:
            return  # The connection has ended meanwhile.
        self._busy = None
        self._since = time.monotonic()
        is_last = not request.is_kept or self._server.is_draining
        end = b"%d\r\nconnection: close\r\n\r\n" if is_last else b"%d\r\n\r\n"
        self._transport.write(self._server.head(status, content_type) + end % len(body) + body)
        if is_last:
            self._queue.clear()
            self._transport.close()
        elif self._queue or self._is_full or self._refusal is not None:
            self._drive()

    # ---- ends -----------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Ends it if it takes too long."""
        limits, waited = self._server.limits, now - self._since
        if self._transport.is_closing() or self._is_paused:
            # Nobody takes the answer.
            if waited > limits.request_s:
                self._transport.abort()
        elif self._busy is None and self._is_reading:
            if waited > limits.request_s:
                self._refuse(408, f"the request took longer than {limits.request_s:g} s to come")
                self._send_refusal()
        elif self._busy is None and waited > limits.idle_s:
            self._transport.close()

    def drain(self) -> None:
        """Ends it once what was asked is answered."""
        if self._busy is None and not self._is_reading and not self._queue:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


__all__ = ["JSON", "HttpLimits", "HttpServer", "Request"]
