"""The bench's own client: prepared bytes out, whole answers in, little in between."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import httptools

from tests.bench.candidates import MODEL, Target

CONNECTIONS = 16
# With 90 numbered words an answer's body is 600 bytes long, give or take a few.
WHOLE_TOKENS = 90
PATH = "/v1/chat/completions"
# How long answers that are still out are waited for.
_DRAIN_S = 5


def body(*, stream: bool, tokens: int) -> str:
    content = "Explain load balancing in a few words, please."
    value = {
        "model": MODEL,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": tokens,
        "stream": stream,
    }
    return json.dumps(value)


def request(target: Target, *, stream: bool, tokens: int) -> bytes:
    sent = body(stream=stream, tokens=tokens)
    return (
        f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{target.port}\r\n"
        f"authorization: Bearer {target.key}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(sent)}\r\n\r\n{sent}"
    ).encode()


class Client(asyncio.Protocol):
    """One kept-alive connection with at most one request on it.

    ``answered`` is called with the client and whether the answer was good and
    whole, once for each request.
    """

    def __init__(self, answered: Callable[[Client, bool], None]) -> None:
        self.answered = answered
        self.asked_at = 0.0
        self.busy = False
        self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.parser: Any = httptools.HttpResponseParser(self)

    def ask(self, data: bytes, asked_at: float) -> None:
        self.busy = True
        self.asked_at = asked_at
        self.tail = b""
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, part: bytes) -> None:
        self.tail = part

    def on_message_complete(self) -> None:
        self.busy = False
        good = self.parser.get_status_code() == 200
        whole = self.tail.endswith((b"}", b"data: [DONE]\n\n"))
        self.answered(self, good and whole)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.busy:
            self.busy = False
            self.answered(self, False)


async def connect(
    target: Target, answered: Callable[[Client, bool], None], count: int
) -> list[Client]:
    loop = asyncio.get_running_loop()

    async def one() -> Client:
        _, client = await loop.create_connection(
            lambda: Client(answered), "127.0.0.1", target.port
        )
        return client

    return [await one() for _ in range(count)]


class Counted(NamedTuple):
    requests_per_s: float
    failed: int


async def closed_loop(target: Target, seconds: float) -> Counted:
    """As many whole answers as come, each connection asking again at once.

    Stands in for ``wrk`` where that is not installed.
    """
    sent = request(target, stream=False, tokens=WHOLE_TOKENS)
    done = failed = 0
    running = True

    def answered(client: Client, good: bool) -> None:
        nonlocal done, failed
        done += good
        failed += not good
        if running and not client.transport.is_closing():
            client.ask(sent, 0.0)

    clients = await connect(target, answered, CONNECTIONS)
    started = time.perf_counter()
    for client in clients:
        client.ask(sent, 0.0)
    await asyncio.sleep(seconds)
    counted = Counted(done / (time.perf_counter() - started), failed)
    running = False
    await _close(clients)
    return counted


class Latencies(NamedTuple):
    """Milliseconds, in the order of arrival."""

    values_ms: list[float]
    failed: int


class _Clocked:
    """Requests that are due at given times, over connections that are few."""

    def __init__(self, target: Target) -> None:
        self.sent = request(target, stream=False, tokens=WHOLE_TOKENS)
        self.free: deque[Client] = deque()
        self.late: deque[float] = deque()
        self.asked = 0
        self.values_ms: list[float] = []
        self.failed = 0

    def due(self, at: float) -> None:
        self.asked += 1
        if self.free:
            self.free.popleft().ask(self.sent, at)
        else:
            self.late.append(at)

    def answered(self, client: Client, good: bool) -> None:
        self.values_ms.append((time.perf_counter() - client.asked_at) * 1000)
        self.failed += not good
        if client.transport.is_closing():
            return
        if self.late:
            client.ask(self.sent, self.late.popleft())
        else:
            self.free.append(client)


async def paced(target: Target, rate_per_s: float, seconds: float) -> Latencies:
    """Latencies at a fixed rate, whatever the answers do (an open loop).

    Requests leave in small bursts, each millisecond those that are due; one that
    finds no free connection waits for it, and its waiting counts. What has not
    been answered some seconds after the end has failed.
    """
    clocked = _Clocked(target)
    clients = await connect(target, clocked.answered, CONNECTIONS * 4)
    clocked.free.extend(clients)
    started = time.perf_counter()
    while (now := time.perf_counter()) < started + seconds:
        while clocked.asked < int((now - started) * rate_per_s):
            clocked.due(now)
        await asyncio.sleep(0.001)
    for _ in range(int(_DRAIN_S / 0.005)):
        if len(clocked.values_ms) >= clocked.asked:
            break
        await asyncio.sleep(0.005)
    unanswered = clocked.asked - len(clocked.values_ms)
    latencies = Latencies(clocked.values_ms, clocked.failed + unanswered)
    await _close(clients)
    return latencies


class Streams:
    """A number of streams that stay open: each that ends is asked for again."""

    def __init__(self, target: Target, *, tokens: int) -> None:
        self.target = target
        self.sent = request(target, stream=True, tokens=tokens)
        self.completed = 0
        self.failed = 0
        self.running = True
        self.clients: list[Client] = []

    def _answered(self, client: Client, good: bool) -> None:
        if not self.running:
            return
        self.completed += good
        self.failed += not good
        if not client.transport.is_closing():
            client.ask(self.sent, 0.0)

    async def open(self, count: int, *, over_s: float) -> None:
        """Starts them evenly spread, so that their chunks do not come in step."""
        self.clients = await connect(self.target, self._answered, count)
        started = time.perf_counter()
        for index, client in enumerate(self.clients):
            wait_s = started + over_s * index / count - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            client.ask(self.sent, 0.0)

    async def close(self) -> None:
        self.running = False
        await _close(self.clients)


async def _close(clients: list[Client]) -> None:
    for client in clients:
        client.transport.abort()
    # One more turn, in which the loop really closes them.
    await asyncio.sleep(0)
