"""How an attempt on a replica can fail, and what follows from it."""

from __future__ import annotations

from typing import NamedTuple

from routing.gateway import errors
from routing.gateway.errors import Problem
from routing.gateway.upstream import Answer

SATURATED = (429, 503)


class Failure(NamedTuple):
    """``reason`` is a short stable word for metrics and outcomes; ``blames`` says
    whether it is the replica's fault, not the client's and not its being full."""

    reason: str
    problem: Problem
    retryable: bool = True
    retry_after_s: int = 0
    blames: bool = True

    @property
    def saturated(self) -> bool:
        return self.reason == "saturated"


def connect(detail: str) -> Failure:
    return Failure("connect", errors.upstream_error(f"cannot connect, {detail}"))


def reset(detail: str) -> Failure:
    return Failure("reset", errors.upstream_error(detail))


def in_band(detail: str, *, blames: bool = True) -> Failure:
    return Failure("in_band", errors.upstream_error(detail), blames=blames)


def broken(detail: str) -> Failure:
    """An answer that makes no sense; another replica may do better."""
    return Failure("broken", errors.upstream_error(detail))


def timed_out(what: str, *, blames: bool = True) -> Failure:
    """No retry: the next replica would start a request that may already be too late."""
    problem = errors.upstream_timeout(what)
    return Failure("timeout", problem, retryable=False, blames=blames)


def of_status(answer: Answer) -> Failure | None:
    """What a status of an engine means, None where the answer is passed on."""
    status = answer.status
    if status in SATURATED:
        return Failure(
            "saturated",
            errors.upstream_error(f"it answered {status}"),
            retry_after_s=_seconds(answer.retry_after),
            # A 503 that does not say when to come back is no sign of load.
            blames=status == 503 and not answer.retry_after,
        )
    if status in (401, 403):
        return Failure("auth", errors.upstream_auth(), retryable=False, blames=False)
    if status in (500, 502, 504):
        return Failure("status", errors.upstream_error(f"it answered {status}"))
    if status >= 500 or 300 <= status < 400:
        problem = errors.upstream_error(f"it answered {status}")
        return Failure("status", problem, retryable=False, blames=False)
    return None


def final(failures: list[Failure]) -> Problem:
    """What the client is told after the last attempt."""
    if all(failure.saturated for failure in failures):
        return errors.upstream_saturated(
            max(1, *(failure.retry_after_s for failure in failures))
        )
    return failures[-1].problem


def _seconds(raw: bytes) -> int:
    """A Retry-After in whole seconds, at most two minutes; 0 for anything else."""
    return min(int(raw), 120) if raw.isdigit() and len(raw) < 6 else 0
