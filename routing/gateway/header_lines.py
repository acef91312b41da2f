"""Header lines, each with its line end, as they go onto the wire."""

from __future__ import annotations

import functools
from urllib.parse import urlsplit

JSON = b"content-type: application/json\r\n"
TEXT = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n"
EVENT_STREAM = (
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\n"
    b"x-accel-buffering: no\r\n"
)


def header_lines(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


@functools.lru_cache(maxsize=4096)
def request_head(path: str, address: str) -> bytes:
    """The part of a request to a replica that is always the same."""
    return (
        f"POST {path} HTTP/1.1\r\n"
        f"host: {urlsplit(address).netloc}\r\n"
        "content-type: application/json\r\n"
        "accept: */*\r\n"
        "accept-encoding: identity\r\n"
    ).encode()


@functools.lru_cache(maxsize=4096)
def served_by(model: str, version: str, replica: str) -> bytes:
    """Who serves, as a client is told."""
    return (
        f"x-sluice-model: {model}\r\n"
        f"x-sluice-version: {version}\r\n"
        f"x-sluice-replica: {replica}\r\n"
        "x-sluice-queue-ms: 0\r\n"
    ).encode()


def trace_lines(headers: dict[bytes, bytes]) -> bytes:
    """The trace context goes on as it came."""
    if b"traceparent" not in headers:
        return b""
    lines = b"traceparent: %b\r\n" % headers[b"traceparent"]
    if b"tracestate" in headers:
        lines += b"tracestate: %b\r\n" % headers[b"tracestate"]
    return lines
