"""The history of states: one row for each change, whoever looks and how often."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
import redis
from django.utils import timezone

from cluster import announce, live
from cluster.health import (
    Admin,
    Passive,
    PassiveAxis,
    Probe,
    ProbeAxis,
    Record,
)
from cluster.models import Replica, ReplicaTransition
from cluster.selectors import replica_timeline
from cluster.services import (
    replica_admin_set,
    transitions,
    transitions_prune,
    transitions_write,
)
from tests import services
from tests.cluster.conftest import Fleet

pytestmark = pytest.mark.django_db(transaction=True)


def write() -> list[str]:
    return transitions_write(now=timezone.now())


def told(replica: Replica) -> list[tuple[str, str, str]]:
    """Label, cause and speaker, the oldest first."""
    rows = reversed(replica_timeline(replica=replica))
    return [(row.label, row.cause, row.said_by) for row in rows]


def ejected(until: float) -> Callable[[Record, float], PassiveAxis]:
    return lambda record, now: PassiveAxis(
        Passive.EJECTED, now, now + until, 1, "hang", "d" * 900, "gateway-1"
    )


def test_each_change_is_a_row_with_who_said_it(fleet: Fleet) -> None:
    one = fleet.static("http://10.0.0.1:1")
    other = fleet.static("http://10.0.0.1:2", one.version)
    assert sorted(write()) == [one.id, other.id]
    for replica in (one, other):
        live.axis_write(replica.id, ProbeAxis(Probe.UP, 1.0))
    assert sorted(write()) == [one.id, other.id]
    live.passive_change(one.id, ejected(60.0))
    assert write() == [one.id]
    replica_admin_set(replica=other, state=Admin.DISABLED, actor=fleet.actor)
    # The other one is out by an admin's word, so the ejection is not carried out.
    assert sorted(write()) == [one.id, other.id]
    assert told(one) == [
        ("registered", "not_probed", "prober"),
        ("healthy", "probe_ok", "prober"),
        ("ejected", "hang", "gateway-1"),
        ("suspect", "hang", "gateway-1"),
    ]
    assert told(other)[-1] == ("disabled", "admin_disabled", "admin")
    assert len(replica_timeline(replica=one, limit=1)[0].detail) == 500


def test_looking_again_writes_nothing(fleet: Fleet) -> None:
    replica = fleet.static("http://10.0.0.1:1")
    live.axis_write(replica.id, ProbeAxis(Probe.UP, 1.0))
    assert write() == [replica.id]
    assert write() == []
    live.redis_client().flushall()
    live.axis_write(replica.id, ProbeAxis(Probe.UP, 1.0))
    assert write() == []
    assert ReplicaTransition.objects.count() == 1


def test_what_changes_by_time_alone_is_seen(fleet: Fleet) -> None:
    one = fleet.static("http://10.0.0.1:1")
    other = fleet.static("http://10.0.0.1:2", one.version)
    for replica in (one, other):
        live.axis_write(replica.id, ProbeAxis(Probe.UP, 1.0))
    live.passive_change(one.id, ejected(60.0))
    write()
    before = PassiveAxis(Passive.EJECTED, 1.0, 2.0, 1, "hang")
    live.redis_client().hset(
        f"sluice:replicas:{one.id}", "passive", msgspec.json.encode(before)
    )
    assert write() == [one.id]
    assert told(one)[-1][0] == "half_open"


def test_pages_are_told_after_the_rows_are_there(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []

    def announced(message: announce.ReplicaChanged) -> None:
        seen.append((message["id"], ReplicaTransition.objects.count()))

    monkeypatch.setattr(transitions, "live_announce", announced)
    replica = fleet.static("http://10.0.0.1:1")
    write()
    assert seen == [(replica.id, 1)]


def test_two_at_once_write_once(fleet: Fleet) -> None:
    fleet.static("http://10.0.0.1:1")
    live.redis_client().set("sluice:transitions#lock", "1", px=5_000)
    assert write() == []
    live.redis_client().delete("sluice:transitions#lock")
    assert len(write()) == 1


def test_without_redis_there_is_nothing_to_note(
    fleet: Fleet, valkey_server: services.Valkey
) -> None:
    fleet.static("http://10.0.0.1:1")
    valkey_server.kill()
    try:
        with pytest.raises(redis.RedisError):
            write()
    finally:
        valkey_server.start()
    assert ReplicaTransition.objects.count() == 0


def test_after_thirty_days_all_but_the_last_word_are_forgotten(fleet: Fleet) -> None:
    replica = fleet.static("http://10.0.0.1:1")
    now = timezone.now()
    for days, label in ((40, "down"), (35, "healthy"), (31, "down")):
        ReplicaTransition.objects.create(
            replica=replica, at=now - timedelta(days=days), label=label, cause="x"
        )
    assert transitions_prune(now=now) == 2
    assert [row.label for row in replica_timeline(replica=replica)] == ["down"]
    assert transitions_prune(now=now) == 0
