"""How loaded a replica is: what its engine said when it was last asked.

All loads are one Redis hash, ``LOADS``: replica id → JSON ``Load``. The prober
writes them; a replica that is removed, or whose process does not run, drops out.
For the charts every scrape is also pushed to the list of its minute
(``minute_list``), JSON ``LoadPoint`` each, from which the samples are made.
"""

from __future__ import annotations

import msgspec

LOADS = "sluice:loads"
# When each replica was probed last: a Redis hash, replica id → Unix time. It says when
# the next probe is due, also of an engine that has no metrics.
PROBED = "sluice:probed"
PROBED_EVERY_S = 5.0
# Long enough for a scheduler that was away for a while to catch up.
MINUTE_KEPT_S = 900


def minute_list(minute: int) -> str:
    """The list of the scrapes in a minute, counted in minutes since 1970."""
    return f"sluice:loads#minute:{minute}"


class Load(msgspec.Struct, frozen=True, omit_defaults=True):
    """One scrape. None is what the engine does not say.

    ``at`` is the Unix time of the scrape. ``kv_cache`` is the used share, 0 to 1.
    Tokens and ``ttft_seconds`` / ``ttft_count`` are counters since the engine's
    start, and the percentiles are those since then; ``tokens_per_s`` and ``ttft_ms``
    speak of the time since the previous scrape. With an ``error`` (a code, in words
    in ``detail``, standing since ``since``) nothing else is known but the percentiles
    of the last good one.
    """

    at: float
    running: float | None = None
    waiting: float | None = None
    kv_cache: float | None = None
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    ttft_seconds: float | None = None
    ttft_count: float | None = None
    ttft_p99_s: float | None = None
    gap_p99_s: float | None = None
    tokens_per_s: float | None = None
    ttft_ms: float | None = None
    error: str = ""
    detail: str = ""
    since: float = 0.0


class LoadPoint(msgspec.Struct, frozen=True, array_like=True):
    """What the charts need of one scrape."""

    replica_id: str
    running: float | None = None
    waiting: float | None = None
    kv_cache: float | None = None
    tokens_per_s: float | None = None
    ttft_ms: float | None = None


def load_decode(raw: bytes | None) -> Load | None:
    """A load as read from Redis; None for none and for an unreadable one."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=Load)
    except msgspec.DecodeError:
        return None
