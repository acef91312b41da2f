"""The websocket of a page, spoken to over a real connection."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.test import Client
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from cluster.announce import live_announce
from cluster.health import Probe
from cluster.health.inflight import OpenRequest, inflight_fields, inflight_name
from cluster.health.load import Load
from cluster.live import load_write
from cluster.models import Replica
from console.accounts.models import User
from console.live import consumers
from console.live.hub import Hub, Message, Outbox
from console.live.producer import hub
from tests import fleet
from tests.e2e.asgi_server import ConsoleServer, console_server

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def server(transactional_db: None) -> Iterator[ConsoleServer]:
    with console_server() as server:
        yield server
        # The next test begins with nobody watching.
        until_nobody_watches()


def until_nobody_watches() -> None:
    deadline = time.monotonic() + 10
    while hub.topics or hub.busy:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def replica() -> Replica:
    return fleet.replica_add(fleet.model_add("qwen", "v1"), "v1", 8001)


def opened(server: ConsoleServer, page: Client | None, **options: Any) -> Any:
    session = page.cookies["sluice_session"].value if page else ""
    url = f"ws://127.0.0.1:{server.port}{options.pop('path', '/live')}"
    headers = {"Cookie": f"sluice_session={session}"}
    origin = options.pop("origin", server.url)
    return connect(url, origin=origin, additional_headers=headers, proxy=None)


def watch(socket: ClientConnection, *topics: str) -> None:
    socket.send(json.dumps({"subscribe": topics}))
    while heard(socket)["type"] != "subscribed":
        pass


def heard(socket: ClientConnection, kind: str = "", within_s: float = 15) -> Any:
    """The next message, or the next of a kind."""
    deadline = time.monotonic() + within_s
    while True:
        message = json.loads(socket.recv(timeout=deadline - time.monotonic()))
        if kind in ("", message["type"]):
            return message


def close_code(socket: ClientConnection, within_s: float = 15) -> int:
    deadline = time.monotonic() + within_s
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            socket.recv(timeout=deadline - time.monotonic())
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


def test_nobody_listens_without_a_login(server: ConsoleServer) -> None:
    with opened(server, None) as socket:
        assert close_code(socket) == consumers.LOGGED_OUT


@pytest.mark.parametrize("origin", ["http://evil.example", "null", None])
def test_a_page_of_another_site_is_refused(
    server: ConsoleServer, page: Client, origin: str | None
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        opened(server, page, origin=origin)
    assert refused.value.response.status_code == 403


def test_another_path_is_refused(server: ConsoleServer, page: Client) -> None:
    with pytest.raises(InvalidStatus):
        opened(server, page, path="/other")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "nonsense",
        '{"subscribe": ["everything"]}',
        '{"subscribe": ["replica."]}',
        json.dumps({"subscribe": [f"replica.{n}" for n in range(9)]}),
    ],
)
def test_anything_but_a_subscription_ends_the_conversation(
    server: ConsoleServer, page: Client, text: str
) -> None:
    with opened(server, page) as socket:
        socket.send(text)
        assert close_code(socket) == consumers.BAD_MESSAGE


def test_messages_are_numbered_from_one_and_a_change_is_told_within_two_seconds(
    server: ConsoleServer, page: Client, replica: Replica
) -> None:
    with opened(server, page) as socket:
        watch(socket, "replicas", f"replica.{replica.id}")
        heard(socket, "figures")
        took_s = []
        for detail in ("refused", "no route", "refused again"):
            began = time.monotonic()
            fleet.probe_write(replica, Probe.DOWN, detail)
            first, second = heard(socket, "changed"), heard(socket, "changed")
            took_s.append(time.monotonic() - began)
            assert {first["topic"], second["topic"]} == {
                "replicas",
                f"replica.{replica.id}",
            }
            assert second["seq"] == first["seq"] + 1
        # A busy machine may hold one of them up.
        assert min(took_s) < 2


def test_what_a_service_announces_reaches_those_who_watch_it(
    server: ConsoleServer, page: Client, replica: Replica
) -> None:
    with opened(server, page) as socket:
        watch(socket, f"replica.{replica.id}")
        live_announce({"type": "replica.changed", "id": replica.id})
        assert heard(socket, "changed")["topic"] == f"replica.{replica.id}"


def test_numbers_come_once_whole_and_then_as_they_differ(
    server: ConsoleServer, page: Client, replica: Replica, valkey: redis.Redis
) -> None:
    fleet.gateway_set("g1")
    open_ = OpenRequest("r1", "search", 2.0, True, 7)
    fields: Any = inflight_fields({replica.id: [open_]})
    valkey.hset(inflight_name("g1"), mapping=fields)
    load_write(replica.id, Load(time.time(), running=1, kv_cache=0.25), unlock="x")
    with opened(server, page) as socket:
        watch(socket, f"replica.{replica.id}", "replicas")
        found = [heard(socket, "figures"), heard(socket, "figures")]
        one = next(m for m in found if m["topic"] != "replicas")
        assert one["values"]["in_flight"] == 1 and one["values"]["kv"] == 25
        assert one["values"]["waiting"] is None
        assert one["requests"][0]["team"] == "search"
        listed = next(m for m in found if m["topic"] == "replicas")
        assert listed["rows"][replica.id]["in_flight"] == 1
        load_write(replica.id, Load(time.time(), running=2, kv_cache=0.25), unlock="x")
        later = heard(socket, "figures")
        while "running" not in later.get("values", ()):
            later = heard(socket, "figures")
        assert later["values"]["running"] == 2
        assert later["values"].keys() <= {"running", "next_probe_s"}


def test_a_session_that_ends_elsewhere_ends_the_socket(
    server: ConsoleServer, page: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "HEARTBEAT_S", 0.1)
    with opened(server, page) as socket:
        watch(socket, "replicas")
        assert heard(socket)["type"]
        page.logout()
        assert close_code(socket) == consumers.LOGGED_OUT
    assert consumers.HEARTBEAT_S < 10


def test_a_disabled_person_is_heard_no_more(
    server: ConsoleServer, page: Client, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "HEARTBEAT_S", 0.1)
    with opened(server, page) as socket:
        watch(socket, "replicas")
        User.objects.filter(pk=user.pk).update(is_active=False)
        assert close_code(socket) == consumers.LOGGED_OUT


def test_work_is_done_only_while_somebody_watches(
    server: ConsoleServer, page: Client
) -> None:
    with opened(server, page) as socket:
        working = [hub.busy]
        watch(socket, "replicas")
        working.append(hub.busy)
    until_nobody_watches()
    assert working == [False, True]


def test_without_redis_the_socket_is_refused_and_pages_work(
    page: Client, redis_away: None
) -> None:
    layers: Any = django_settings.CHANNEL_LAYERS
    host = layers["default"]["CONFIG"]["hosts"][0]
    usual = host["address"]
    host["address"] = django_settings.REDIS_URL
    try:
        with console_server() as server, pytest.raises(InvalidStatus):
            opened(server, page)
        live_announce({"type": "node.changed", "name": "local"})
        assert page.get("/replicas").status_code == 200
    finally:
        host["address"] = usual


async def _next_seqs(outbox: Outbox, count: int) -> list[int]:
    return [(await outbox.next())["seq"] for _ in range(count)]


def test_a_reader_that_is_too_slow_can_tell_that_it_lost_something() -> None:
    outbox = Outbox(2)
    for _ in range(3):
        outbox.put({"type": "beat"})
    assert asyncio.run(_next_seqs(outbox, 2)) == [1, 2]
    outbox.put({"type": "beat"})
    assert asyncio.run(_next_seqs(outbox, 1)) == [4]


def test_a_watcher_that_leaves_twice_does_no_harm() -> None:
    class Quiet:
        def offer(self, message: Message) -> None:
            raise AssertionError

    async def nothing(hub: Hub) -> None:
        return

    quiet = Hub(nothing)
    quiet.leave("replicas", Quiet())
    quiet.tell("replicas", {"type": "beat"})
    assert quiet.topics == []
