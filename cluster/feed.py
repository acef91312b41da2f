"""Entries in Redis whose changes every gateway learns of within half a second.

A feed (``replicas``, ``keys``) is a set of named entries plus one change number.
Every write moves the number, remembers it as the entry's own, and publishes it;
a reader asks for the entries that moved since the number it last saw. Notices
may be lost, so readers also poll the number. A number that went backwards means
that Redis lost its data: the reader then forgets what it holds.

Names, for a feed ``f``: ``sluice:f:<id>`` is the entry, ``sluice:f#number`` the
change number, ``sluice:f#changes`` a sorted set of ids by their last number,
``sluice:f#complete`` the mark that every entry has been written, and
``sluice:f#notices`` the pub/sub channel.
"""

from __future__ import annotations

from typing import NamedTuple

REPLICAS = "replicas"
KEYS = "keys"


class FeedNames(NamedTuple):
    number: str
    changes: str
    complete: str
    notices: str
    prefix: str

    def entry(self, entry_id: str) -> str:
        return self.prefix + entry_id


def feed_names(feed: str) -> FeedNames:
    return FeedNames(
        number=f"sluice:{feed}#number",
        changes=f"sluice:{feed}#changes",
        complete=f"sluice:{feed}#complete",
        notices=f"sluice:{feed}#notices",
        prefix=f"sluice:{feed}:",
    )


# Every script takes the names as KEYS: entry, number, changes, notices. An equal
# write moves nothing, so that a reconcile may write everything again.

# Sets one field of a hash entry. ARGV: id, field, value. Returns 1 if it changed.
HASH_FIELD_PUT = """
if redis.call('HGET', KEYS[1], ARGV[2]) == ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
local n = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[3], n, ARGV[1])
redis.call('PUBLISH', KEYS[4], n)
return 1
"""

# Sets one field of a hash entry if it still is what the writer saw, for a field with
# many writers. ARGV: id, field, value seen ('' for none), value. Returns 1 if it was.
HASH_FIELD_SWAP = """
if (redis.call('HGET', KEYS[1], ARGV[2]) or '') ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
local n = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[3], n, ARGV[1])
redis.call('PUBLISH', KEYS[4], n)
return 1
"""

# Sets a whole string entry. ARGV: id, value. Returns 1 if it changed.
ENTRY_PUT = """
if redis.call('GET', KEYS[1]) == ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
local n = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[3], n, ARGV[1])
redis.call('PUBLISH', KEYS[4], n)
return 1
"""

# Removes an entry; readers learn of it like of any change. ARGV: id.
ENTRY_DELETE = """
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
local n = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[3], n, ARGV[1])
redis.call('PUBLISH', KEYS[4], n)
return 1
"""
