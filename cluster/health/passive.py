"""Ejection as pure transitions of the axis ``passive``.

Several gateways write this axis. Each computes the next value from the one it saw
and writes it only if nobody was faster (``feed.HASH_FIELD_SWAP``); whoever loses
computes again. So two gateways that see the same trouble count it once.
"""

from __future__ import annotations

import msgspec

from cluster.health.record import Passive, PassiveAxis, Record

EJECT_FIRST_S = 30.0
EJECT_MOST_S = 300.0
JITTER_SHARE = 0.2
# One ejection is forgiven for each such time without another.
FORGIVE_S = 300.0
# So many ejections within so long, and it takes more than time to come back.
QUARANTINE_COUNT = 3
QUARANTINE_WINDOW_S = 600.0
# A suspicion that nobody confirms ends by itself: who raised it may be gone.
SUSPECT_S = 20.0


def passive_of(record: Record) -> PassiveAxis | None:
    """The axis, unless it speaks of an earlier process."""
    axis = record.passive
    if axis is None or record.is_stale(axis):
        return None
    return axis


def count_at(axis: PassiveAxis | None, now: float) -> int:
    """The n of the last ejection, less one for every healthy five minutes."""
    if axis is None:
        return 0
    if axis.state is not Passive.IN:
        return axis.count
    return max(0, axis.count - int(max(0.0, now - axis.since) // FORGIVE_S))


def ejected(
    before: PassiveAxis | None,
    *,
    cause: str,
    detail: str,
    said_by: str,
    process_since: float,
    jitter: float,
    now: float,
) -> PassiveAxis:
    """Out of rotation for 30 s × n; ``jitter`` between 0 and 1 adds up to a fifth.

    An ejection that is still running stands as it is: evidence that was under way
    when it began is not a second one. It is never shortened. The third one within
    ten minutes is a quarantine.
    """
    same_process = before is not None and before.process_since == process_since
    if before is not None and same_process:
        if before.state is Passive.QUARANTINED:
            return before
        if before.state is Passive.EJECTED and now < before.until:
            return before
    times = before.ejections if before is not None else ()
    times = (*(t for t in times if now - QUARANTINE_WINDOW_S < t <= now), now)
    count = count_at(before, now) + 1
    length_s = min(EJECT_FIRST_S * count, EJECT_MOST_S) * (1 + JITTER_SHARE * jitter)
    quarantined = len(times) >= QUARANTINE_COUNT
    return PassiveAxis(
        state=Passive.QUARANTINED if quarantined else Passive.EJECTED,
        since=now,
        until=0.0 if quarantined else round(now + length_s, 3),
        count=count,
        cause=cause,
        detail=detail,
        said_by=said_by,
        ejections=times,
        process_since=process_since,
    )


def recovered(before: PassiveAxis, *, was_out: bool, now: float) -> PassiveAxis:
    """A request went well after the ejection's time. ``was_out`` is false for one
    that stayed in rotation all along: it needs no slow start."""
    if before.state is not Passive.EJECTED or now < before.until:
        return before
    return PassiveAxis(
        Passive.IN,
        since=now,
        count=before.count,
        ejections=before.ejections,
        recovered_at=now if was_out else 0.0,
        process_since=before.process_since,
    )


def readmitted(before: PassiveAxis, *, now: float) -> PassiveAxis:
    """Somebody vouched for it, deep probes or an admin: in again, with a clean sheet
    but for the length of a next ejection."""
    if before.state is Passive.IN:
        return before
    return PassiveAxis(
        Passive.IN,
        since=now,
        count=before.count,
        recovered_at=now,
        process_since=before.process_since,
    )


def passive_readmitted(record: Record, now: float) -> PassiveAxis | None:
    """``readmitted`` for a record; None where requests found no fault."""
    passive = passive_of(record)
    return passive and readmitted(passive, now=round(now, 3))


def suspected(
    before: PassiveAxis | None,
    *,
    cause: str,
    detail: str,
    said_by: str,
    process_since: float,
    now: float,
) -> PassiveAxis:
    """Not chosen while another is there; nothing that is out is touched."""
    if before is None or before.process_since != process_since:
        before = PassiveAxis(Passive.IN, now, process_since=process_since)
    if before.state in (Passive.EJECTED, Passive.QUARANTINED):
        return before
    return PassiveAxis(
        Passive.SUSPECT,
        since=now,
        until=round(now + SUSPECT_S, 3),
        count=count_at(before, now),
        cause=cause,
        detail=detail,
        said_by=said_by,
        ejections=before.ejections,
        process_since=process_since,
    )


def cleared(before: PassiveAxis, *, now: float) -> PassiveAxis:
    """It sends again: the suspicion was wrong."""
    if before.state is not Passive.SUSPECT:
        return before
    return msgspec.structs.replace(
        before, state=Passive.IN, since=now, until=0.0, cause="", detail="", said_by=""
    )


def later(one: PassiveAxis | None, other: PassiveAxis | None) -> PassiveAxis | None:
    """Of two words on the same replica the newer one, for a gateway that could not
    reach Redis; an ejection is not shortened by an equally old word."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda axis: (axis.since, axis.until))
