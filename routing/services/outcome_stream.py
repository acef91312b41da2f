"""The stream of outcomes in Redis, as the ingest reads and empties it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import redis

from cluster.live import redis_client
from routing.contracts import names
from routing.contracts.outcome import BATCH_DELETE

# At 64 KiB a batch, what is held in memory at a time is a few MiB.
ENTRIES_MOST = 64


class Entry(NamedTuple):
    id: str
    fields: Mapping[bytes, bytes]


class StreamRead(NamedTuple):
    """The oldest entries. ``epoch`` names the life of this Redis's data, ``end`` is
    the id of the last entry that was ever written in it."""

    epoch: str
    end: str
    entries: list[Entry]


def stream_read() -> StreamRead:
    """Raises ``redis.RedisError``."""
    pipeline = redis_client().pipeline(transaction=False)
    pipeline.set(names.OUTCOMES_EPOCH, secrets.token_hex(8), nx=True)
    pipeline.get(names.OUTCOMES_EPOCH)
    pipeline.xrange(names.OUTCOMES, count=ENTRIES_MOST)
    pipeline.xinfo_stream(names.OUTCOMES)
    _, epoch, entries, info = pipeline.execute(raise_on_error=False)
    if isinstance(entries, redis.RedisError):
        raise entries
    # Nothing was ever written: then there is no stream to ask about.
    end = b"0-0" if isinstance(info, redis.RedisError) else info["last-generated-id"]
    return StreamRead(
        epoch=epoch.decode("ascii", "replace")[:64],
        end=cast("bytes", end).decode(),
        entries=[Entry(id_.decode(), fields or {}) for id_, fields in entries],
    )


def stream_delete(entries: Sequence[Entry]) -> None:
    script = redis_client().register_script(BATCH_DELETE)
    keys = [names.OUTCOMES, names.OUTCOMES_BYTES]
    script(keys=keys, args=[entry.id for entry in entries])


def id_order(entry_id: str) -> tuple[int, int]:
    """Ids of entries compare as pairs of numbers, not as texts."""
    ms, _, number = entry_id.partition("-")
    return int(ms), int(number or 0)
