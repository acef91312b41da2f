"""Loads: what engines' metrics say, hostile ones too, and what is kept of it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cluster import live
from cluster.engines import engine_get
from cluster.engines.rates import load_failed, load_next
from cluster.engines.scrape import Scrape
from cluster.health import Probe
from cluster.health.load import Load, load_decode
from cluster.models import Replica, Sample
from cluster.services import (
    asking,
    replica_remove,
    replicas_probe,
    samples_prune,
    samples_write,
)
from tests.cluster.conftest import Fleet, record
from tests.cluster.peers import Peer, http

NAMES = http(b'{"data":[{"id":"smol"}]}')


def after(before: Load, now: float = 15.0, **scrape: float) -> tuple[Any, Any]:
    load = load_next(before, Scrape(**scrape), now)
    return load.tokens_per_s, load.ttft_ms


BEFORE = Load(10.0, generated_tokens=100, ttft_seconds=4.0, ttft_count=10)


@pytest.mark.parametrize(
    ("scrape", "rates"),
    [
        ({"generated_tokens": 150}, (10.0, None)),
        ({"generated_tokens": 100}, (0.0, None)),
        # A restarted engine counts from nothing.
        ({"generated_tokens": 20}, (4.0, None)),
        ({"ttft_seconds": 5.0, "ttft_count": 14}, (None, 250.0)),
        ({"ttft_seconds": 4.0, "ttft_count": 10}, (None, None)),
        ({"ttft_seconds": 0.5, "ttft_count": 2}, (None, 250.0)),
        ({}, (None, None)),
    ],
)
def test_rates_follow_from_two_scrapes(
    scrape: dict[str, float], rates: tuple[Any, Any]
) -> None:
    assert after(BEFORE, **scrape) == rates


def test_there_is_no_rate_without_an_earlier_scrape_or_time_between() -> None:
    failed = load_failed(BEFORE, "timeout", "late", 12.0)
    assert after(failed, generated_tokens=150) == (None, None)
    assert after(BEFORE, now=10.0, generated_tokens=150) == (None, None)
    assert load_next(None, Scrape(running=1), 3.0) == Load(3.0, running=1)


def test_an_error_stands_since_it_began() -> None:
    first = load_failed(BEFORE, "timeout", "a", 12.0)
    second = load_failed(first, "timeout", "b", 17.0)
    other = load_failed(second, "http_status", "c", 22.0)
    assert [load.since for load in (first, second, other)] == [12.0, 12.0, 22.0]


def test_what_another_release_left_in_redis_is_no_load() -> None:
    assert load_decode(b'{"at": "soon"}') is None
    assert load_decode(None) is None


def test_another_server_shows_the_series_of_the_engine_that_it_names() -> None:
    generic = engine_get("generic")
    assert generic.metrics({}) is None
    other = generic.metrics({"metrics": "tgi", "metrics-path": "/prom"})
    assert other and other.path == "/prom"
    assert other.parse(b"tgi_queue_size 3\n").waiting == 3


def metrics_of(answer: bytes | Callable[[socket.socket], None]) -> Any:
    """A vLLM that is well but for its metrics."""

    def serve(connection: socket.socket) -> None:
        if "/metrics" not in serve.peer.asked[-1]:  # type: ignore[attr-defined]
            connection.sendall(NAMES)
        elif isinstance(answer, bytes):
            connection.sendall(answer)
        else:
            answer(connection)

    return serve


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"vllm:other 1\n" * 10_000)


def hanging(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
    connection.recv(1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("answer", "reason", "word"),
    [
        (endless, "bad_metrics", "larger than"),
        (http(b"#" * 50_000_000), "bad_metrics", "larger than"),
        (hanging, "timeout", "longer than"),
        (http(b"\x00\xff\x00" * 999), "bad_metrics", "none of the engine's"),
        (http(b"llamacpp:requests_processing 1\n"), "bad_metrics", "none of the"),
        (http(b"vllm:num_requests_running many\n"), "bad_metrics", "no number"),
        (http(b"", "404 Not Found"), "http_status", "404"),
        (http(b"<html>", "302 Found", "location: http://a/"), "http_status", "302"),
        (b"", "connection_lost", "Closed"),
        (b"SSH-2.0-OpenSSH\r\n", "bad_http", "not in HTTP"),
    ],
    ids=lambda value: value if isinstance(value, str) and "_" in value else "",
)
def test_metrics_that_are_none_are_a_stated_reason_and_no_harm(
    fleet: Fleet,
    peer: Callable[..., Peer],
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
    reason: str,
    word: str,
) -> None:
    if answer is hanging:
        monkeypatch.setattr(asking, "SCRAPE_TIMEOUT_S", 0.5)
    serve = metrics_of(answer)
    serve.peer = peer(serve)
    replica = fleet.static(serve.peer.address, fleet.version(engine="vllm"))
    began = time.monotonic()
    replicas_probe()
    assert time.monotonic() - began < 10
    load = live.loads_read()[replica.id]
    assert (load.error, load.running) == (reason, None)
    assert word in load.detail and len(load.detail) < 300
    probe = record(replica).probe
    assert probe is not None and probe.state is Probe.WARMING


@pytest.mark.django_db(transaction=True)
def test_a_slow_scrape_keeps_no_probe_waiting_and_is_not_doubled(
    fleet: Fleet, peer: Callable[..., Peer]
) -> None:
    serve = metrics_of(http(b"vllm:num_requests_running 1\n"))
    serve.peer = peer(serve)
    replica = fleet.static(serve.peer.address, fleet.version(engine="vllm"))
    # As held by another call whose scrape takes long.
    live.redis_client().set(f"sluice:scrape:{replica.id}#lock", "1", px=5_000)
    assert replicas_probe()[replica.id]
    assert live.loads_read() == {}
    live.redis_client().delete(f"sluice:scrape:{replica.id}#lock")
    replicas_probe()
    assert live.loads_read()[replica.id].running == 1
    assert live.redis_client().keys("*#lock") == []


@pytest.mark.django_db(transaction=True)
def test_a_replica_that_is_down_or_gone_shows_no_old_load(
    fleet: Fleet, peer: Callable[..., Peer]
) -> None:
    serve = metrics_of(http(b"vllm:num_requests_running 1\n"))
    serve.peer = peer(serve)
    replica = fleet.static(serve.peer.address, fleet.version(engine="vllm"))
    replicas_probe()
    serve.peer.answer = lambda connection: connection.sendall(http(b"", "500 No"))
    replicas_probe()
    load = live.loads_read()[replica.id]
    assert (load.error, load.running) == ("not_up", None)
    replica_remove(replica=replica, actor=fleet.actor)
    assert live.loads_read() == {}
    live.load_write("left-behind", Load(1.0), unlock="none")
    replicas_probe()
    assert live.loads_read() == {}


@pytest.mark.django_db(transaction=True)
def test_a_minute_becomes_one_row_with_mean_and_maximum(fleet: Fleet) -> None:
    replica = fleet.static("http://127.0.0.1:9")
    for second, running in [(0, 1.0), (5, 2.0), (59, 6.0), (60, 50.0)]:
        load = Load(6000.0 + second, running=running, kv_cache=0.5)
        live.load_write(replica.id, load, unlock="none")
    live.load_write("gone", Load(6001.0, running=1), unlock="none")
    live.load_write(replica.id, Load(6002.0, error="timeout"), unlock="none")
    assert samples_write(now=6069.0) == 0
    assert samples_write(now=6070.0) == 1
    row = Sample.objects.get()
    assert row.minute == datetime.fromtimestamp(6000, UTC)
    assert (row.scrapes, row.running_mean, row.running_max) == (3, 3.0, 6.0)
    assert (row.kv_mean, row.waiting_mean, row.ttft_ms_max) == (0.5, None, None)
    assert samples_write(now=6071.0) == 0
    # Written, and cut off before the list was dropped.
    live.load_write(replica.id, Load(6003.0, running=9), unlock="none")
    samples_write(now=6072.0)
    assert Sample.objects.get().running_max == 6.0


@pytest.mark.django_db(transaction=True)
def test_samples_of_many_replicas_are_cheap_and_old_ones_go(fleet: Fleet) -> None:
    version = fleet.version()
    ids = [f"many-{number}" for number in range(500)]
    Replica.objects.bulk_create(
        Replica(id=id_, version=version, number=number, driver="static")
        for number, id_ in enumerate(ids, start=1)
    )
    for second in range(0, 60, 5):
        for id_ in ids:
            live.load_write(id_, Load(6000.0 + second, running=1), unlock="none")
    began = time.process_time()
    assert samples_write(now=6080.0) == 500
    assert time.process_time() - began < 0.5
    week_later = datetime.fromtimestamp(6000, UTC) + timedelta(days=7)
    assert samples_prune(now=week_later) == 0
    assert samples_prune(now=week_later + timedelta(seconds=1)) == 500


@pytest.fixture
def mock_everywhere() -> Iterator[int]:
    """The port of a mock engine on every address of the loopback network."""
    command = [sys.executable, "-m", "cluster.engines.mock", "--host", "0.0.0.0"]
    with subprocess.Popen(
        [*command, "--model", "smol"], stdout=subprocess.PIPE
    ) as mock:
        assert mock.stdout is not None
        yield int(json.loads(mock.stdout.readline())["port"])
        mock.send_signal(signal.SIGTERM)


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_two_hundred_replicas_cost_a_tenth_of_a_core_at_most(
    fleet: Fleet, mock_everywhere: int
) -> None:
    version = fleet.version(engine="vllm")
    Replica.objects.bulk_create(
        Replica(
            id=f"m-{number}",
            version=version,
            number=number,
            driver="static",
            address=f"http://127.0.0.{number}:{mock_everywhere}",
        )
        for number in range(2, 202)
    )
    replicas_probe()
    began = time.process_time()
    axes = replicas_probe()
    took_s = time.process_time() - began
    assert all(axis and axis.state is Probe.WARMING for axis in axes.values())
    loads = live.loads_read()
    assert len(loads) == 200
    assert all(load.tokens_per_s == 0 for load in loads.values())
    assert took_s < 0.1 * 5, took_s
