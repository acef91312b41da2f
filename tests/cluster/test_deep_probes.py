"""Deep probes: warm-ups, engines whose health page lies, and the way back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections

from cluster import live
from cluster.actor import Actor
from cluster.health import (
    Admin,
    AdminAxis,
    Label,
    Passive,
    PassiveAxis,
    Probe,
    ProbeAxis,
    Process,
    ProcessAxis,
    Reading,
    Record,
    patience,
    state_merge,
)
from cluster.health.load import Load
from cluster.health.probing import Deep, Streak, deep_due, deep_next, probe_next
from cluster.health.served import SERVED
from cluster.models import AuditRecord, Replica
from cluster.services import (
    replica_admin_set,
    replicas_deep_probe,
    replicas_probe,
)
from cluster.services.deep_probes import token_read
from tests.cluster.conftest import Fleet, record
from tests.cluster.peers import Peer, http
from tests.fakes.engine import MockEngine

NOW = 1000.0
UP = ProbeAxis(Probe.UP, 1.0)
GOOD = Reading(Probe.UP)
BAD = Reading(Probe.DOWN, "timeout", "late")
DEEP_DOWN = ProbeAxis(Probe.DOWN, 9.0, "deep_probe_failed", "late")
NOT_WARM = ProbeAxis(Probe.LOADING, 9.0, "warmup_failed", "late")
WARMING = ProbeAxis(Probe.WARMING, 9.0)
OUT = PassiveAxis(Passive.QUARANTINED, 9.0)


@pytest.mark.parametrize(
    ("record", "deep", "served_at", "due"),
    [
        (Record(probe=UP), Deep(), 0.0, True),
        (Record(probe=UP), Deep(), NOW - 59, False),
        (Record(probe=UP), Deep(), NOW - 61, True),
        (Record(probe=UP), Deep(tried_at=NOW - 59), 0.0, False),
        (Record(probe=UP), Deep(tried_at=NOW - 61), 0.0, True),
        # A failure is looked into soon, whatever it serves meanwhile.
        (Record(probe=UP), Deep(failures=1, tried_at=NOW - 11), NOW, True),
        (Record(probe=UP), Deep(failures=1, tried_at=NOW - 9), 0.0, False),
        (Record(probe=WARMING), Deep(), 0.0, True),
        (Record(probe=NOT_WARM), Deep(tried_at=NOW - 9), 0.0, False),
        (Record(probe=NOT_WARM), Deep(tried_at=NOW - 10), 0.0, True),
        (Record(probe=DEEP_DOWN), Deep(tried_at=NOW - 10), NOW, True),
        (Record(probe=ProbeAxis(Probe.DOWN, 1.0, "refused")), Deep(), 0.0, False),
        (Record(probe=ProbeAxis(Probe.LOADING, 1.0, "loading")), Deep(), 0.0, False),
        (Record(probe=UP, passive=OUT), Deep(tried_at=NOW - 5), NOW, True),
        (Record(probe=UP, passive=OUT), Deep(tried_at=NOW - 4), NOW, False),
        (Record(AdminAxis(Admin.DRAINING), None, UP), Deep(), 0.0, False),
        (Record(None, ProcessAxis(Process.STOPPED, 1.0), UP), Deep(), 0.0, False),
        (Record(None, ProcessAxis(Process.RUNNING, 5.0), UP), Deep(), 0.0, False),
        (Record(), Deep(), 0.0, False),
    ],
)
def test_when_a_replica_is_asked_for_a_token(
    record: Record, deep: Deep, served_at: float, due: bool
) -> None:
    assert deep_due(record, deep, served_at=served_at, now=NOW) is due


@pytest.mark.parametrize(
    ("before", "readings", "states"),
    [
        (WARMING, [GOOD], "up"),
        (WARMING, [BAD, BAD, GOOD], "loading loading up"),
        (UP, [BAD, GOOD, BAD, BAD], "up up up down"),
        (DEEP_DOWN, [GOOD, BAD, GOOD, GOOD], "down down down up"),
    ],
)
def test_what_follows_from_a_real_request(
    before: ProbeAxis, readings: list[Reading], states: str
) -> None:
    axis, deep, seen = before, Deep(), []
    for number, reading in enumerate(readings):
        axis, deep = deep_next(axis, deep, reading, now=NOW + number)
        seen.append(axis.state.value)
    assert seen == states.split()


@pytest.mark.parametrize("axis", [DEEP_DOWN, NOT_WARM])
def test_a_health_page_refutes_no_real_request(axis: ProbeAxis) -> None:
    for _ in range(5):
        after, _ = probe_next(axis, Streak(), GOOD, process_since=0.0, now=NOW)
        assert after == axis


def test_a_missing_answer_proves_nothing_of_a_replica_that_serves() -> None:
    axis, streak = probe_next(
        *(UP, Streak(failures=2), BAD), process_since=0.0, now=NOW, serves=True
    )
    assert (axis, streak) == (UP, Streak(failures=2))
    refused = Reading(Probe.DOWN, "refused", "r")
    axis, _ = probe_next(UP, Streak(), refused, process_since=0.0, now=NOW, serves=True)
    assert axis is not None and axis.state is Probe.DOWN


@pytest.mark.parametrize(
    ("status", "body", "state"),
    [
        (200, b'{"choices":[{"text":"a"}]}', Probe.UP),
        (200, b'{"data":[{"embedding":[1]}]}', Probe.UP),
        (200, b'{"results":[{}]}', Probe.UP),
        (429, b"busy", Probe.UP),
        (200, b'{"choices":[]}', Probe.DOWN),
        (200, b'{"error":{"message":"dead"}}', Probe.DOWN),
        (200, b"<html>", Probe.DOWN),
        (200, b"[" * 60_000, Probe.DOWN),
        (200, b"\xff\x00", Probe.DOWN),
        (500, b"dead", Probe.DOWN),
        (302, b"", Probe.DOWN),
    ],
)
def test_what_an_answer_to_one_token_means(
    status: int, body: bytes, state: Probe
) -> None:
    assert token_read(status, body).state is state


@pytest.fixture
def engine() -> Iterator[MockEngine]:
    with MockEngine(model="smol", record=True) as engine:
        yield engine


def label(replica: Replica) -> Label:
    return state_merge(record(replica), now=time.time()).label


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["chat", "completion", "embedding", "rerank"])
def test_a_fresh_replica_serves_one_request_of_ours_first(
    fleet: Fleet, engine: MockEngine, kind: str
) -> None:
    fleet.model.kind = kind
    fleet.model.save()
    replica = fleet.static(engine.address)
    replicas_probe()
    assert label(replica) is Label.WARMING
    assert replicas_deep_probe() == [replica.id]
    assert label(replica) is Label.HEALTHY
    asked = [r for r in engine.requests() if r["method"] == "POST"]
    assert len(asked) == 1
    assert asked[0]["headers"]["x-sluice-synthetic"] == "1"
    replicas_probe()
    assert replicas_deep_probe() == []


@pytest.mark.django_db(transaction=True)
def test_a_warm_up_that_fails_says_why_and_is_tried_again(
    fleet: Fleet, engine: MockEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.set(status=500)
    replica = fleet.static(engine.address)
    replicas_probe()
    replicas_deep_probe()
    state = state_merge(record(replica), now=time.time())
    assert (state.label, state.cause.value) == (Label.LOADING, "warmup_failed")
    assert "answered 500" in state.detail
    replicas_probe()
    assert label(replica) is Label.LOADING
    engine.set(status=None)
    retry_at_once(replica)
    replicas_deep_probe()
    assert label(replica) is Label.HEALTHY


def retry_at_once(replica: Replica) -> None:
    """As if the last deep probe were a while ago."""
    known, now = live.deeps_read([replica.id])
    deep = known[replica.id].deep
    live.deep_write(
        replica.id,
        Deep(deep.process_since, deep.failures, deep.successes, now - 3600),
    )


@pytest.mark.django_db(transaction=True)
def test_a_health_page_that_lies_is_found_out_without_traffic(
    fleet: Fleet, engine: MockEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vllm#24207: /health says 200 while the engine behind it hangs."""
    monkeypatch.setattr(patience, "DEEP_TIMEOUT_S", 0.3)
    replica = fleet.static(engine.address)
    live.axis_write(replica.id, ProbeAxis(Probe.UP, 1.0))
    engine.set(hang=True)
    for expected in (Label.HEALTHY, Label.DOWN):
        retry_at_once(replica)
        assert replicas_deep_probe() == [replica.id]
        replicas_probe()
        assert label(replica) is expected
    assert state_merge(record(replica), now=time.time()).cause == "deep_probe_failed"
    engine.set(hang=False)
    monkeypatch.undo()
    for expected in (Label.DOWN, Label.HEALTHY):
        retry_at_once(replica)
        replicas_deep_probe()
        replicas_probe()
        assert label(replica) is expected
    engine.counters_when(lambda counters: counters.running == 0)


@pytest.mark.django_db(transaction=True)
def test_an_engine_that_is_known_to_be_slow_is_waited_for_longer(
    fleet: Fleet, engine: MockEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "DEEP_TIMEOUT_S", 0.3)
    replica = fleet.static(engine.address)
    live.axis_write(replica.id, ProbeAxis(Probe.UP, 1.0))
    engine.set(delay_first_token_ms=800)
    for ttft_p99_s, failures in ((None, 1), (2.0, 0)):
        load = Load(time.time(), ttft_p99_s=ttft_p99_s)
        live.load_write(replica.id, load, unlock="x")
        retry_at_once(replica)
        assert replicas_deep_probe() == [replica.id]
        known, _ = live.deeps_read([replica.id])
        assert known[replica.id].deep.failures == failures


@pytest.mark.django_db(transaction=True)
def test_whoever_serves_real_requests_is_not_asked(
    fleet: Fleet, engine: MockEngine
) -> None:
    replica = fleet.static(engine.address)
    live.axis_write(replica.id, ProbeAxis(Probe.UP, 1.0))
    live.redis_client().zadd(SERVED, {replica.id: time.time() - 5})
    assert replicas_deep_probe() == []
    live.redis_client().zadd(SERVED, {replica.id: time.time() - 65})
    assert replicas_deep_probe() == [replica.id]


@pytest.mark.django_db(transaction=True)
def test_two_at_once_ask_once(fleet: Fleet, peer: Callable[..., Peer]) -> None:
    answered = threading.Event()

    def wait(connection: Any) -> None:
        answered.wait(8)
        connection.sendall(http(b'{"choices":[{}]}'))

    slow = peer(wait)
    replica = fleet.static(slow.address)
    live.axis_write(replica.id, ProbeAxis(Probe.WARMING, 1.0))

    def deep_probe() -> None:
        try:
            replicas_deep_probe()
        finally:
            connections.close_all()

    first = threading.Thread(target=deep_probe)
    first.start()
    try:
        deadline = time.monotonic() + 8
        while not slow.asked:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert replicas_deep_probe() == []
        # Nor does a fresh one wait for the slow one: the first call takes it on.
        quick = fleet.static(peer(http(b'{"choices":[{}]}')).address, replica.version)
        live.axis_write(quick.id, ProbeAxis(Probe.WARMING, 1.0))
        while label(quick) is not Label.HEALTHY:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        answered.set()
        first.join(10)
    assert len(slow.asked) == 1 and label(replica) is Label.HEALTHY


@pytest.mark.django_db(transaction=True)
def test_a_quarantine_ends_after_five_requests_that_went_well(
    fleet: Fleet, engine: MockEngine
) -> None:
    replica = quarantined(fleet, engine)
    for done in range(1, 6):
        retry_at_once(replica)
        replicas_deep_probe()
        passive = record(replica).passive
        assert passive is not None
        state = Passive.IN if done == 5 else Passive.QUARANTINED
        assert passive.state is state
        assert bool(passive.recovered_at) is (done == 5)


def quarantined(fleet: Fleet, engine: MockEngine) -> Replica:
    replica = fleet.static(engine.address)
    live.axis_write(replica.id, ProbeAxis(Probe.UP, 1.0))
    axis = PassiveAxis(Passive.QUARANTINED, 9.0, ejections=(7.0, 8.0, 9.0), count=3)
    live.passive_change(replica.id, lambda record, now: axis)
    return replica


@pytest.mark.django_db(transaction=True)
def test_an_admin_who_enables_it_vouches_for_it(
    fleet: Fleet, engine: MockEngine, actor: Actor
) -> None:
    replica = quarantined(fleet, engine)
    replica_admin_set(replica=replica, state=Admin.ENABLED, actor=actor)
    passive = record(replica).passive
    assert passive is not None and passive.state is Passive.IN
    assert AuditRecord.objects.filter(action="replica.readmit").count() == 1
    replica_admin_set(replica=replica, state=Admin.ENABLED, actor=actor)
    assert AuditRecord.objects.filter(action="replica.readmit").count() == 1
