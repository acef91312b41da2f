"""Probing: what replicas answer, hostile ones too, and when it is believed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from django.db import connections

from cluster import live
from cluster.engines import engine_get
from cluster.health import Probe, ProbeAxis, Process, ProcessAxis, Reading, state_merge
from cluster.health.probing import START_LIMIT_S, Streak, probe_next
from cluster.models import Replica
from cluster.services import asking, replicas_probe
from cluster.services.asking import asking_client, health_ask
from tests import services
from tests.cluster.conftest import Fleet, record

UP = Reading(Probe.UP)
LOADING = Reading(Probe.LOADING, "loading", "l")
LATE = Reading(Probe.DOWN, "timeout", "t")
LOST = Reading(Probe.DOWN, "connection_lost", "c")
REFUSED = Reading(Probe.DOWN, "refused", "r")
WRONG = Reading(Probe.DOWN, "html", "h")


def walk(*readings: Reading, process_since: float = 0.0) -> list[str]:
    """The states after each reading, a second apart."""
    axis: ProbeAxis | None = None
    streak, states = Streak(), []
    for second, reading in enumerate(readings, start=1):
        axis, streak = probe_next(
            axis, streak, reading, process_since=process_since, now=float(second)
        )
        states.append(axis.state.value if axis else "-")
    return states


@pytest.mark.parametrize(
    ("readings", "states"),
    [
        ([UP], "up"),
        ([REFUSED], "down"),
        ([WRONG], "down"),
        ([UP, REFUSED], "up down"),
        ([UP, LATE, LATE, LATE], "up up up down"),
        ([UP, LATE, LOST, LATE], "up up up down"),
        ([UP, LATE, LATE, UP, LATE, LATE, UP], "up up up up up up up"),
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
    assert axis == ProbeAxis(Probe.UP, 10.0, process_since=9.0)
    axis, after = probe_next(before, streak, LATE, process_since=9.0, now=10.0)
    assert (axis, after.failures) == (None, 1)


def test_since_is_when_the_state_began_and_not_when_the_reason_changed() -> None:
    before = ProbeAxis(Probe.DOWN, 5.0, "refused", "r")
    axis, _ = probe_next(before, Streak(), WRONG, process_since=0.0, now=9.0)
    assert axis == ProbeAxis(Probe.DOWN, 5.0, "html", "h")
    same, _ = probe_next(axis, Streak(), WRONG, process_since=0.0, now=11.0)
    assert same == axis


CUT_OFF = b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"


class Peer:
    """A server that answers each connection with whatever a test wants."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            thread.start()
            self.threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            self.asked.append(
                connection.recv(65_536).split(b"\r\n")[0].decode("latin-1")
            )
            self.answer(connection)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(10)


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def make(answer: bytes | Callable[[socket.socket], None]) -> Peer:
        if isinstance(answer, bytes):
            content = answer
            peers.append(Peer(lambda connection: connection.sendall(content)))
        else:
            peers.append(Peer(answer))
        return peers[-1]

    yield make
    for one in peers:
        one.close()


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def ask(address: str, engine: str = "llamacpp", **params: Any) -> Reading:
    async def question() -> Reading:
        async with asking_client() as client:
            return await health_ask(
                client,
                address,
                engine=engine_get(engine),
                params=params,
                served_name="smol",
            )

    return asyncio.run(question())


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(50):
        connection.sendall(b"x" * 1_000_000)


def bottomless_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for _ in range(5_000):
        connection.sendall(b"x-more: and more and more and more\r\n")


def silent(connection: socket.socket) -> None:
    connection.recv(1)


def hanging_after_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n")
    connection.recv(1)


def trickling(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(50):
        connection.sendall(b"x")
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        (http(b'{"status":"ok"}'), Probe.UP, ""),
        (
            http(
                b'{"error":{"message":"Loading model","code":503}}',
                "503 Service Unavailable",
            ),
            Probe.LOADING,
            "loading",
        ),
        (http(b"<html>hello</html>"), Probe.DOWN, "html"),
        (http(b"", "302 Found", "location: http://a/"), Probe.DOWN, "redirect"),
        (http(b"\x00\xff" * 100), Probe.DOWN, "wrong_answer"),
        (endless, Probe.DOWN, "too_large"),
        (http(b"x" * 70_000), Probe.DOWN, "too_large"),
        (bottomless_headers, Probe.DOWN, "bad_http"),
        (b"\x16\x03\x01\x00\xff not http at all\r\n\r\n", Probe.DOWN, "bad_http"),
        (b"", Probe.DOWN, "connection_lost"),
        (CUT_OFF, Probe.DOWN, "connection_lost"),
        (silent, Probe.DOWN, "timeout"),
        (hanging_after_headers, Probe.DOWN, "timeout"),
        (trickling, Probe.DOWN, "timeout"),
        (http(b"zz", "200 OK", "content-encoding: gzip"), Probe.DOWN, "wrong_answer"),
    ],
)  # fmt: skip
def test_whatever_answers_is_read_within_bounds(
    peer: Callable[..., Peer],
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes | Callable[[socket.socket], None],
    state: Probe,
    reason: str,
) -> None:
    monkeypatch.setattr(asking, "READ_TIMEOUT_S", 0.3)
    monkeypatch.setattr(asking, "TOTAL_TIMEOUT_S", 1.0)
    began = time.monotonic()
    reading = ask(peer(answer).address)
    assert (reading.state, reading.reason) == (state, reason)
    assert time.monotonic() - began < 3


def test_a_redirect_is_not_followed(peer: Callable[..., Peer]) -> None:
    other = peer(http(b'{"status":"ok"}'))
    ask(peer(http(b"", "307 X", f"location: {other.address}/")).address)
    assert other.asked == []


def test_where_nothing_answers_the_reason_is_exact(
    peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert ask(f"http://127.0.0.1:{port}").reason == "refused"
    assert ask(f"http://[::1]:{port}").reason in ("refused", "unreachable")
    assert ask("http://no-such-host.invalid:80").reason == "unknown_host"
    assert ask("http://" + "a" * 70 + ":80").state is Probe.DOWN
    plain = peer(http(b""))
    assert ask(plain.address.replace("http:", "https:")).reason == "tls"


def test_engines_that_check_names_are_asked_for_them_too(
    peer: Callable[..., Peer],
) -> None:
    names = json.dumps({"data": [{"id": "other"}]}).encode()

    def answer(connection: socket.socket) -> None:
        connection.sendall(http(b"" if "health" in vllm.asked[-1] else names))

    vllm = peer(answer)
    reading = ask(vllm.address, "vllm")
    assert reading.reason == "model_not_offered"
    assert reading.detail == "Serves other; not smol."
    assert vllm.asked == ["GET /health HTTP/1.1", "GET /v1/models HTTP/1.1"]


def test_the_health_path_of_another_server_is_its_versions(
    peer: Callable[..., Peer],
) -> None:
    other = peer(http(b"fine"))
    assert ask(other.address, "generic", **{"health-path": "/status?a=1"}) == UP
    assert other.asked == ["GET /status?a=1 HTTP/1.1"]


def test_a_proxy_of_the_environment_is_not_used(
    peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, engine = peer(http(b"<html>")), peer(http(b'{"status":"ok"}'))
    monkeypatch.setenv("HTTP_PROXY", proxy.address)
    monkeypatch.setenv("ALL_PROXY", proxy.address)
    assert ask(engine.address) == UP
    assert proxy.asked == []


@pytest.mark.django_db(transaction=True)
class TestService:
    """The service: whom it asks, what it counts, what it writes."""

    def test_every_replica_is_asked_and_its_answer_written(
        self, fleet: Fleet, peer: Callable[..., Peer]
    ) -> None:
        good = fleet.static(peer(http(b"")).address)
        bad = fleet.static(peer(http(b"<p>")).address, good.version)
        axes = replicas_probe()
        assert {id_: axis and axis.state for id_, axis in axes.items()} == {
            good.id: Probe.UP,
            bad.id: Probe.DOWN,
        }
        assert record(good).probe == axes[good.id]
        assert state_merge(record(good)).eligible
        assert not state_merge(record(bad)).eligible

    def test_an_unchanged_answer_writes_nothing(
        self, fleet: Fleet, peer: Callable[..., Peer]
    ) -> None:
        fleet.static(peer(http(b"")).address)
        replicas_probe()
        number = live.redis_client().get("sluice:replicas#number")
        replicas_probe()
        assert live.redis_client().get("sluice:replicas#number") == number
        assert live.redis_client().keys("sluice:probe:*") == []

    def test_counts_survive_the_worker_that_made_them(
        self, fleet: Fleet, peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(asking, "READ_TIMEOUT_S", 0.1)
        answers = [http(b""), b"", b"", b"", http(b""), http(b"")]

        def answer(connection: socket.socket) -> None:
            connection.sendall(answers[len(flaky.asked) - 1])

        flaky = peer(answer)
        replica = fleet.static(flaky.address)
        states = []
        for _ in answers:
            axis = replicas_probe()[replica.id]
            states.append(axis.state.value if axis else "-")
        assert states == ["up", "up", "up", "down", "down", "up"]

    def test_two_probers_at_once_ask_once(
        self, fleet: Fleet, peer: Callable[..., Peer]
    ) -> None:
        replica = fleet.static(peer(b"").address)
        lock = f"sluice:probe:{replica.id}#lock"
        live.redis_client().set(lock, "1", px=5_000)
        assert replicas_probe() == {}
        live.redis_client().delete(lock)
        assert replicas_probe() == {replica.id: None}
        assert live.redis_client().get(lock) is None

    def test_only_running_processes_are_asked(
        self, fleet: Fleet, peer: Callable[..., Peer]
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

    def test_a_slow_replica_delays_no_other(
        self, fleet: Fleet, peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(asking, "READ_TIMEOUT_S", 2.0)
        first_asked = threading.Event()

        def wait(connection: socket.socket) -> None:
            first_asked.set()
            connection.recv(1)

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
            deadline = time.monotonic() + 0.9
            while not replicas_probe(replica_ids=[quick.id]):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert record(quick).probe is not None
            assert replicas_probe(replica_ids=[slow.id]) == {}
        finally:
            probing.join(10)

    def test_two_hundred_replicas_are_probed_in_one_go(
        self, fleet: Fleet, peer: Callable[..., Peer]
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
        began = time.monotonic()
        axes = replicas_probe()
        took_s = time.monotonic() - began
        assert len(axes) == 200
        assert all(axis and axis.state is Probe.UP for axis in axes.values())
        assert took_s < 5, took_s

    def test_without_redis_the_caller_is_told(
        self, fleet: Fleet, peer: Callable[..., Peer], valkey_server: services.Valkey
    ) -> None:
        fleet.static(peer(http(b"")).address)
        valkey_server.kill()
        try:
            with pytest.raises(redis.RedisError):
                replicas_probe()
        finally:
            valkey_server.start()
