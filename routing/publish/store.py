"""The published snapshot in Redis: body first, then number, never backwards."""

from __future__ import annotations

from cluster.live import redis_client
from routing.contracts import names

# KEYS: body, revision, notices. ARGV: epoch, revision, body. Redis runs a script
# as one step, but a restart may lose its tail: the body still goes first, so that
# a number never stands without its body.
_PUT = """
local epoch, revision = string.match(redis.call('GET', KEYS[2]) or '0:0', '(%d+):(%d+)')
epoch, revision = tonumber(epoch), tonumber(revision)
local e, r = tonumber(ARGV[1]), tonumber(ARGV[2])
if e < epoch or (e == epoch and r < revision) then return 0 end
redis.call('SET', KEYS[1], ARGV[3])
redis.call('SET', KEYS[2], ARGV[1] .. ':' .. ARGV[2])
redis.call('PUBLISH', KEYS[3], ARGV[1] .. ':' .. ARGV[2])
return 1
"""


def held() -> tuple[int, int] | None:
    """(epoch, revision) that Redis holds, None when it holds no whole snapshot."""
    client = redis_client()
    pipeline = client.pipeline(transaction=False)
    pipeline.get(names.SNAPSHOT_REVISION)
    pipeline.exists(names.SNAPSHOT_BODY)
    revision, body = pipeline.execute()
    if revision is None or not body:
        return None
    epoch, _, number = revision.decode().partition(":")
    return int(epoch), int(number)


def put(epoch: int, revision: int, body: bytes) -> bool:
    """Store a snapshot; false when Redis already holds a newer one."""
    script = redis_client().register_script(_PUT)
    keys = [names.SNAPSHOT_BODY, names.SNAPSHOT_REVISION, names.SNAPSHOT_NOTICES]
    return bool(script(keys=keys, args=[epoch, revision, body]))
