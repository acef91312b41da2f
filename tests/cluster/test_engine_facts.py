"""What engines say that they are: read rarely, bounded, and never trusted."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import redis

from cluster import live
from cluster.engines import engine_get
from cluster.engines.telling import TELLING_LIMIT, names_read, version_read
from cluster.health import Probe, ProbeAxis, Process, ProcessAxis, Record
from cluster.health.engine_facts import (
    ENGINE_FACTS,
    EngineFacts,
    engine_facts_decode,
    facts_due,
    releases_of,
)
from cluster.models import Engine, Replica
from cluster.selectors import engine_views
from cluster.services import engine_facts, engines_ask, replica_remove
from tests.cluster.conftest import Fleet
from tests.cluster.peers import Peer, http
from tests.fakes.engine import MockEngine

NOW = 1000.0
UP = ProbeAxis(Probe.UP, 100.0)
KNOWN = EngineFacts(NOW - 10, 1, release="0.33.0")
EMPTY = EngineFacts(NOW - 10, 1)
DATABASE = pytest.mark.django_db(transaction=True)


def facts(**changes: Any) -> EngineFacts:
    known = EngineFacts(NOW - 10, 1, release="1")
    return msgspec.structs.replace(known, **changes)


@pytest.mark.parametrize(
    ("record", "before", "due"),
    [
        (Record(probe=UP), None, True),
        (Record(probe=UP), KNOWN, False),
        (Record(probe=UP), facts(at=NOW - 299), False),
        (Record(probe=UP), facts(at=NOW - 300), True),
        (Record(probe=UP), EMPTY, False),
        (Record(probe=UP), facts(release="", at=NOW - 60), True),
        (Record(probe=UP), facts(models=("a",), release="", at=NOW - 60), False),
        # It came back: another engine may stand there now.
        (Record(probe=ProbeAxis(Probe.UP, NOW - 5)), KNOWN, True),
        (Record(probe=UP), facts(is_current=False), True),
        (Record(probe=UP), facts(at=NOW + 3600), True),
        # Only whoever is up is asked.
        (Record(), None, False),
        (Record(probe=ProbeAxis(Probe.WARMING, 1.0)), None, False),
        (Record(probe=ProbeAxis(Probe.DOWN, 1.0, "refused")), KNOWN, False),
        # The probe, or the facts, are those of an earlier process.
        (Record(process=ProcessAxis(Process.RUNNING, 200.0), probe=UP), None, False),
        (
            Record(
                process=ProcessAxis(Process.RUNNING, 200.0),
                probe=ProbeAxis(Probe.UP, 201.0, process_since=200.0),
            ),
            facts(process_since=100.0),
            True,
        ),
    ],
)
def test_when_an_engine_is_asked(
    record: Record, before: EngineFacts | None, due: bool
) -> None:
    assert facts_due(record, before, now=NOW) is due


@pytest.mark.parametrize("name", Engine.values)
def test_every_engine_says_where_it_tells_its_release(name: str) -> None:
    engine = engine_get(name)
    assert engine.version_paths and engine.version_field
    assert all(path.startswith("/") for path in engine.version_paths)


@pytest.mark.parametrize(
    ("status", "body", "release"),
    [
        (200, b'{"version":"0.33.0"}', "0.33.0"),
        (200, b'{"version":"0.5\\u0000\\n.23"}', "0.5 .23"),
        (200, b'{"version":"\\ud800"}', "?"),
        (200, b'{"version":33}', ""),
        (200, b'{"version":null}', ""),
        (200, b'["version"]', ""),
        (200, b"<!doctype html>", ""),
        (200, b"\x00\xff\xfe" * 50, ""),
        (200, b'{"version":' * 20_000, ""),
        (200, b"", ""),
        (404, b'{"version":"0.33.0"}', ""),
        (302, b'{"version":"0.33.0"}', ""),
        (200, b'{"version":"1"}' + b" " * TELLING_LIMIT, ""),
    ],
)
def test_a_release_is_a_text_in_a_good_answer(
    status: int, body: bytes, release: str
) -> None:
    found = version_read(status, body, "version")
    assert found == release if release != "?" else found.isprintable()


def test_a_release_is_never_longer_than_a_line() -> None:
    body = json.dumps({"version": "9" * 5000}).encode()
    assert len(version_read(200, body, "version")) <= 120


LLAMA = b'{"models":[],"object":"list","data":[{"id":"a","aliases":["b","a",5]}]}'


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"data":[{"id":"qwen"},{"id":"lora"}]}', ["qwen", "lora"]),
        (b'{"data":[{"id":"qwen"},{"id":"qwen"}]}', ["qwen"]),
        (LLAMA, ["a", "b"]),
        (b'{"data":[]}', []),
        (b'{"data":[{"id":7}]}', None),
        (b'{"data":["qwen"]}', None),
        (b'{"data":{"id":"qwen"}}', None),
        (b'{"models":[]}', None),
        (b"<html>", None),
        (b"[" * 60_000, None),
        (b"", None),
    ],
)
def test_names_are_read_from_an_openai_list_or_not_at_all(
    body: bytes, names: list[str] | None
) -> None:
    assert names_read(200, body) == names
    assert names_read(500, body) is None


@pytest.mark.parametrize(
    ("engine", "artifact", "params", "listed", "serves"),
    [
        ("vllm", "/m/qwen", {}, "qwen", True),
        ("vllm", "/m/qwen", {}, "/m/qwen", False),
        ("ollama", "", {}, "qwen:latest", True),
        ("ollama", "", {}, "qwen:8b", False),
        ("sglang", "/m/qwen", {}, "other", False),
        # TGI calls the model after what it loaded.
        ("tgi", "/m/qwen", {}, "/m/qwen", True),
        ("tgi", "", {"model": "Qwen/Qwen3-8B"}, "Qwen/Qwen3-8B", True),
        ("tgi", "", {}, "", False),
    ],
)
def test_a_listed_name_is_the_versions_or_not(
    engine: str, artifact: str, params: dict[str, Any], listed: str, serves: bool
) -> None:
    assert (listed in engine_get(engine).names("qwen", artifact, params)) is serves


def test_the_releases_of_a_version_are_those_that_run_now() -> None:
    known = [
        facts(release="2"),
        facts(release="1"),
        facts(release="1"),
        facts(release=""),
        facts(release="3", version_id=2),
        facts(release="4", is_current=False),
    ]
    assert releases_of(known, 1) == ["1", "2"]


@pytest.mark.parametrize("raw", [None, b"", b"x", b'{"at":"now"}', b"[]"])
def test_facts_that_cannot_be_read_are_none(raw: bytes | None) -> None:
    assert engine_facts_decode(raw) is None


# With a Redis and replicas that answer -------------------------------------------


def up(replica: Replica, state: Probe = Probe.UP) -> None:
    live.axis_write(replica.id, ProbeAxis(state, round(time.time() - 1, 3)))


def known(replica: Replica) -> EngineFacts:
    return live.engine_facts_read()[replica.id]


def engine_at(peer: Callable[..., Peer], answers: dict[str, bytes]) -> str:
    """The address of a peer that answers by path, one question a connection."""

    def answer(connection: socket.socket) -> None:
        path = made.asked[-1].split()[1]
        connection.sendall(answers.get(path, http(b"{}", "404 Not Found")))

    made = peer(answer)
    return made.address


def told(release: str, *names: str) -> dict[str, bytes]:
    listed = {"object": "list", "data": [{"id": name} for name in names]}
    return {
        "/version": http(json.dumps({"version": release}).encode()),
        "/v1/models": http(json.dumps(listed).encode()),
    }


@DATABASE
def test_an_engine_is_asked_once_and_again_after_its_return(fleet: Fleet) -> None:
    with MockEngine(model="smol", record=True) as engine:
        replica = fleet.static(engine.address)
        assert engines_ask() == []
        up(replica)
        assert engines_ask() == [replica.id]
        assert engines_ask() == []
        found = known(replica)
        assert (found.release, found.models) == ("mock", ("smol",))
        assert (found.serves_name, found.model_count) == (True, 1)
        assert found.version_id == replica.version_id
        asked = [request["path"] for request in engine.requests()]
        assert asked == ["/version", "/v1/models"]
        up(replica, Probe.DOWN)
        assert engines_ask() == []
        assert not known(replica).is_current and known(replica).release == "mock"
        up(replica)
        assert engines_ask() == [replica.id]
        assert known(replica).is_current


@DATABASE
def test_a_name_that_is_not_listed_and_another_release_are_told(
    fleet: Fleet, peer: Callable[..., Peer]
) -> None:
    right = fleet.static(engine_at(peer, told("0.11.0", "smol", "lora")))
    other = fleet.static(engine_at(peer, told("0.33.0", "llama")), right.version)
    alone = fleet.static(
        engine_at(peer, told("0.9.0", "smol")), fleet.version("v2", "vllm")
    )
    for replica in (right, other, alone):
        up(replica)
    assert set(engines_ask()) == {right.id, other.id, alone.id}
    views = engine_views([right, other, alone])
    assert known(right).serves_name is True and known(other).serves_name is False
    assert known(other).models == ("llama",)
    assert views[right.id].releases == views[other.id].releases == ["0.11.0", "0.33.0"]
    assert views[right.id].releases_differ and not views[alone.id].releases_differ
    # What does not answer any more is no comparison.
    up(other, Probe.DOWN)
    engines_ask()
    assert not engine_views([right])[right.id].releases_differ


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b'{"version":"1",' + b" " * 65_536)


def silent(connection: socket.socket) -> None:
    connection.settimeout(10)
    connection.recv(1)


HOSTILE = [
    http(b"<!doctype html><p>router</p>"),
    http(b"\x00\xff\xfe\x80" * 9000),
    http(b'{"version":{"a":1},"data":[1,2]}'),
    http(b"[" * 60_000),
    http(b"", "302 Found", "location: http://127.0.0.1/"),
    http(b'{"version":"1","data":[]}', "500 Internal Server Error"),
    http(b'{"version":"1"', "200 OK").replace(b": 14", b": 9999"),
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"",
    endless,
    silent,
]


@DATABASE
def test_whatever_answers_a_fact_stays_unknown_and_nobody_else_suffers(
    fleet: Fleet, peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_facts, "ANSWER_TIMEOUT_S", 1.0)
    version = fleet.version(engine="sglang")
    strange = [fleet.static(peer(answer).address, version) for answer in HOSTILE]
    with MockEngine(model="smol") as engine:
        good = fleet.static(engine.address, version)
        for replica in (good, *strange):
            up(replica)
        began = time.monotonic()
        assert len(engines_ask()) == len(strange) + 1
        assert time.monotonic() - began < 10
    for replica in strange:
        found = known(replica)
        assert (found.release, found.models, found.serves_name) == ("", None, None)
    assert known(good).release == "mock"
    assert not engine_views([good])[good.id].releases_differ


@DATABASE
def test_thousands_of_names_are_counted_and_the_right_one_is_found(
    fleet: Fleet, peer: Callable[..., Peer]
) -> None:
    names = [f"m{number}" for number in range(3000)]
    replica = fleet.static(engine_at(peer, told("1", *names, "smol")))
    up(replica)
    engines_ask()
    found = known(replica)
    assert (len(found.models or ()), found.model_count) == (20, 3001)
    assert found.serves_name is True


@DATABASE
def test_two_calls_at_once_ask_once(fleet: Fleet, peer: Callable[..., Peer]) -> None:
    gone_on = threading.Event()

    def answer(connection: socket.socket) -> None:
        gone_on.wait(10)
        connection.sendall(http(b'{"version":"1"}'))

    replica = fleet.static(peer(answer).address)
    up(replica)
    results: list[list[str]] = []
    thread = threading.Thread(target=lambda: results.append(asked_and_closed()))
    thread.start()
    client = live.redis_client()
    deadline = time.monotonic() + 10
    while not client.exists("sluice:engine-facts#lock"):
        assert time.monotonic() < deadline
    assert engines_ask() == []
    gone_on.set()
    thread.join(20)
    assert results == [[replica.id]]


def asked_and_closed() -> list[str]:
    from django.db import connections

    try:
        return engines_ask()
    finally:
        connections.close_all()


@DATABASE
def test_a_removed_replica_leaves_no_facts(
    fleet: Fleet, valkey: redis.Redis, peer: Callable[..., Peer]
) -> None:
    replica = fleet.static(engine_at(peer, told("1", "smol")))
    up(replica)
    engines_ask()
    valkey.hset(ENGINE_FACTS, "gone-long-ago", b'{"at":1,"version_id":9}')
    replica_remove(replica=replica, actor=fleet.actor)
    assert replica.id not in live.engine_facts_read()
    engines_ask()
    assert live.engine_facts_read() == {}
