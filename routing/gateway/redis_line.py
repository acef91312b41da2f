"""A single connection to Redis that never comes back by itself.

A client with a pool connects anew without a word. Whoever must know that everything
sent so far went to the same server, in order, holds a line: any error ends it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import redis.asyncio
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from routing.gateway.redis_link import ANSWER_S

Argument = str | int | bytes


class RedisLine:
    """Closed at first."""

    def __init__(self, url: str) -> None:
        self._pool = redis.asyncio.ConnectionPool.from_url(
            url or "redis://127.0.0.1:0",
            # Ours are the timeouts of ``call``: the library's may swallow that the
            # task is cancelled (``asyncio.wait_for`` before Python 3.12).
            socket_timeout=None,
            socket_connect_timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 0),
        )
        self._connection: AbstractConnection | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    async def open(self) -> None:
        """Raises one of ``REDIS_ERRORS`` where nobody answers."""
        # The library leaves this one untyped.
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(ANSWER_S):
                await connection.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection

    async def call(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """All of them in one go, and their answers. Any error closes the line."""
        connection, self._connection = self._connection, None
        assert connection is not None
        try:
            async with asyncio.timeout(ANSWER_S):
                packed = connection.pack_commands(commands)
                await connection.send_packed_command(packed, check_health=False)
                answers = [await connection.read_response() for _ in commands]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection
        return answers

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)
