"""Draining: out of rotation, what is open ends in peace, then the process stops."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from cluster import live
from cluster.actor import Actor
from cluster.drivers.draining import Drain, DrainAct, drain_next
from cluster.errors import Refused
from cluster.health import Admin, Label, Process, inflight, state_merge
from cluster.health.inflight import OpenRequest, inflight_fields
from cluster.models import AuditRecord, Replica
from cluster.selectors import inflight_count, inflight_read
from cluster.services import (
    drains_advance,
    node_reconcile,
    replica_admin_set,
    replica_drain,
    replica_remove,
    replica_restart,
    replica_running_set,
    replicas_deep_probe,
    replicas_probe,
)
from tests import services
from tests.cluster.conftest import Fleet, process, record
from tests.gateway import world

HERE, THERE = Drain(since=100.0), Drain(100.0, then_stop=True, deadline=400.0)
RESTING = Drain(100.0, drained_at=104.0)


@pytest.mark.parametrize(
    ("drain", "open_requests", "now", "act", "drained_at"),
    [
        # At first "nothing open" may mean that a gateway has not heard of it.
        (THERE, 0, 102.9, DrainAct.WAIT, 0.0),
        (THERE, 0, 103.0, DrainAct.STOP, 103.0),
        (HERE, 0, 103.0, DrainAct.REST, 103.0),
        (RESTING, 0, 200.0, DrainAct.REST, 104.0),
        # Open, or not known to be none.
        (THERE, 2, 399.9, DrainAct.WAIT, 0.0),
        (THERE, None, 399.9, DrainAct.WAIT, 0.0),
        (HERE, 2, 9999.0, DrainAct.WAIT, 0.0),
        (RESTING, None, 200.0, DrainAct.WAIT, 104.0),
        (RESTING, 1, 200.0, DrainAct.WAIT, 0.0),
        # The deadline.
        (THERE, 2, 400.0, DrainAct.CUT, 0.0),
        (THERE, None, 400.0, DrainAct.CUT, 0.0),
        (THERE, 0, 400.0, DrainAct.STOP, 400.0),
    ],
)
def test_one_step_follows_from_what_is_open(
    drain: Drain,
    open_requests: int | None,
    now: float,
    act: DrainAct,
    drained_at: float,
) -> None:
    step = drain_next(drain, open_requests, now)
    assert (step.act, step.drained_at) == (act, drained_at)


def publish(replica: Replica | None, count: int, gateway_id: str = "g1") -> None:
    """What a live gateway says that it has open."""
    open_ = [OpenRequest(f"r{n}", "demo", 1.0, True, 3) for n in range(count)]
    client = live.redis_client()
    client.zadd(inflight.GATEWAYS, {gateway_id: 1.0})
    client.set(inflight.gateway_record_name(gateway_id), "{}", ex=60)
    name = inflight.inflight_name(gateway_id)
    client.delete(name)
    fields: Any = inflight_fields({replica.id: open_} if replica else {})
    client.hset(name, mapping=fields)
    client.expire(name, 60)


def audit(action: str) -> Any:
    return AuditRecord.objects.filter(action=action).latest("id").after


def until_drained(replica: Replica, now: float) -> Replica:
    drains_advance(now=now)
    replica.refresh_from_db()
    return replica


pytestmark = pytest.mark.django_db(transaction=True)


def test_counts_are_over_all_live_gateways_and_unknown_while_one_is_silent(
    fleet: Fleet,
) -> None:
    replica = fleet.replica()
    assert inflight_count(replica_id=replica.id) == 0
    publish(replica, 2)
    publish(replica, 3, "g2")
    publish(None, 0, "g3")
    assert inflight_count(replica_id=replica.id) == 5
    now = inflight_read()
    assert now and now.requests[replica.id][0].team == "demo"
    live.redis_client().delete(inflight.inflight_name("g3"))
    assert inflight_count(replica_id=replica.id) is None
    live.redis_client().delete(inflight.gateway_record_name("g3"))
    assert inflight_count(replica_id=replica.id) == 5


def test_a_drained_process_is_stopped_when_nothing_is_open(
    fleet: Fleet, actor: Actor
) -> None:
    replica = fleet.replica()
    node_reconcile(node=fleet.node)
    publish(replica, 2)
    replica_drain(replica=replica, then_stop=True, actor=actor)
    assert state_merge(record(replica), now=time.time()).label is Label.DRAINING
    later = time.time() + 60
    assert drains_advance(now=later) == 1
    assert until_drained(replica, later).wanted_running
    publish(None, 0)
    assert drains_advance(now=later) == 0
    replica.refresh_from_db()
    assert not replica.wanted_running
    assert replica.drained_at == datetime.fromtimestamp(later, UTC)
    assert audit("replica.stop") == {"running": False, "drained": True, "cut": 0}
    fleet.until(lambda: process(replica).state is Process.STOPPED)
    assert drains_advance(now=later) == 0

    replica_running_set(replica=replica, running=True, actor=actor)
    replica.refresh_from_db()
    assert replica.admin_state == Admin.ENABLED and not replica.drain_then_stop


def test_at_the_deadline_it_is_stopped_and_the_record_says_what_was_cut(
    fleet: Fleet, actor: Actor
) -> None:
    replica = fleet.replica()
    publish(replica, 4)
    replica_drain(replica=replica, then_stop=True, deadline_s=20, actor=actor)
    assert until_drained(replica, time.time() + 10).wanted_running
    assert not until_drained(replica, time.time() + 21).wanted_running
    assert audit("replica.stop") == {"running": False, "drained": False, "cut": 4}


def test_whoever_enables_it_again_ends_the_drain(fleet: Fleet, actor: Actor) -> None:
    replica = fleet.replica()
    replica_drain(replica=replica, then_stop=True, actor=actor)
    replica_admin_set(replica=replica, state=Admin.ENABLED, actor=actor)
    replica_admin_set(replica=replica, state=Admin.DRAINING, actor=actor)
    assert until_drained(replica, time.time() + 400).wanted_running
    assert replica.drained_at is not None


def test_stopping_drains_first_and_stopping_now_says_how_many_it_cuts(
    fleet: Fleet, actor: Actor
) -> None:
    replica = fleet.replica()
    publish(replica, 3)
    done = replica_running_set(replica=replica, running=False, actor=actor)
    assert (done.cut, done.replica.wanted_running) == (0, True)
    assert done.replica.admin_state == Admin.DRAINING and done.replica.drain_then_stop
    deadline = replica.drain_deadline
    replica_running_set(replica=replica, running=False, actor=actor)
    replica.refresh_from_db()
    assert replica.drain_deadline == deadline
    done = replica_running_set(replica=replica, running=False, force=True, actor=actor)
    assert (done.cut, done.replica.wanted_running) == (3, False)
    assert audit("replica.stop") == {"running": False, "cut": 3}


def test_a_restart_and_a_removal_say_how_many_they_cut_and_only_once(
    fleet: Fleet, actor: Actor
) -> None:
    replica = fleet.replica()
    publish(replica, 2)
    assert replica_restart(replica=replica, actor=actor).cut == 2
    assert audit("replica.restart") == {"running": True, "start": 2, "cut": 2}
    publish(replica, 5)
    assert replica_remove(replica=replica, actor=actor) == 5
    assert audit("replica.remove") == {"cut": 5}
    # What is gone is cut by nobody a second time.
    assert replica_remove(replica=replica, actor=actor) == 0
    assert replica_restart(replica=replica, actor=actor).cut == 0
    done = replica_running_set(replica=replica, running=False, force=True, actor=actor)
    assert done.cut == 0


def test_a_static_replica_that_is_removed_finishes_what_runs(
    fleet: Fleet, actor: Actor
) -> None:
    replica = fleet.static("http://127.0.0.1:9")
    publish(replica, 3)
    assert replica_remove(replica=replica, actor=actor) == 0
    assert audit("replica.remove") == {"cut": 0}


def test_without_redis_the_number_of_cut_requests_is_unknown_and_it_stops(
    fleet: Fleet, actor: Actor, valkey_server: services.Valkey
) -> None:
    replica = fleet.replica()
    valkey_server.kill()
    try:
        done = replica_running_set(
            replica=replica, running=False, force=True, actor=actor
        )
        stopped = (done.cut, done.replica.wanted_running)
        restarted = replica_restart(replica=replica, actor=actor)
        removed = replica_remove(replica=replica, actor=actor)
    finally:
        valkey_server.start()
    assert stopped == (None, False)
    assert (restarted.cut, removed) == (None, None)


def test_a_static_replica_can_be_drained_but_not_stopped(
    fleet: Fleet, actor: Actor
) -> None:
    replica = fleet.static("http://127.0.0.1:9")
    with pytest.raises(Refused):
        replica_drain(replica=replica, then_stop=True, actor=actor)
    with pytest.raises(Refused):
        replica_drain(replica=replica, deadline_s=0, actor=actor)
    replica_drain(replica=replica, actor=actor)
    assert until_drained(replica, time.time() + 4).drained_at is not None


MOCK = (
    "{python} -m cluster.engines.mock --host {host} --port {port} "
    "--model smol --gap-ms 40 --tokens 150"
)


@pytest.fixture
def gateway(
    tmp_path: Path, valkey_server: services.Valkey
) -> Iterator[world.GatewayProcess]:
    with world.gateway(tmp_path / "gateway", valkey_server.url) as process:
        yield process


@pytest.mark.processes
def test_twenty_streams_end_in_peace_while_their_replica_drains(
    fleet: Fleet,
    actor: Actor,
    valkey_server: services.Valkey,
    gateway: world.GatewayProcess,
) -> None:
    replica = fleet.replica(command=MOCK)
    fleet.until(lambda: _is_healthy(replica))
    replica.refresh_from_db()
    control = world.ControlPlane(valkey_server)
    control.mark_complete()
    control.publish(world.route("smol", {"v1": (10_000, [replica.address])}))
    key = control.key()
    gateway.wait_for(lambda: gateway.chat(key, "smol", max_tokens=1).status == 200)
    streams = [gateway.raw_chat(key, "smol", stream=True) for _ in range(20)]
    for stream in streams:
        world.read_until(stream, b"data:")
    ended = _read_all_in_threads(streams)
    replica_drain(replica=replica, then_stop=True, actor=actor)
    began, most_open = time.monotonic(), 0
    # A gateway that does not publish what it has open still shows its own gauge.
    publishes = live.redis_client().exists(inflight.inflight_name(gateway.id))
    while replica.wanted_running:
        if not publishes:
            count = int(gateway.metric("sluice_in_flight"))
            publish(replica if count else None, count, gateway.id)
        count_now = inflight_count(replica_id=replica.id)
        most_open = max(most_open, count_now or 0)
        until_drained(replica, time.time())
        assert time.monotonic() - began < 60
        time.sleep(0.1)
    assert most_open >= 20
    fleet.until(lambda: process(replica).state is Process.STOPPED)
    assert gateway.chat(key, "smol").status == 503
    for thread in ended:
        thread.join(10)
    assert [thread.whole for thread in ended] == [True] * 20
    control.client.close()
    connections.close_all()


def _is_healthy(replica: Replica) -> bool:
    """After another probe."""
    replicas_probe()
    replicas_deep_probe()
    return state_merge(record(replica), now=time.time()).label is Label.HEALTHY


class _Reader(threading.Thread):
    """Reads a stream to its end; ``whole`` if that was the right one."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__()
        self.stream = stream
        self.whole = False

    def run(self) -> None:
        with self.stream:
            rest = world.read_until(self.stream, b"data: [DONE]", within_s=30)
        self.whole = b"data: [DONE]" in rest and b'"error"' not in rest


def _read_all_in_threads(streams: list[socket.socket]) -> list[_Reader]:
    readers = [_Reader(stream) for stream in streams]
    for reader in readers:
        reader.start()
    return readers
