"""The client side of HTTP/1.1: connections to replicas and their pool."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

from routing.gateway.clock import NEVER, Clock

HEAD_BYTES = 64 * 1024
# Engines on uvicorn close idle connections after 5 s.
IDLE_S = 4.0
# How long a finished stream may take to close its framing before the connection
# is given up.
TAIL_S = 2.0
# The most that one read takes from the socket, and so the most that one chunk adds
# to what a slow client has not taken yet.
READ_BYTES = 64 * 1024
# A body up to this size is joined to its head; copying a larger one costs more
# than handing over two buffers.
JOINED_BYTES = 16 * 1024

# What was sent and not acknowledged for ten seconds, or three probes of an idle
# connection, ends it. Linux knows all of them, other systems some.
_TCP_OPTIONS = {
    "TCP_USER_TIMEOUT": 10_000,
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 3,
}

# Every connection parses what it reads before it returns, so one buffer serves all.
_buffer = memoryview(bytearray(READ_BYTES))

_OUT_OF_REACH = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)

# Headers that speak of one connection, or that the gateway writes itself.
_DROPPED = {
    b"cache-control",
    b"connection",
    b"content-length",
    b"content-type",
    b"date",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-connection",
    b"server",
    b"set-cookie",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"x-accel-buffering",
    b"x-request-id",
}


class Answer:
    """The head of a replica's answer.

    ``lines`` are header lines to pass on, without those of the connection, the
    content type and what the gateway says itself.
    """

    __slots__ = (
        "content_type",
        "encoded",
        "length",
        "lines",
        "retry_after",
        "status",
    )

    def __init__(self) -> None:
        self.status = 0
        self.content_type = b""
        self.encoded = False
        self.length: int | None = None
        self.retry_after = b""
        self.lines = b""


class Owner(Protocol):
    """Whoever waits for an answer on a connection."""

    def upstream_data(self, answer: Answer, data: bytes, complete: bool) -> None:
        """The head is there, with what came of the body since the last call."""

    def upstream_lost(self, detail: str, untouched: bool) -> None:
        """The connection is gone. ``untouched``: it had been used before, and not
        one byte of this answer came, so the request may be sent again."""


class UpstreamConnection(asyncio.BufferedProtocol):
    """One connection to a replica; at most one request at a time."""

    def __init__(self, pool: Pool, address: str) -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._owner: Owner | None = None
        self._answer = Answer()
        self._parts: list[bytes] = []
        self._head_bytes = 0
        self._lines: list[bytes] = []
        self._head_done = False
        self._chunked = False
        self._complete = False
        self._reusable = True
        self._any_byte = False
        self._leaving = False
        self._paused = False
        self.address = address
        self.used = 0
        self.wake_at = NEVER

    # For the owner -----------------------------------------------------------

    def send(self, owner: Owner, head: bytes, body: bytes) -> None:
        self._owner = owner
        self._any_byte = self._complete = self._leaving = False
        self.used += 1
        self.wake_at = NEVER
        if len(body) < JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def abort(self) -> None:
        """Close at once, and say nothing more to the owner."""
        self._owner = None
        self.transport.abort()

    def leave(self) -> None:
        """The owner has all it wants; the end of the framing may still come."""
        self._owner = None
        self.resume()
        if not self._complete:
            self._leaving = True
            self.wake_at = self._pool.clock.after(TAIL_S)

    def pause(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    # The transport's calls ---------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._pool.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts what it reads; parsed before the next read."""
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._any_byte = True
        if self._owner is None and not self._leaving:
            self._fail("bytes that nobody asked for")
            return
        try:
            self._parser.feed_data(_buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"broken answer: {error}")
            return
        if self._head_done:
            self._deliver()
        elif not self._owner or self._head_over(nbytes):
            self._fail(
                "bytes nobody asked for" if not self._owner else "head too large"
            )

    def eof_received(self) -> None:
        """An answer without a length ends here; the parser must hear of it."""
        if self._head_done and self._answer.length is None and not self._chunked:
            self._reusable = False
            self._complete = True
            self._deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.closed(self)
        owner, self._owner = self._owner, None
        if owner is not None:
            detail = "connection reset" if exc else "connection closed"
            closed_idle = self.used > 1 and not self._any_byte
            if isinstance(exc, OSError) and exc.errno in _OUT_OF_REACH:
                # Nobody closed it: asking the same replica again would wait again.
                detail, closed_idle = "out of reach", False
            owner.upstream_lost(detail, closed_idle)

    def on_clock(self, now: float) -> None:
        self.wake_at = NEVER
        self.transport.abort()

    # The parser's calls ------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("a second answer")
        self._answer = Answer()
        self._lines = []
        self._head_bytes = 0
        self._head_done = self._chunked = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > HEAD_BYTES:
            raise ValueError("the header is too large")
        if self._head_done:
            return
        name = name.lower()
        if name == b"content-type":
            self._answer.content_type = value
        elif name == b"content-length":
            self._answer.length = int(value)
        elif name == b"transfer-encoding":
            self._chunked = True
        elif name == b"content-encoding":
            self._answer.encoded = value.lower() != b"identity"
        elif name == b"retry-after":
            self._answer.retry_after = value
        if name not in _DROPPED and not name.startswith(b"x-sluice-"):
            self._lines.append(b"%b: %b\r\n" % (name, value))

    def on_headers_complete(self) -> None:
        answer = self._answer
        answer.status = self._parser.get_status_code()
        answer.lines = b"".join(self._lines)
        # An interim answer (100, 103) is followed by the real one.
        self._head_done = answer.status >= 200

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if self._head_done:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()

    # -------------------------------------------------------------------------

    def _deliver(self) -> None:
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        owner = self._owner
        if not self._complete:
            if owner is not None:
                owner.upstream_data(self._answer, data, False)
            return
        self._owner = None
        self._head_done = False
        if self._reusable and not self.transport.is_closing():
            self.resume()
            self._pool.give_back(self)
        else:
            self.transport.abort()
        if owner is not None:
            owner.upstream_data(self._answer, data, True)

    def _head_over(self, received: int) -> bool:
        self._head_bytes += received
        return self._head_bytes > HEAD_BYTES

    def _fail(self, detail: str) -> None:
        owner, self._owner = self._owner, None
        self.transport.abort()
        if owner is not None:
            owner.upstream_lost(detail, False)


def _notice_silence(connection: socket.socket | None) -> None:
    """Let the kernel give a connection up whose other end is out of reach.

    A network that is cut sends no reset: without this, a request on a pooled
    connection would wait for its first content until the route's time is over,
    where after ten seconds it can still be tried on another replica.
    """
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Pool:
    """The open connections of this process to all replicas."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        # Ordered by the time of return: the last one is taken first, so that the
        # others grow old and close.
        self._idle: dict[str, dict[UpstreamConnection, None]] = {}
        self._all: set[UpstreamConnection] = set()
        self._tls: ssl.SSLContext | None = None

    def take(self, address: str) -> UpstreamConnection | None:
        """An idle connection, if one is open."""
        idle = self._idle.get(address)
        while idle:
            connection, _ = idle.popitem()
            if not connection.transport.is_closing():
                return connection
        return None

    async def connect(self, address: str) -> UpstreamConnection:
        """A fresh connection; raises ``OSError`` when the replica cannot be reached."""
        parts = urlsplit(address)
        secure = parts.scheme == "https"
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: UpstreamConnection(self, address),
            parts.hostname or "",
            parts.port or (443 if secure else 80),
            ssl=self._tls_context() if secure else None,
        )
        _notice_silence(connection.transport.get_extra_info("socket"))
        return connection

    def give_back(self, connection: UpstreamConnection) -> None:
        connection.wake_at = self.clock.now + IDLE_S
        self._idle.setdefault(connection.address, {})[connection] = None

    def opened(self, connection: UpstreamConnection) -> None:
        self._all.add(connection)
        self.clock.watch(connection)

    def closed(self, connection: UpstreamConnection) -> None:
        self._all.discard(connection)
        self.clock.forget(connection)
        idle = self._idle.get(connection.address)
        if idle is not None:
            idle.pop(connection, None)
            if not idle:
                del self._idle[connection.address]

    def close(self) -> None:
        for connection in list(self._all):
            connection.abort()

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls
