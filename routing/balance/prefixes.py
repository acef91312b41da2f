"""What a replica has lately been sent, by which its KV cache can be guessed.

A prompt is a chain of hashes, one for each block, each over all that comes before it
(``hashing.chain_of``): two prompts that begin alike have the first hashes in common.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

# An engine that is used drops what nobody asked for in this time.
TTL_S = 600.0
# Of a replica; of 512 bytes each, about a million tokens.
BLOCKS = 10_000


class Prefixes:
    """The blocks of one replica, the latest last. Times are monotonic seconds."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: OrderedDict[int, float] = OrderedDict()

    def length(self, chain: Sequence[int], now: float) -> int:
        """How many blocks from the beginning on it has been sent."""
        seen, oldest = self._seen, now - TTL_S
        for count, block in enumerate(chain):
            if seen.get(block, oldest) <= oldest:
                return count
        return len(chain)

    def add(self, chain: Sequence[int], now: float) -> None:
        seen = self._seen
        for block in chain:
            seen[block] = now
            seen.move_to_end(block)
        while len(seen) > BLOCKS:
            seen.popitem(last=False)

    def clear(self) -> None:
        """It was started anew, or may have been."""
        self._seen.clear()
