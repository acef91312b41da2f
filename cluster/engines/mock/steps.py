"""An answer as a script: bytes to write, each after a pause, and how it ends.

Scripts are pure functions of the request and the switches. ``connection`` plays
them; a script that runs out is an answer that came to its end.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import NamedTuple

from cluster.engines.mock import payloads

# More than this is written piece by piece, so that a slow reader is waited for.
_PIECE_BYTES = 65_536


class Stop(enum.Enum):
    """An ending other than the right one."""

    CUT = "cut"
    SILENCE = "silence"


class Step(NamedTuple):
    """``after_s`` seconds after the previous step, these bytes go out at once."""

    data: bytes
    after_s: float = 0.0
    tokens: int = 0


Script = Iterable[Step | Stop]


def head(
    status: int, headers: Mapping[str, str], *, length: int | None = None
) -> bytes:
    """The head of an answer; without a length its body comes in chunks."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if length is None:
        lines.append("transfer-encoding: chunked")
    else:
        lines.append(f"content-length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def page(
    body: bytes, *, status: int = 200, content_type: str = "application/json"
) -> Script:
    """An answer without faults, in one write."""
    start = head(status, {"content-type": content_type}, length=len(body))
    return (Step(start + body),)


def refusal(status: int, message: str) -> Script:
    return page(payloads.encode(payloads.error(status, message)), status=status)


def pieces(data: bytes, sizes: Iterator[int] | None = None) -> Iterator[bytes]:
    """The data in pieces of these sizes; at least one, which may be empty.

    Odd sizes are for the last part of large data only, or it would take for ever.
    """
    position = 0
    while True:
        size = _PIECE_BYTES
        if sizes is not None and len(data) - position <= _PIECE_BYTES:
            size = next(sizes)
        yield data[position : position + size]
        position += size
        if position >= len(data):
            return
