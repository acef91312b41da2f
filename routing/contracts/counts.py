"""Exact counts of requests per minute, as each gateway keeps and sends them.

A gateway holds one absolute figure per cell for the life of its process and writes
the cells that changed into one Redis hash of its own, a field per cell. Absolute
figures may be written and read any number of times: nothing is counted twice, and
after a loss in Redis the gateway writes again whatever was not acknowledged.

``sluice:counts:<gateway>`` holds, beside the cells, the field ``#seq``: the number of
the last write. ``sluice:counts#acks`` says, per gateway, up to which write the
database holds everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from routing.contracts.outcome import Ending

SEQ_FIELD = "#seq"


class Cell(NamedTuple):
    """What is counted apart. ``minute`` is whole Unix minutes of the request's end: an
    earlier one of the same hour while very many cells wait, a later one where the
    clock went back into a minute that is done. ``version`` served or was tried last;
    ``first_version`` was drawn with the probability ``share_bp`` in basis points, or
    ``chosen`` by the client. Empty texts: the request did not come so far."""

    minute: int
    model: str
    generation: int
    first_version: str
    share_bp: int
    chosen: bool
    version: str
    team: str
    key: str
    ending: Ending


class Figures(NamedTuple):
    """Sums over the requests of a cell. ``estimated`` counts the requests whose tokens
    are estimates; ``retries`` attempts beyond the first; ``ttft_count`` the requests
    that had content, over which ``ttft_ms`` sums."""

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    estimated: int = 0
    duration_ms: int = 0
    ttft_ms: int = 0
    ttft_count: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


_encode = msgspec.json.Encoder().encode
_decode_cell = msgspec.json.Decoder(Cell).decode
_decode_figures = msgspec.json.Decoder(Figures).decode


class Counts(NamedTuple):
    """All cells of one gateway as they stood after its write ``seq``.

    ``foreign`` counts fields that no gateway wrote; ``raw`` holds the others as they
    were read."""

    seq: int
    cells: dict[Cell, Figures]
    foreign: int
    raw: Mapping[Cell, tuple[bytes, bytes]]


def counts_fields(
    seq: int, cells: Mapping[Cell, list[int]]
) -> dict[str | bytes, int | bytes]:
    """The fields of one write; the figures are in the order of ``Figures``."""
    fields: dict[str | bytes, int | bytes] = {
        _encode(cell): _encode(figures) for cell, figures in cells.items()
    }
    fields[SEQ_FIELD] = seq
    return fields


def counts_read(fields: Mapping[bytes, bytes]) -> Counts:
    """A whole hash as a reader sees it."""
    cells: dict[Cell, Figures] = {}
    raw: dict[Cell, tuple[bytes, bytes]] = {}
    seq = foreign = 0
    for name, value in fields.items():
        try:
            if name == SEQ_FIELD.encode():
                seq = int(value)
                continue
            cell = _decode_cell(name)
            cells[cell] = _decode_figures(value)
            raw[cell] = (name, value)
        except ValueError:
            foreign += 1
    return Counts(seq, cells, foreign, raw)


# Writes what changed, only while the mark of the epoch is still the one that the sender
# knows: in a Redis that lost its data everything has to be written again. KEYS: hash,
# set of gateways, epoch. ARGV: known epoch, gateway id, then field, value, … Returns -1
# where nothing was written.
COUNTS_WRITE = """
if redis.call('GET', KEYS[3]) ~= ARGV[1] then return -1 end
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
return 1
"""

# Removes fields that still hold what was read. KEYS: hash. ARGV: field, value, …
COUNTS_DELETE = """
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return redis.call('HLEN', KEYS[1])
"""
