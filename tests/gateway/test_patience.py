"""Silence of an engine that is known to be slow: it takes longer to mean something."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from cluster.health import Passive, Probe, ProbeAxis, Record
from routing.balance.state import ReplicaState, ReplicaStates
from routing.gateway.passive import PassiveHealth
from routing.gateway.redis_link import RedisLink
from routing.gateway.standings import Standings


def never(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    raise AssertionError("nothing is written while Redis is away")


@pytest.mark.parametrize(
    ("hang_after_s", "silent_s", "state"),
    [
        (30.0, 29.9, None),
        (30.0, 30.1, Passive.SUSPECT),
        (30.0, 40.1, Passive.EJECTED),
        (75.0, 74.9, None),
        (75.0, 75.1, Passive.SUSPECT),
        (75.0, 85.1, Passive.EJECTED),
    ],
)
def test_a_silent_replica_is_given_its_own_time(
    hang_after_s: float, silent_s: float, state: Passive | None
) -> None:
    states, now = ReplicaStates(), time.monotonic()
    states.keep({"m": ["slow", "other"]})
    standings = Standings(states)
    standings.records = {
        name: Record(probe=ProbeAxis(Probe.UP, 1.0)) for name in ("slow", "other")
    }
    standings.follow()
    slow, other = states.get("slow"), states.get("other")
    slow.hang_after_s = hang_after_s
    for _ in range(2):
        slow.stream_waits(now - silent_s)
    other.last_byte_at = now
    health = PassiveHealth(
        states, standings, RedisLink(""), "g1", random.Random(1), never
    )
    health.on_clock(now)
    assert "slow" in health.quiet
    passive = standings.record("slow").passive
    assert (passive.state if passive else None) is state


def test_a_replica_that_nobody_knows_to_be_slow_is_given_the_usual_time() -> None:
    assert ReplicaState("m").hang_after_s == 30.0
