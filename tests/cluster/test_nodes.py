"""Nodes: heard of or not, with clocks and disks that are off."""

from __future__ import annotations

import re
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import redis

from cluster import live, presence, worker
from cluster.actor import SYSTEM
from cluster.drivers import replica_log
from cluster.drivers.gpus import gpus_parse, gpus_read
from cluster.errors import Refused
from cluster.health.node import (
    Disk,
    Gpu,
    NodeState,
    disk_level,
    node_name,
    node_state,
)
from cluster.health.record import NodeAxis, NodeReach
from cluster.selectors import node_list, node_views
from cluster.services import node_claim, node_reconcile, node_register, nodes_watch
from cluster.worker import node_facts
from tests import services
from tests.cluster.conftest import Fleet, process
from tests.cluster.heartbeats import FACTS, silent


@pytest.mark.parametrize(
    ("at", "now", "state"),
    [
        (None, 100.0, "never_seen"),
        (100.0, 100.0, "reachable"),
        (100.0, 144.9, "reachable"),
        (100.0, 145.0, "unreachable"),
        # Redis' own clock was set back.
        (100.0, 50.0, "reachable"),
    ],
)
def test_a_node_is_unreachable_after_long_silence(
    at: float | None, now: float, state: str
) -> None:
    assert node_state(at, now) == state


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [
        (400_000, 500_000, Disk.OK),
        (5_000, 4_000_000, Disk.SCARCE),
        (6_000, 4_000_000, Disk.OK),
        (400, 10_000, Disk.SCARCE),
        (90, 10_000, Disk.FULL),
        (0, 4_000_000, Disk.FULL),
    ],
)
def test_a_disk_is_scarce_by_share_or_by_amount(
    free: float, total: float, level: Disk
) -> None:
    assert disk_level(free, total) is level


# What NVIDIA's library read from a real GeForce GTX 1060 3GB, as its owner published
# it (nicolargo/glances, issue 1523). The UUID was struck out there.
REAL_READING = {
    "index": 0,
    "name": b"GeForce GTX 1060 3GB",
    "uuid": "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
    "memory_total": 3156738048,
    "memory_used": 685441024,
    "utilization": 5,
    "temperature": 42,
    "power_mw": 6697,
}


def test_the_readings_of_a_real_card_are_read() -> None:
    [card] = gpus_parse([REAL_READING])
    assert card == Gpu(
        0, "GeForce GTX 1060 3GB", str(REAL_READING["uuid"]), 3010.5, 653.7, 5, 42, 6.7
    )


class Nvml(SimpleNamespace):
    """A library in the shape of NVIDIA's, of a card that does not tell its power."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self, *, driver: bool = True) -> None:
        def refuse(*_: object) -> None:
            raise Nvml.NVMLError

        super().__init__(
            nvmlInit=(lambda: None) if driver else refuse,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetCount=lambda: 1,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlSystemGetDriverVersion=lambda: b"550.54",
            nvmlDeviceGetName=lambda _: "A card",
            nvmlDeviceGetUUID=lambda _: "GPU-1",
            nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=2**30, used=2**20),
            nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=7),
            nvmlDeviceGetTemperature=lambda *_: 50,
            nvmlDeviceGetPowerUsage=refuse,
        )


def test_what_a_card_does_not_tell_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())
    found = gpus_read()
    assert (found.driver, found.absent) == ("550.54", "")
    assert found.cards == [Gpu(0, "A card", "GPU-1", 1024, 1, 7, 50, None)]


def test_absent_cards_are_shown_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(driver=False))
    assert gpus_read() == ([], "", "no_driver")


def test_a_machine_without_a_driver_has_no_cards_for_the_real_library() -> None:
    found = gpus_read()
    assert found.cards or found.absent in ("no_driver", "no_card")


pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def long_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis as if it had been up for long."""
    monkeypatch.setattr(presence, "redis_uptime_s", lambda: 9999.0)


def test_the_real_facts_of_this_machine_are_plausible(
    valkey: redis.Redis, data_dir: Path
) -> None:
    facts = node_facts("10.0.0.7")
    assert not facts.clock_is_off and facts.cpu_count >= 1
    assert 0 < facts.memory_available_mb < facts.memory_total_mb
    assert 0 < facts.disk_free_mb < facts.disk_total_mb
    assert {"sluice", "python", "kernel"} <= set(facts.versions)


def test_a_clock_that_is_off_is_shown_and_changes_nothing(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, long_up: None
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    facts = node_facts("127.0.0.1")
    monkeypatch.undo()
    presence.presence_beat("local", holder="a", facts=facts)
    [view] = node_views([fleet.node])
    assert view.facts and view.facts.clock_is_off
    assert view.facts.clock_offset_s == pytest.approx(3600, abs=5)
    assert view.state is NodeState.REACHABLE
    assert view.age_s is not None and view.age_s < 5


def test_a_name_is_held_while_it_is_heard_and_given_up_only_on_demand(
    valkey: redis.Redis,
) -> None:
    def claim(holder: str, replace: bool = False) -> str:
        try:
            node_claim(name="gpu-a", holder=holder, facts=FACTS, replace=replace)
        except Refused as error:
            return str(error)
        return ""

    assert claim("one") == claim("one") == ""
    told = r"gpu-a at 10\.0\.0\.7, whose last heartbeat is (\d+) s old"
    assert re.search(told, claim("two", True))
    silent("gpu-a", 30)
    heard = re.search(told, claim("two", True))
    assert heard is not None and 30 <= int(heard[1]) < 40
    silent("gpu-a", 50)
    assert re.search(r"silent for 5\d s: use --replace", claim("two"))
    assert claim("two", True) == ""
    # The first one learns of it with its next heartbeat.
    assert presence.presence_beat("gpu-a", holder="one", facts=FACTS) is not None


def test_the_replicas_of_a_silent_node_know_it_and_go_on(
    fleet: Fleet, long_up: None
) -> None:
    replica = fleet.replica()
    static = fleet.static("http://127.0.0.1:9", replica.version)
    other = node_register(name="never", actor=SYSTEM)

    def axis() -> NodeAxis | None:
        return live.node_axes_read([replica.id])[replica.id]

    assert nodes_watch() == {"local": "never_seen", "never": "never_seen"}
    assert axis() is None
    presence.presence_beat("local", holder="a", facts=FACTS)
    nodes_watch()
    first = axis()
    assert first and first.state is NodeReach.REACHABLE
    number = live.redis_client().get("sluice:replicas#number")
    nodes_watch()
    assert axis() == first
    assert live.redis_client().get("sluice:replicas#number") == number

    silent("local", 50)
    assert nodes_watch()["local"] is NodeState.UNREACHABLE
    lost = axis()
    assert lost and lost.state is NodeReach.UNREACHABLE
    assert lost.since == pytest.approx(presence.redis_time() - 50, abs=2)
    replica.refresh_from_db()
    assert (replica.wanted_running, replica.wanted_start) == (True, 1)
    presence.presence_beat("local", holder="a", facts=FACTS)
    nodes_watch()
    back = axis()
    assert back and back.state is NodeReach.REACHABLE
    assert live.node_axes_read([static.id])[static.id] is None
    assert [v.state for v in node_views(node_list())] == ["reachable", "never_seen"]
    assert other.name == "never"


def test_a_redis_that_was_away_accuses_no_node(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = fleet.replica()
    presence.presence_beat("local", holder="a", facts=FACTS)
    silent("local", 300)
    monkeypatch.setattr(presence, "redis_uptime_s", lambda: 44.0)
    assert nodes_watch() == {}
    assert live.node_axes_read([replica.id]) == {replica.id: None}
    monkeypatch.setattr(presence, "redis_uptime_s", lambda: 45.0)
    assert nodes_watch() == {"local": "unreachable"}


def test_a_heart_beats_on_when_redis_is_back_and_tells_each_outage_once(
    fleet: Fleet,
    valkey_server: services.Valkey,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "_AGAIN_S", 0.05)
    heart = worker.Heart("local", "127.0.0.1", fleet.files())
    valkey_server.kill()
    try:
        with caplog.at_level("INFO", logger="cluster.worker"):
            heart.start()
            threading.Event().wait(0.5)
            valkey_server.start()
            deadline = time.monotonic() + 10
            while node_views([fleet.node])[0].state is not NodeState.REACHABLE:
                assert time.monotonic() < deadline
                time.sleep(0.02)
    finally:
        if valkey_server.process is None:
            valkey_server.start()
        heart.end()
    told = [record.getMessage() for record in caplog.records]
    assert [text[:12] for text in told] == ["no heartbeat", "node local i"]


def test_without_redis_the_state_of_a_node_is_unknown(
    fleet: Fleet, valkey_server: services.Valkey
) -> None:
    valkey_server.kill()
    try:
        [view] = node_views([fleet.node])
    finally:
        valkey_server.start()
    assert (view.state, view.facts) == (None, None)


def test_facts_of_another_release_are_unknown_and_the_node_reachable(
    fleet: Fleet,
) -> None:
    presence.presence_beat("local", holder="a", facts=FACTS)
    live.redis_client().hset(node_name("local"), "facts", b'{"host": 1}')
    [view] = node_views([fleet.node])
    assert (view.state, view.facts) == (NodeState.REACHABLE, None)


def test_logs_are_kept_short_where_the_disk_is_nearly_full(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_log, "SCARCE_LIMIT_BYTES", 100)
    full = SimpleNamespace(total=10**12, free=10**6)
    monkeypatch.setattr(psutil, "disk_usage", lambda _: full)
    replica = fleet.replica()
    node_reconcile(node=fleet.node)
    log = fleet.files().log(replica.id)
    aside = log.with_name(f"{log.name}.1")
    log.write_bytes(b"x" * 200)
    aside.write_bytes(b"old")
    node_reconcile(node=fleet.node)
    assert log.stat().st_size == 0 and not aside.exists()
    assert process(replica).state == "running"
    facts = node_facts("127.0.0.1")
    assert facts.disk is Disk.FULL
    presence.presence_beat("local", holder="a", facts=facts)
    [view] = node_views([fleet.node])
    assert view.facts and view.facts.disk is Disk.FULL
