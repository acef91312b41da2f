"""Streamed answers: server-sent events in chunks, and what can go wrong in them."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any

from cluster.engines.mock import payloads, responses
from cluster.engines.mock.ask import Generation
from cluster.engines.mock.course import Mark, course, pause_s
from cluster.engines.mock.steps import Script, Step, Stop, head, pieces
from cluster.engines.mock.switches import Switches

# Sizes that fall into chunk heads, into JSON, between CR and LF, inside letters.
_ODD_CHUNKS = (1, 7, 211, 3, 640, 2, 97)
_ODD_WRITES = (5, 1, 333, 64, 2, 1200, 11)


def stream_script(g: Generation, s: Switches) -> Script:
    """Head, events in chunks, last chunk; or less of it."""
    wait_s = s.delay_headers_ms / 1000
    if s.hang or s.stall_after == -1:
        return (Step(b"", wait_s), Stop.SILENCE)
    if s.cut_after == -1:
        return (Step(b"", wait_s), Stop.CUT)
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    events = _until_told(g, s)
    if s.gzip:
        headers["content-encoding"] = "gzip"
        events = _compressed(events)
    start = Step(head(200, {**headers, **s.headers}), wait_s)
    frames = _odd_frames(events) if s.odd_fields else _frames(events)
    return itertools.chain((start,), frames)


def _until_told(g: Generation, s: Switches) -> Iterator[Step | Stop]:
    """The events of a stream, up to where it is told to stop."""
    if g.path == payloads.RESPONSES:
        yield from responses.events(g, s)
        return
    odd = s.odd_fields
    if g.path == payloads.CHAT and s.in_band_error != "before":
        yield _event(payloads.event(g, "", odd=odd, opening=True), odd)
    if s.opening_only:
        yield Stop.SILENCE
        return
    for at in course(g.tokens, s):
        if isinstance(at, Stop):
            yield at
            return
        if at is Mark.FAILURE:
            yield _event(payloads.error(500, payloads.TOLD_TO_FAIL), odd)
        elif at is Mark.FINISH:
            yield from _finish(g, s)
        else:
            value = payloads.event(g, payloads.token(at, odd=odd), odd=odd)
            if at == 0 and s.huge_body_bytes:
                value["padding"] = "x" * s.huge_body_bytes
            yield _event(value, odd)._replace(after_s=pause_s(at, s), tokens=1)
    if not s.no_done:
        yield _event(None, odd)


def _finish(g: Generation, s: Switches) -> Iterator[Step | Stop]:
    yield _event(payloads.event(g, None, odd=s.odd_fields), s.odd_fields)
    if s.silent_after_finish:
        yield Stop.SILENCE
    if g.usage_event and not s.no_usage:
        yield _event(payloads.usage_event(g, odd=s.odd_fields), s.odd_fields)


def _event(value: dict[str, Any] | None, odd: bool) -> Step:
    """One event; without a value the one that ends a stream."""
    data = b"[DONE]" if value is None else payloads.encode(value)
    return Step(b"data: " + data + (b"\r\n\r\n" if odd else b"\n\n"))


def _compressed(events: Script) -> Iterator[Step | Stop]:
    """The same events, gzip flushed after each."""
    gzipper = zlib.compressobj(wbits=31)
    for step in events:
        if isinstance(step, Stop):
            yield step
            return
        data = gzipper.compress(step.data) + gzipper.flush(zlib.Z_SYNC_FLUSH)
        yield step._replace(data=data)
    yield Step(gzipper.flush())


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _frames(events: Script) -> Iterator[Step | Stop]:
    """Each event one chunk and one write."""
    for step in events:
        if isinstance(step, Stop):
            yield step
            return
        first, *rest = pieces(_chunk(step.data))
        yield step._replace(data=first)
        yield from map(Step, rest)
    yield Step(b"0\r\n\r\n")


def _odd_frames(events: Script) -> Iterator[Step | Stop]:
    """Chunks that cut events, writes that cut and join chunks and events."""
    chunk_sizes = itertools.cycle(_ODD_CHUNKS)
    write_sizes = itertools.cycle(_ODD_WRITES)
    held = b""
    for index, step in enumerate(events):
        if isinstance(step, Stop):
            yield from map(Step, pieces(held, write_sizes))
            yield step
            return
        held += b"".join(map(_chunk, pieces(step.data, chunk_sizes)))
        if index % 3 == 2:
            # Leaves together with the next event, in one write.
            yield step._replace(data=b"")
            continue
        sizes = write_sizes if index % 3 == 1 else None
        first, *rest = pieces(held, sizes)
        yield step._replace(data=first)
        yield from map(Step, rest)
        held = b""
    yield from map(Step, pieces(held + b"0\r\n\r\n", write_sizes))
