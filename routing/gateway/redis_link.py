"""The gateway's line to Redis, and what is known about its being there."""

from __future__ import annotations

import time

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

ANSWER_S = 1.0
# What a call may raise while Redis is away, restarts, or talks nonsense.
REDIS_ERRORS = (RedisError, OSError, TimeoutError)


class RedisLink:
    """``up`` and its times follow the last call of the poll. Times are Unix seconds;
    ``seen_at`` is when Redis last answered, 0 for never."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.up = False
        self.since = time.time()
        self.seen_at = 0.0
        self.client = redis.asyncio.Redis.from_url(
            url or "redis://127.0.0.1:0",
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            # Whoever asks decides what a failure means; nobody waits for retries.
            retry=Retry(NoBackoff(), 0),
            max_connections=32,
        )

    def answered(self) -> None:
        self.seen_at = time.time()
        if not self.up:
            self.up = True
            self.since = self.seen_at

    def failed(self) -> None:
        if self.up:
            self.up = False
            self.since = time.time()

    async def close(self) -> None:
        await self.client.aclose()
