"""Who watches what in this process, and the one producer that works for them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

Message = Mapping[str, Any]


class Outbox:
    """What waits to be sent to one page. Messages are numbered from one; a page that
    reads too slowly loses some, and sees so by the gap."""

    def __init__(self, most: int) -> None:
        self._waiting: asyncio.Queue[Message] = asyncio.Queue(most)
        self._seq = 0

    def put(self, message: Message) -> None:
        self._seq += 1
        if not self._waiting.full():
            self._waiting.put_nowait({**message, "seq": self._seq})

    async def next(self) -> Message:
        return await self._waiting.get()


class Watcher(Protocol):
    def offer(self, message: Message) -> None:
        """Take a message without waiting; one that is slow loses messages."""


class Hub:
    """Topics and their watchers, all on one event loop.

    ``produce`` is started with the first watcher and cancelled after the last.
    """

    def __init__(self, produce: Callable[[Hub], Awaitable[None]]) -> None:
        self._produce = produce
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._fresh: set[str] = set()
        self._task: asyncio.Future[None] | None = None

    @property
    def topics(self) -> list[str]:
        return list(self._watchers)

    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def join(self, topic: str, watcher: Watcher) -> None:
        self._watchers[topic].add(watcher)
        self._fresh.add(topic)
        if not self.busy:
            self._task = asyncio.ensure_future(self._produce(self))

    def fresh_take(self) -> set[str]:
        """The topics that got a watcher since the last call: it knows nothing yet."""
        fresh, self._fresh = self._fresh, set()
        return fresh

    def leave(self, topic: str, watcher: Watcher) -> None:
        self._watchers[topic].discard(watcher)
        if not self._watchers[topic]:
            del self._watchers[topic]
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    def tell(self, topic: str, message: Message) -> None:
        """Give a message to everyone who watches the topic."""
        for watcher in self._watchers.get(topic, ()):
            watcher.offer({**message, "topic": topic})
