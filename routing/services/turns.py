"""One at a time, among all workers, for work that comes round every second."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.live import redis_client

# Longer than a turn takes; a dead worker keeps the others waiting no longer.
_TURN_MS = 10_000

_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""


@contextmanager
def turn(name: str) -> Iterator[bool]:
    """Whether it is this caller's turn; the others should come back later.

    It spares work and keeps workers free while a database makes everybody wait. It
    is no lock: what must not happen twice is decided in the database. Raises
    ``redis.RedisError``.
    """
    client = redis_client()
    token = secrets.token_hex(8)
    mine = bool(client.set(name, token, nx=True, px=_TURN_MS))
    try:
        yield mine
    finally:
        if mine:
            client.eval(_RELEASE, 1, name, token)
