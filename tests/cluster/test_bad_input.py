"""Whatever a machine or an engine does wrong is a stated reason on its page, and
harms nothing beside it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client
from django.utils.html import escape

from cluster import live
from cluster.health import Probe, ProbeAxis
from cluster.models import Replica
from cluster.services import asking, node_reconcile, replicas_probe
from console.accounts.models import User
from tests.cluster.conftest import SLEEP, Fleet, disk_fill
from tests.cluster.peers import Peer, http

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = http(b'{"data":[{"id":"smol"}]}')
FIGURES = http(b"vllm:num_requests_running 7\n")
Answer = bytes | Callable[[socket.socket], None]


@pytest.fixture
def page() -> Client:
    client = Client()
    client.force_login(
        User.objects.create_user("ada", password="correct horse", role="admin")
    )
    return client


def text_of(page: Client, replica: Replica) -> str:
    return page.get(f"/replicas/{replica.id}").content.decode()


def vllm(peer: Callable[..., Peer], health: Answer, metrics: Answer) -> str:
    """The address of a vLLM of these answers, which offers its model."""

    def serve(connection: socket.socket) -> None:
        answer: Answer = NAMES
        if "/metrics" in engine.asked[-1]:
            answer = metrics
        elif "/health" in engine.asked[-1]:
            answer = health
        if isinstance(answer, bytes):
            connection.sendall(answer)
        else:
            answer(connection)

    engine: Peer = peer(serve)
    return engine.address


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b"vllm:other 1\n" * 10_000)


def hanging(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
    connection.recv(1)


HEALTHS: dict[str, tuple[Answer, str]] = {
    "redirects": (http(b"", "302 Found", "location: http://a/"), "a redirect"),
    "answers with a web page": (http(b"<html>hello</html>"), "with a web page"),
    "hangs after its headers": (hanging, "No answer within 0.5 s."),
    "never ends": (endless, "longer than"),
    "speaks another protocol": (b"SSH-2.0-OpenSSH\r\n", "not in HTTP"),
    "closes": (b"", "Closed the connection"),
}


@pytest.mark.parametrize("name", HEALTHS)
def test_an_engine_that_is_none_says_so_on_its_page_and_the_next_one_is_well(
    fleet: Fleet,
    peer: Callable[..., Peer],
    page: Client,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    answer, reason = HEALTHS[name]
    version = fleet.version(engine="vllm")
    bad = fleet.static(vllm(peer, answer, FIGURES), version)
    good = fleet.static(vllm(peer, http(b""), FIGURES), version)
    if answer is hanging:
        monkeypatch.setattr(asking, "READ_TIMEOUT_S", 0.5)
    # A doubtful reading is believed when it came three times.
    for _ in range(3):
        replicas_probe()
    text = text_of(page, bad)
    assert ">Down<" in text and escape(reason) in text
    well = text_of(page, good)
    said = well.partition("<main")[2].partition("</main>")[0]
    assert ">Warming up<" in said and escape(reason) not in said
    assert live.loads_read()[good.id].running == 7


METRICS: dict[str, tuple[Answer, str]] = {
    "of 50 MB": (http(b"#" * 50_000_000), "larger than"),
    "without an end": (endless, "larger than"),
    "in binary": (http(b"\x00\xff\x00" * 999), "none of the engine's"),
    "of another engine": (http(b"llamacpp:requests_processing 1\n"), "none of the"),
    "without numbers": (http(b"vllm:num_requests_running many\n"), "no number"),
    "that hang": (hanging, "longer than"),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_that_are_none_are_told_on_the_page_of_a_replica_that_is_well(
    fleet: Fleet,
    peer: Callable[..., Peer],
    page: Client,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    answer, reason = METRICS[name]
    if answer is hanging:
        monkeypatch.setattr(asking, "SCRAPE_TIMEOUT_S", 0.5)
    version = fleet.version(engine="vllm")
    bad = fleet.static(vllm(peer, http(b""), answer), version)
    good = fleet.static(vllm(peer, http(b""), FIGURES), version)
    for replica in (bad, good):
        live.axis_write(replica.id, ProbeAxis(Probe.UP, 1.0))
    replicas_probe()
    text = text_of(page, bad)
    assert ">Healthy<" in text and "figures cannot be read" in text
    assert escape(reason) in text
    assert "figures cannot be read" not in text_of(page, good)
    assert live.loads_read()[good.id].running == 7


def test_a_taken_port_is_told_on_the_page_and_the_next_replica_starts(
    fleet: Fleet, page: Client
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        bad = fleet.replica(fleet.version(params={"command": SLEEP, "port": port}))
        good = fleet.replica(fleet.version("v2", params={"command": SLEEP}))
        node_reconcile(node=fleet.node)
        text = text_of(page, bad)
    assert ">Failed<" in text and f"Port {port} on 127.0.0.1 is taken." in text
    assert ">Loading<" in text_of(page, good)


def test_a_full_disk_is_told_on_the_page_and_what_runs_goes_on(
    fleet: Fleet, small_disk: Path, page: Client
) -> None:
    version = fleet.version(params={"command": SLEEP})
    good = fleet.replica(version)
    node_reconcile(node=fleet.node)
    bad = fleet.replica(version)
    disk_fill(small_disk)
    node_reconcile(node=fleet.node)
    text = text_of(page, bad)
    assert ">Failed<" in text and "No space left on device." in text
    assert ">Loading<" in text_of(page, good)


def test_a_model_that_is_not_offered_is_told_by_its_names(
    fleet: Fleet, peer: Callable[..., Peer], page: Client
) -> None:
    version = fleet.version(engine="vllm", served_name="large")
    replica = fleet.static(vllm(peer, http(b""), FIGURES), version)
    replicas_probe()
    text = text_of(page, replica)
    assert ">Down<" in text and "Serves smol; not large." in text
