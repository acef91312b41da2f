"""HTTP/1.1 on a raw protocol: requests in, scripts played out."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from typing import cast

import httptools

from cluster.engines.mock.counters import Ending
from cluster.engines.mock.engine import Engine, Request
from cluster.engines.mock.steps import Step, Stop


class Connection(asyncio.Protocol):
    """One client. Pipelined requests are answered one after the other.

    Exactly one ``Counters.end`` follows each ``begin``, whoever ends the request.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.loop = asyncio.get_running_loop()
        self.waiting: deque[Request] = deque()
        self.steps: Iterator[Step | Stop] | None = None
        self.step = Step(b"")
        self.counted = False
        self.keep_alive = True
        self.paused = False
        self.due: asyncio.Handle | None = None
        self.idle: asyncio.TimerHandle | None = None

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop has transport classes of its own.
        self.transport = cast(asyncio.Transport, transport)
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        if self.idle is not None:
            self.idle.cancel()
            self.idle = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.idle is not None:
            self.idle.cancel()
        if self.steps is not None:
            self._end(Ending.ABORTED)
        self.waiting.clear()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.steps is not None and self.due is None:
            self._advance()

    # The parser's side.

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers: dict[bytes, bytes] = {}
        self.body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self.engine.switches.refuse and not self.url.startswith(b"/mock"):
            self.transport.abort()
        elif b"expect" in self.headers:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        if self.transport.is_closing():
            return
        request = Request(
            method=self.parser.get_method(),
            path=self.url.partition(b"?")[0].decode("latin-1"),
            headers=self.headers,
            body=b"".join(self.body),
            keep_alive=self.parser.should_keep_alive(),
        )
        if self.steps is None:
            self._serve(request)
        else:
            self.waiting.append(request)

    # Playing.

    def _serve(self, request: Request) -> None:
        self.due = None
        self.counted = request.generates
        if self.counted:
            self.engine.counters.begin()
        self.keep_alive = request.keep_alive
        self.steps = iter(self.engine.answer(request))
        self._advance(at_once=True)

    def _advance(self, *, at_once: bool = False) -> None:
        """Plans the next step; those without a pause come in loop turns of their own,
        so that they travel apart."""
        assert self.steps is not None
        step = next(self.steps, None)
        if step is None:
            self._finished()
        elif isinstance(step, Stop):
            self._stop(step)
        else:
            self.step = step
            if step.after_s:
                self.due = self.loop.call_later(step.after_s, self._perform)
            elif at_once:
                self._perform()
            else:
                self.due = self.loop.call_soon(self._perform)

    def _stop(self, stop: Stop) -> None:
        if stop is Stop.CUT:
            self._end(Ending.CUT)
            self.transport.close()
        else:
            self.steps = itertools.repeat(stop)

    def _perform(self) -> None:
        self.due = None
        step = self.step
        if self.transport.is_closing():
            return
        if step.data:
            self.transport.write(step.data)
        self.engine.counters.tokens_sent += step.tokens
        if not self.paused:
            self._advance()

    def _end(self, ending: Ending) -> None:
        if self.due is not None:
            self.due.cancel()
            self.due = None
        self.steps = None
        if self.counted:
            self.engine.counters.end(ending)

    def _finished(self) -> None:
        self._end(Ending.COMPLETED)
        if not self.keep_alive:
            self.transport.close()
        elif self.waiting:
            # In a loop turn of its own, for any number may wait.
            self.counted = False
            self.steps = iter(())
            self.due = self.loop.call_soon(self._serve, self.waiting.popleft())
        elif self.engine.switches.keep_alive_s is not None:
            seconds = self.engine.switches.keep_alive_s
            self.idle = self.loop.call_later(seconds, self.transport.close)
