"""From readings to the probe axis: how many it takes to believe them."""

from __future__ import annotations

import msgspec

from cluster.health.record import Probe, ProbeAxis

# An engine under load may miss a probe; a refused connection is no such accident.
DOWN_AFTER = 3
DOUBTFUL = frozenset({"timeout", "connection_lost"})
# One success is enough at first; after a failure the first may be luck.
UP_AFTER = 2
# Engines that only listen once the model is loaded get this long to load it.
START_LIMIT_S = 600.0


class Reading(msgspec.Struct, frozen=True):
    """What one answer, or its absence, says of a replica.

    ``reason`` is a stable code, ``detail`` the evidence. A reading never depends on
    the clock, so that the same trouble reads the same every time.
    """

    state: Probe
    reason: str = ""
    detail: str = ""


class Streak(msgspec.Struct, frozen=True):
    """Readings in a row that did not change the state yet, of one process."""

    process_since: float = 0.0
    failures: int = 0
    successes: int = 0


def probe_next(
    before: ProbeAxis | None,
    streak: Streak,
    reading: Reading,
    *,
    process_since: float,
    now: float,
) -> tuple[ProbeAxis | None, Streak]:
    """The axis and the streak after one more reading.

    ``process_since`` is the start of the process that was asked, 0 for a static
    replica; what is known of an earlier process does not count.
    """
    if before is not None and before.process_since != process_since:
        before = None
    if streak.process_since != process_since:
        streak = Streak(process_since)
    was = before.state if before else Probe.UNKNOWN
    calm = Streak(process_since)
    if reading.state is Probe.UP:
        successes = streak.successes + 1
        if was is Probe.DOWN and successes < UP_AFTER:
            return before, Streak(process_since, successes=successes)
    elif reading.state is Probe.DOWN:
        if _still_starting(was, reading, process_since, now):
            reading = Reading(Probe.LOADING, "not_listening", "Does not listen yet.")
        elif reading.reason in DOUBTFUL and was is not Probe.DOWN:
            failures = streak.failures + 1
            if failures < DOWN_AFTER:
                return before, Streak(process_since, failures=failures)
    return _axis(before, reading, process_since, now), calm


def _still_starting(
    was: Probe, reading: Reading, process_since: float, now: float
) -> bool:
    """Whether a refusal only says that the engine has not opened its port yet."""
    fresh = was in (Probe.UNKNOWN, Probe.LOADING)
    in_time = process_since > 0 and now - process_since < START_LIMIT_S
    return reading.reason == "refused" and fresh and in_time


def _axis(
    before: ProbeAxis | None, reading: Reading, process_since: float, now: float
) -> ProbeAxis:
    since = before.since if before and before.state is reading.state else now
    return ProbeAxis(
        reading.state, since, reading.reason, reading.detail, process_since
    )
