"""Entries in Redis whose changes every gateway learns of within half a second.

A feed (``replicas``, ``keys``) is a set of named entries plus one change number.
Every write moves the number, remembers it as the entry's own, and publishes it;
a reader asks for the entries that moved since the number it last saw. Notices
may be lost, so readers also poll the number. A number that went backwards means
that Redis lost its data: the reader then forgets what it holds.

Names, for a feed ``f``: ``sluice:f:<id>`` is the entry, ``sluice:f#number`` the
change number, ``sluice:f#changes`` a sorted set of ids by their last number,
``sluice:f#complete`` the mark that every entry has been written, to the server whose
run id it holds, ``sluice:f#restoring`` the mark of that being done, and
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
    restoring: str
    notices: str
    prefix: str

    def entry(self, entry_id: str) -> str:
        return self.prefix + entry_id


def feed_names(feed: str) -> FeedNames:
    return FeedNames(
        number=f"sluice:{feed}#number",
        changes=f"sluice:{feed}#changes",
        complete=f"sluice:{feed}#complete",
        restoring=f"sluice:{feed}#restoring",
        notices=f"sluice:{feed}#notices",
        prefix=f"sluice:{feed}:",
    )


# Every script takes the names as KEYS: entry, number, changes, notices. An equal
# write moves nothing, so that a reconcile may write everything again.

# A number that is missing starts anew, lower the later it is: also when many entries
# are written at once, it never climbs to what a reader saw before the loss.
_MOVE = """
local function move(number, changes, id)
  if redis.call('EXISTS', number) == 0 then
    local t = redis.call('TIME')
    redis.call('SET', number, string.format('%.0f', 9e15 - (t[1] * 1e6 + t[2])))
  end
  local n = redis.call('INCR', number)
  redis.call('ZADD', changes, string.format('%.0f', n), id)
  return n
end
"""

# Sets one field of a hash entry. ARGV: id, field, value. Returns 1 if it changed.
HASH_FIELD_PUT = (
    _MOVE
    + """
if redis.call('HGET', KEYS[1], ARGV[2]) == ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PUBLISH', KEYS[4], move(KEYS[2], KEYS[3], ARGV[1]))
return 1
"""
)

# Sets one field of a hash entry if it still is what the writer saw, for a field with
# many writers. ARGV: id, field, value seen ('' for none), value. Returns 1 if it was.
HASH_FIELD_SWAP = (
    _MOVE
    + """
if (redis.call('HGET', KEYS[1], ARGV[2]) or '') ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
redis.call('PUBLISH', KEYS[4], move(KEYS[2], KEYS[3], ARGV[1]))
return 1
"""
)

# Sets a whole string entry. ARGV: id, value. Returns 1 if it changed.
ENTRY_PUT = (
    _MOVE
    + """
if redis.call('GET', KEYS[1]) == ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('PUBLISH', KEYS[4], move(KEYS[2], KEYS[3], ARGV[1]))
return 1
"""
)

# Removes an entry; readers learn of it like of any change. ARGV: id.
ENTRY_DELETE = (
    _MOVE
    + """
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
redis.call('PUBLISH', KEYS[4], move(KEYS[2], KEYS[3], ARGV[1]))
return 1
"""
)

# Sets many string entries in one step. KEYS: number, changes, notices, then each
# entry; ARGV: the id and the value of each. Returns how many changed.
ENTRIES_PUT = (
    _MOVE
    + """
local changed, n = 0, 0
for i = 4, #KEYS do
  local id, value = ARGV[2 * i - 7], ARGV[2 * i - 6]
  if redis.call('GET', KEYS[i]) ~= value then
    redis.call('SET', KEYS[i], value)
    n = move(KEYS[1], KEYS[2], id)
    changed = changed + 1
  end
end
if changed > 0 then redis.call('PUBLISH', KEYS[3], n) end
return changed
"""
)
