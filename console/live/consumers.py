"""The websocket of a page: authenticate, join, forward. No queries, no rendering."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import redis
from channels.generic.websocket import AsyncWebsocketConsumer

from cluster.announce import live_group
from console.live.access import session_valid
from console.live.hub import Message, Outbox
from console.live.producer import hub
from console.live.topics import topics_parse

HEARTBEAT_S = 5.0
OUTBOX_MOST = 64
LOGGED_OUT, BAD_MESSAGE, TRY_LATER = 4401, 4400, 1013


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One page. ``topics`` is what it watches, ``tasks`` write and beat."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.topics, self.tasks = frozenset[str](), list[Any]()
        self.outbox, self.gone = Outbox(OUTBOX_MOST), False
        try:
            await super().__call__(scope, receive, send)
        except (redis.RedisError, OSError):
            # Without Redis there is nothing to forward: the page asks the views.
            if not self.gone:
                await send({"type": "websocket.close", "code": TRY_LATER})
        finally:
            self._leave()

    async def connect(self) -> None:
        await self.accept()
        if not await session_valid(self.scope["cookies"]):
            await self.close(LOGGED_OUT)
            return
        self.tasks = [asyncio.ensure_future(f()) for f in (self._write, self._beat)]

    async def receive(self, text_data: Any = None, bytes_data: Any = None) -> None:
        topics = topics_parse(text_data)
        if topics is None or not self.tasks:
            await self.close(BAD_MESSAGE)
            return
        for topic in self.topics - topics:
            await self.channel_layer.group_discard(live_group(topic), self.channel_name)
            hub.leave(topic, self)
        for topic in topics - self.topics:
            await self.channel_layer.group_add(live_group(topic), self.channel_name)
            hub.join(topic, self)
        self.topics = topics
        self.offer({"type": "subscribed"})

    async def live_message(self, event: dict[str, Any]) -> None:
        """What ``cluster.announce.live_announce`` sent to a group."""
        self.offer(event["message"])

    def offer(self, message: Message) -> None:
        self.outbox.put(message)

    async def _write(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                await self.send(json.dumps(await self.outbox.next()))

    async def _beat(self) -> None:
        while await session_valid(self.scope["cookies"]):
            self.offer({"type": "beat"})
            await asyncio.sleep(HEARTBEAT_S)
        await self.close(LOGGED_OUT)

    def _leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        for topic in self.topics:
            hub.leave(topic, self)

    async def disconnect(self, code: int) -> None:
        self.gone = True
        self._leave()
        for topic in self.topics:
            await self.channel_layer.group_discard(live_group(topic), self.channel_name)
        self.topics = frozenset()
