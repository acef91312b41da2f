"""From readings to the probe axis: how many it takes to believe them."""

from __future__ import annotations

import msgspec

from cluster.health.passive import passive_of
from cluster.health.record import Admin, Passive, Probe, ProbeAxis, Process, Record

# An engine under load may miss a probe; a refused connection is no such accident.
DOWN_AFTER = 3
DOUBTFUL = frozenset({"timeout", "connection_lost"})
# One success is enough at first; after a failure the first may be luck.
UP_AFTER = 2
# A deep probe is a request of our own. It is worth its cost only where no real one
# has shown the same lately, and sooner where something is to be decided.
DEEP_EVERY_S = 60.0
RETRY_S = 10.0
QUARANTINED_EVERY_S = 5.0
QUARANTINE_SUCCESSES = 5
DEEP_DOWN_AFTER = 2
DEEP_PROBE_FAILED = "deep_probe_failed"
WARMUP_FAILED = "warmup_failed"
_FRESH = (Probe.UNKNOWN, Probe.LOADING, Probe.WARMING)
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


class Deep(msgspec.Struct, frozen=True):
    """What is kept between deep probes of one process; ``tried_at`` is Unix seconds."""

    process_since: float = 0.0
    failures: int = 0
    successes: int = 0
    tried_at: float = 0.0


def probe_next(
    before: ProbeAxis | None,
    streak: Streak,
    reading: Reading,
    *,
    process_since: float,
    now: float,
    serves: bool = False,
) -> tuple[ProbeAxis | None, Streak]:
    """The axis and the streak after one more reading.

    ``process_since`` is the start of the process that was asked, 0 for a static
    replica; what is known of an earlier process does not count. ``serves``: a gateway
    just had content from it, so that a missing answer proves nothing.
    """
    if before is not None and before.process_since != process_since:
        before = None
    if streak.process_since != process_since:
        streak = Streak(process_since)
    calm = Streak(process_since)
    if reading.state is Probe.UP:
        return _answered(before, streak, reading, process_since, now)
    was = before.state if before else Probe.UNKNOWN
    if reading.state is Probe.DOWN:
        if _still_starting(was, reading, process_since, now):
            reading = Reading(Probe.LOADING, "not_listening", "Does not listen yet.")
        elif reading.reason in DOUBTFUL and was is not Probe.DOWN:
            if serves:
                return before, streak
            failures = streak.failures + 1
            if failures < DOWN_AFTER:
                axis = _doubted(before, reading, failures, process_since, now)
                return axis, Streak(process_since, failures=failures)
    return _axis(before, reading, process_since, now), calm


def _answered(
    before: ProbeAxis | None,
    streak: Streak,
    reading: Reading,
    process_since: float,
    now: float,
) -> tuple[ProbeAxis | None, Streak]:
    """It says that it is well. Whoever has not served yet is warmed up first, and
    what a request refuted takes a request to prove."""
    calm = Streak(process_since)
    if before is not None and before.reason in (WARMUP_FAILED, DEEP_PROBE_FAILED):
        return before, calm
    was = before.state if before else Probe.UNKNOWN
    if was in _FRESH:
        warming = Reading(Probe.WARMING, "warming", "Its first request is under way.")
        return _axis(before, warming, process_since, now), calm
    successes = streak.successes + 1
    if was is Probe.DOWN and successes < UP_AFTER:
        return before, Streak(process_since, successes=successes)
    return _axis(before, reading, process_since, now), calm


def _doubted(
    before: ProbeAxis | None,
    reading: Reading,
    failures: int,
    process_since: float,
    now: float,
) -> ProbeAxis | None:
    """Suspect, if it was up; else what it was."""
    if before is None or before.state not in (Probe.UP, Probe.SUSPECT):
        return before
    detail = f"{reading.detail} ({failures} of {DOWN_AFTER})"
    doubted = Reading(Probe.SUSPECT, reading.reason, detail)
    return _axis(before, doubted, process_since, now)


# Deep probes: one real request ------------------------------------------------


def deep_due(record: Record, deep: Deep, *, served_at: float, now: float) -> bool:
    """Whether a deep probe has something to decide now.

    ``served_at`` is when a gateway last had content from the replica, 0 for never;
    times are Unix seconds by one clock. One that people took out is left in peace.
    """
    admin, process, probe = record.admin, record.process, record.probe
    if admin is not None and admin.state is not Admin.ENABLED:
        return False
    if process is not None and process.state is not Process.RUNNING:
        return False
    if probe is None or record.is_stale(probe):
        return False
    tried_s = now - deep.tried_at
    if deep.process_since != probe.process_since:
        tried_s = float("inf")
    if is_warming(probe):
        return tried_s >= RETRY_S
    if probe.state is Probe.DOWN:
        return probe.reason == DEEP_PROBE_FAILED and tried_s >= RETRY_S
    if probe.state not in (Probe.UP, Probe.SUSPECT):
        return False
    passive = passive_of(record)
    if passive is not None and passive.state is Passive.QUARANTINED:
        return tried_s >= QUARANTINED_EVERY_S
    if deep.failures and tried_s != float("inf"):
        return tried_s >= RETRY_S
    return tried_s >= DEEP_EVERY_S and now - served_at >= DEEP_EVERY_S


def is_warming(probe: ProbeAxis) -> bool:
    """Whether a first request has to show that it serves at all."""
    return probe.state is Probe.WARMING or probe.reason == WARMUP_FAILED


def deep_next(
    before: ProbeAxis, deep: Deep, reading: Reading, *, now: float
) -> tuple[ProbeAxis, Deep]:
    """The axis and what is kept, after a real request of ours went like this."""
    good = reading.state is Probe.UP
    same = deep.process_since == before.process_since
    after = Deep(
        before.process_since,
        failures=0 if good else (deep.failures if same else 0) + 1,
        successes=(deep.successes if same else 0) + 1 if good else 0,
        tried_at=now,
    )
    since = before.process_since
    if is_warming(before):
        if good:
            return _axis(before, reading, since, now), msgspec.structs.replace(
                after, successes=0
            )
        failed = Reading(Probe.LOADING, WARMUP_FAILED, reading.detail)
        return _axis(before, failed, since, now), after
    if before.state is Probe.DOWN:
        proven = good and after.successes >= UP_AFTER
        axis = _axis(before, reading, since, now) if proven else before
        return axis, after
    if not good and after.failures >= DEEP_DOWN_AFTER:
        failed = Reading(Probe.DOWN, DEEP_PROBE_FAILED, reading.detail)
        return _axis(before, failed, since, now), after
    return before, after


def _still_starting(
    was: Probe, reading: Reading, process_since: float, now: float
) -> bool:
    """Whether a refusal only says that the engine has not opened its port yet."""
    fresh = was in _FRESH
    in_time = process_since > 0 and now - process_since < START_LIMIT_S
    return reading.reason == "refused" and fresh and in_time


def _axis(
    before: ProbeAxis | None, reading: Reading, process_since: float, now: float
) -> ProbeAxis:
    since = before.since if before and before.state is reading.state else now
    return ProbeAxis(
        reading.state, since, reading.reason, reading.detail, process_since
    )
