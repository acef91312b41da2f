"""From two scrapes in a row to what happened between them."""

from __future__ import annotations

import msgspec

from cluster.engines.scrape import Scrape
from cluster.health.load import Load


def load_next(before: Load | None, scrape: Scrape, now: float) -> Load:
    """The load that this scrape tells; rates where an earlier one is known.

    A counter that is lower than before belongs to an engine that was restarted
    meanwhile: what it shows is what it did since.
    """
    load = Load(at=now, **msgspec.structs.asdict(scrape))
    if before is None or before.error or now <= before.at:
        return load
    tokens = _increase(before.generated_tokens, load.generated_tokens)
    count = _increase(before.ttft_count, load.ttft_count)
    seconds = load.ttft_seconds
    if seconds is not None and not _restarted(before.ttft_count, load.ttft_count):
        seconds = _increase(before.ttft_seconds, seconds)
    return msgspec.structs.replace(
        load,
        tokens_per_s=None if tokens is None else tokens / (now - before.at),
        ttft_ms=None if seconds is None or not count else 1000 * seconds / count,
    )


def load_failed(before: Load | None, reason: str, detail: str, now: float) -> Load:
    """The load after a scrape that found nothing; ``since`` is when that began."""
    same = before is not None and before.error == reason
    since = before.since if before and same else now
    return Load(
        at=now,
        # What was usual counts above all when it is silent.
        ttft_p99_s=before.ttft_p99_s if before else None,
        gap_p99_s=before.gap_p99_s if before else None,
        error=reason,
        detail=detail,
        since=since,
    )


def _restarted(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _increase(before: float | None, after: float | None) -> float | None:
    if before is None or after is None:
        return None
    return after if after < before else after - before
