"""Probing: what replicas answer, hostile ones too, and when it is believed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest
import redis
from django.db import connections

from cluster import live, presence
from cluster.health import Probe, ProbeAxis, Process, ProcessAxis, Reading, state_merge
from cluster.health.probing import (
    START_LIMIT_S,
    Deep,
    Streak,
    deep_next,
    probe_next,
)
from cluster.health.served import SERVED
from cluster.models import Replica
from cluster.services import asking, replicas_deep_probe, replicas_probe
from tests import services
from tests.cluster.conftest import Fleet, record
from tests.cluster.peers import Peer, http

UP = Reading(Probe.UP)
LOADING = Reading(Probe.LOADING, "loading", "l")
LATE = Reading(Probe.DOWN, "timeout", "t")
LOST = Reading(Probe.DOWN, "connection_lost", "c")
REFUSED = Reading(Probe.DOWN, "refused", "r")
WRONG = Reading(Probe.DOWN, "html", "h")


# What a generic engine answers to its health question and to a request.
SERVES = http(b'{"choices":[{}]}')


def walk(*readings: Reading, process_since: float = 0.0) -> list[str]:
    """The states after each reading, a second apart."""
    axis: ProbeAxis | None = None
    streak, states = Streak(), []
    for second, reading in enumerate(readings, start=1):
        axis, streak = probe_next(
            axis, streak, reading, process_since=process_since, now=float(second)
        )
        if axis is not None and axis.state is Probe.WARMING:
            axis, _ = deep_next(axis, Deep(), UP, now=float(second))
        states.append(axis.state.value if axis else "-")
    return states


@pytest.mark.parametrize(
    ("readings", "states"),
    [
        ([UP], "up"),
        ([REFUSED], "down"),
        ([WRONG], "down"),
        ([UP, REFUSED], "up down"),
        ([UP, LATE, LATE, LATE], "up suspect suspect down"),
        ([UP, LATE, LOST, LATE], "up suspect suspect down"),
        (
            [UP, LATE, LATE, UP, LATE, LATE, UP],
            "up suspect suspect up suspect suspect up",
        ),
        ([LATE, LATE, LATE], "- - down"),
        ([REFUSED, UP, UP], "down down up"),
        ([REFUSED, UP, REFUSED, UP, UP], "down down down down up"),
        ([REFUSED, UP, LATE, UP, UP], "down down down down up"),
        ([REFUSED, LOADING, UP], "down loading up"),
        ([LOADING, UP, LOADING, UP], "loading up loading up"),
    ],
)
def test_a_state_changes_after_as_many_readings_as_it_takes(
    readings: list[Reading], states: str
) -> None:
    assert walk(*readings) == states.split()


def test_a_process_that_does_not_listen_yet_is_loading() -> None:
    assert walk(REFUSED, REFUSED, UP, REFUSED, process_since=0.5) == [
        *("loading", "loading", "up", "down"),
    ]
    late = START_LIMIT_S + 1.0
    axis, _streak = probe_next(None, Streak(), REFUSED, process_since=1.0, now=late)
    assert axis is not None and axis.state is Probe.DOWN


def test_what_was_seen_of_an_earlier_process_does_not_count() -> None:
    before = ProbeAxis(Probe.DOWN, 5.0, "refused", "r", process_since=1.0)
    streak = Streak(1.0, failures=2)
    axis, _ = probe_next(before, streak, UP, process_since=9.0, now=10.0)
    assert axis is not None
    assert (axis.state, axis.since, axis.process_since) == (Probe.WARMING, 10.0, 9.0)
    axis, after = probe_next(before, streak, LATE, process_since=9.0, now=10.0)
    assert (axis, after.failures) == (None, 1)


def test_since_is_when_the_state_began_and_not_when_the_reason_changed() -> None:
    before = ProbeAxis(Probe.DOWN, 5.0, "refused", "r")
    axis, _ = probe_next(before, Streak(), WRONG, process_since=0.0, now=9.0)
    assert axis == ProbeAxis(Probe.DOWN, 5.0, "html", "h")
    same, _ = probe_next(axis, Streak(), WRONG, process_since=0.0, now=11.0)
    assert same == axis


@pytest.mark.django_db(transaction=True)
def test_every_replica_is_asked_and_its_answer_written(
    fleet: Fleet, peer: Callable[..., Peer]
) -> None:
    good = fleet.static(peer(SERVES).address)
    bad = fleet.static(peer(http(b"<p>")).address, good.version)
    replicas_probe()
    assert replicas_deep_probe() == [good.id]
    axes = replicas_probe()
    assert {id_: axis and axis.state for id_, axis in axes.items()} == {
        good.id: Probe.UP,
        bad.id: Probe.DOWN,
    }
    assert record(good).probe == axes[good.id]
    assert state_merge(record(good), now=time.time()).eligible
    assert not state_merge(record(bad), now=time.time()).eligible


@pytest.mark.django_db(transaction=True)
def test_an_unchanged_answer_writes_nothing(
    fleet: Fleet, peer: Callable[..., Peer]
) -> None:
    fleet.static(peer(SERVES).address)
    replicas_probe()
    replicas_deep_probe()
    number = live.redis_client().get("sluice:replicas#number")
    replicas_probe()
    assert live.redis_client().get("sluice:replicas#number") == number
    assert live.redis_client().keys("sluice:probe:*[ck]") == []


@pytest.mark.django_db(transaction=True)
def test_counts_survive_the_worker_that_made_them(
    fleet: Fleet, peer: Callable[..., Peer]
) -> None:
    answers = [http(b""), b"", b"", b"", http(b""), http(b"")]

    def answer(connection: socket.socket) -> None:
        connection.sendall(answers[len(flaky.asked) - 1])

    flaky = peer(answer)
    replica = fleet.static(flaky.address)
    live.axis_write(replica.id, ProbeAxis(Probe.UP, 1.0))
    states = []
    for _ in answers:
        axis = replicas_probe()[replica.id]
        states.append(axis.state.value if axis else "-")
    assert states == ["up", "suspect", "suspect", "down", "down", "up"]


@pytest.mark.django_db(transaction=True)
def test_a_missing_answer_counts_only_where_a_gateway_had_nothing_lately(
    fleet: Fleet, peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine under load answers requests and leaves its health page waiting."""
    monkeypatch.setattr(asking, "READ_TIMEOUT_S", 0.2)

    def silent(connection: socket.socket) -> None:
        connection.recv(1)

    busy = fleet.static(peer(silent).address)
    live.axis_write(busy.id, ProbeAxis(Probe.UP, 1.0))

    def probed() -> str:
        axis = replicas_probe()[busy.id]
        return axis.state.value if axis else "-"

    # Content that comes until in a minute.
    live.redis_client().zadd(SERVED, {busy.id: presence.redis_time() + 60})
    assert [probed() for _ in range(4)] == ["up"] * 4
    live.redis_client().zadd(SERVED, {busy.id: presence.redis_time() - 60})
    assert [probed() for _ in range(3)] == ["suspect", "suspect", "down"]


@pytest.mark.django_db(transaction=True)
def test_two_probers_at_once_ask_once(fleet: Fleet, peer: Callable[..., Peer]) -> None:
    replica = fleet.static(peer(b"").address)
    lock = f"sluice:probe:{replica.id}#lock"
    live.redis_client().set(lock, "1", px=5_000)
    assert replicas_probe() == {}
    live.redis_client().delete(lock)
    assert replicas_probe() == {replica.id: None}
    assert live.redis_client().get(lock) is None


@pytest.mark.django_db(transaction=True)
def test_only_running_processes_are_asked(
    fleet: Fleet, peer: Callable[..., Peer]
) -> None:
    replica = fleet.replica()
    engine = peer(http(b""))
    Replica.objects.filter(pk=replica.pk).update(address=engine.address)
    for state, asked in [
        (Process.STOPPING, False),
        (Process.EXITED, False),
        (Process.RUNNING, True),
    ]:
        live.axis_write(replica.id, ProcessAxis(state, 7.0))
        assert bool(replicas_probe()) is asked
    probe = record(replica).probe
    assert probe is not None and probe.process_since == 7.0
    assert len(engine.asked) == 1


@pytest.mark.django_db(transaction=True)
def test_a_slow_replica_delays_no_other(
    fleet: Fleet, peer: Callable[..., Peer]
) -> None:
    first_asked, answered = threading.Event(), threading.Event()

    def wait(connection: socket.socket) -> None:
        first_asked.set()
        answered.wait(30)

    slow = fleet.static(peer(wait).address)
    quick = fleet.static(peer(http(b"")).address, slow.version)

    def probe_all() -> None:
        try:
            replicas_probe()
        finally:
            connections.close_all()

    probing = threading.Thread(target=probe_all)
    probing.start()
    try:
        assert first_asked.wait(5)
        # Well before the slow one is given up.
        deadline = time.monotonic() + asking.READ_TIMEOUT_S / 2
        while not replicas_probe(replica_ids=[quick.id]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert record(quick).probe is not None
        assert replicas_probe(replica_ids=[slow.id]) == {}
    finally:
        answered.set()
        probing.join(10)


@pytest.mark.django_db(transaction=True)
def test_two_hundred_replicas_are_probed_in_one_go(
    fleet: Fleet, peer: Callable[..., Peer]
) -> None:
    engine = peer(http(b""))
    port = engine.address.rpartition(":")[2]
    version = fleet.version()
    for number in range(200):
        fleet.static(f"http://127.0.{number}.1:{port}", version)
    engine.close()
    engine.listener = socket.create_server(("", int(port)), backlog=300)
    engine.threads = [threading.Thread(target=engine._accept)]
    engine.threads[0].start()
    took_s = []
    # A busy machine may hold one of them up.
    for _ in range(2):
        began = time.monotonic()
        axes = replicas_probe()
        took_s.append(time.monotonic() - began)
        assert len(axes) == 200
        assert all(axis and axis.state is Probe.WARMING for axis in axes.values())
    assert min(took_s) < 5, took_s


@pytest.mark.django_db(transaction=True)
def test_without_redis_the_caller_is_told(
    fleet: Fleet, peer: Callable[..., Peer], valkey_server: services.Valkey
) -> None:
    fleet.static(peer(http(b"")).address)
    valkey_server.kill()
    try:
        with pytest.raises(redis.RedisError):
            replicas_probe()
    finally:
        valkey_server.start()
