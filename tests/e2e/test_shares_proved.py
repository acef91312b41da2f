"""5 000 requests for each way in which a split may go wrong: what the mocks received,
what was counted, what is shown and what was wanted agree. Real gateways and engines,
the way of the counts through Redis and the ingest into the database included."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from cluster import live
from cluster.health import Probe, ProbeAxis
from cluster.models import Replica, Version
from cluster.services import replica_create
from console.measured import share_warnings
from routing.evidence.shares import Agreement, shares_check
from routing.selectors import gateway_list
from routing.selectors.applied import route_applied
from routing.selectors.measured import (
    RouteCheck,
    RouteMeasured,
    check_list,
    measured_list,
    split_list,
)
from routing.services import counts_ingest, key_issue, team_create
from tests import fleet
from tests.e2e.product import eventually
from tests.fakes.engine import MockEngine
from tests.gateway import world
from tests.gateway.world import CHAT, GatewayProcess
from tests.services import Valkey

pytestmark = [
    pytest.mark.processes,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
]

REQUESTS = 5000
CONNECTIONS = 8
# So small by chance once in a million.
P_LEAST = 1e-6


def check() -> RouteCheck:
    return check_list(split_list(model="m"))["m"]


class Cluster:
    """Versions v1, v2 and v3 of one model on two engines each, behind two gateways.

    The replicas are listed in the given order, those of different versions mixed.
    """

    def __init__(self, stack: ExitStack, valkey: str, folder: Path) -> None:
        self.stack, self.valkey, self.folder = stack, valkey, folder
        self.engines: dict[str, list[MockEngine]] = {}
        self.gateways: list[GatewayProcess] = []
        self.key = ""

    def open(self, *order: str) -> None:
        model = fleet.model_add("m", "v1", "v2", "v3")
        for name in order:
            engine = self.stack.enter_context(MockEngine(tokens=1))
            self.engines.setdefault(name, []).append(engine)
            replica = replica_create(
                version=Version.objects.get(model=model, name=name),
                driver="static",
                address=engine.address,
                actor=fleet.ACTOR,
            )
            live.axis_write(replica.id, ProbeAxis(Probe.UP, time.time() - 120))
        team = team_create(slug="t", name="T", actor=fleet.ACTOR)
        _key, self.key = key_issue(team=team, name="k", actor=fleet.ACTOR)
        self.gateways = [
            self.stack.enter_context(world.gateway(self.folder / name, self.valkey))
            for name in ("one", "two")
        ]

    def split(self, **weights: int) -> None:
        """These weights, applied by every gateway, and nothing received so far."""
        fleet.weights_give("m", weights)
        for engine in self.all_engines():
            engine.reset()

        def applied() -> bool:
            state = route_applied(model="m")
            assert state is not None
            wanted = {name: weight for name, weight in weights.items() if weight}
            shown = [share.weights for share in state.shares]
            return state.of == 2 and state.complete and shown == [wanted]

        eventually(applied, within_s=10)

    def take_down(self, version: str) -> None:
        """No replica of this version may serve, and every gateway knows it."""
        replicas = list(Replica.objects.filter(version__name=version))
        for replica in replicas:
            fleet.probe_write(replica, Probe.DOWN, "gone")

        def known() -> bool:
            return all(
                gateway.metric(
                    "sluice_replica_state", f'replica="{replica.id}"', 'state="down"'
                )
                for gateway in self.gateways
                for replica in replicas
            )

        eventually(known, within_s=10)

    def all_engines(self) -> list[MockEngine]:
        return [engine for group in self.engines.values() for engine in group]

    def call(self, count: int = REQUESTS) -> None:
        """So many requests over both gateways, all of which must go well."""
        each = count // len(self.gateways)
        for gateway in self.gateways:
            assert asyncio.run(answers(gateway.port, self.key, each)) == {200: each}

    def received(self) -> dict[str, int]:
        """Completed requests by version, as the engines counted them."""
        return {
            name: sum(engine.counters().completed for engine in group)
            for name, group in self.engines.items()
        }

    def measured(self, count: int = REQUESTS) -> RouteMeasured:
        """What is in the database once the counts of all requests have come."""

        def whole() -> RouteMeasured | None:
            counts_ingest(now=time.time())
            found = measured_list(split_list(model="m"))["m"]
            assert found.n <= count
            return found if found.n == count else None

        found: RouteMeasured = eventually(whole, within_s=20)
        return found

    def agree(self, count: int = REQUESTS) -> RouteMeasured:
        """Draws, outcomes, engines and bars tell the same."""
        measured = self.measured(count)
        eventually(lambda: check().together.n == count, within_s=5)
        found = check()
        assert not found.fails
        assert [each.verdict and each.verdict.n for each in found.gateways] == [
            count // 2
        ] * 2
        if found.together.chi_square is not None:
            assert found.together.chi_square.p > P_LEAST
        served = {share.version: share.requests for share in measured.shares}
        received = self.received()
        assert {name: received.get(name, 0) for name in served} == served
        drawn: Counter[str] = Counter(served)
        for failover in measured.failovers:
            drawn[failover.drawn] += failover.requests
            drawn[failover.served] -= failover.requests
        assert +drawn == Counter(found.drawn)
        return measured


async def answers(port: int, key: str, count: int) -> Counter[int]:
    """The status of each of so many requests, over a few kept-alive connections."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    sent = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()
    left = iter(range(count))
    found: Counter[int] = Counter()

    async def run() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in left:
            writer.write(sent)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(size)
            found[int(head.split(b" ", 2)[1])] += 1
        writer.close()
        await writer.wait_closed()

    async with asyncio.timeout(120):
        await asyncio.gather(*(run() for _ in range(CONNECTIONS)))
    return found


@pytest.fixture
def cluster(
    valkey: redis.Redis, valkey_server: Valkey, tmp_path: Path
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack, valkey_server.url, tmp_path)


def holds(measured: RouteMeasured) -> bool:
    """Whether what was served agrees with what is wanted, failover or not."""
    wanted = {share.version: share.wanted_bp for share in measured.shares}
    served = {share.version: share.requests for share in measured.shares}
    return shares_check(served, wanted).agreement is Agreement.HOLDS


@pytest.mark.parametrize(
    "order",
    [("v1", "v2", "v3", "v1", "v2", "v3"), ("v3", "v2", "v2", "v1", "v3", "v1")],
)
def test_the_three_bars_agree_in_any_order_of_the_replicas(
    cluster: Cluster, order: tuple[str, ...]
) -> None:
    cluster.open(*order)
    cluster.split(v1=9000, v2=1000, v3=0)
    cluster.call()
    measured = cluster.agree()
    assert holds(measured) and measured.failovers == []
    assert cluster.received()["v3"] == 0
    cluster.split(v1=3300, v2=3300, v3=3400)
    cluster.call()
    assert holds(cluster.agree())


def test_an_ejected_replica_moves_no_share_and_an_empty_version_is_explained(
    cluster: Cluster,
) -> None:
    cluster.open("v1", "v1", "v2", "v2", "v3")
    cluster.split(v1=7000, v2=3000)
    ill = cluster.engines["v2"][0]
    ill.set(status=500)
    cluster.call()
    ejected = ill.counters()
    assert ejected.requests < REQUESTS * 0.15, ejected
    ill.reset()
    measured = cluster.measured()
    assert holds(measured) and measured.failovers == []
    # Now the version has no replica left that may serve.
    cluster.split(v1=6000, v2=4000)
    cluster.take_down("v2")
    cluster.call()
    measured = cluster.agree()
    found = check()
    assert [share.requests for share in measured.shares] == [REQUESTS, 0, 0]
    (failover,) = measured.failovers
    assert (failover.drawn, failover.served) == ("v2", "v1")
    assert failover.requests == failover.of == found.drawn["v2"]
    assert not holds(measured) and found.agreement is Agreement.HOLDS


def test_a_gateway_that_ignores_the_weights_is_found_and_named(
    cluster: Cluster,
) -> None:
    """One of the two draws the first listed version always: 70/30 served as 100/0."""
    cluster.open("v1", "v2")
    stubborn = cluster.gateways[1]
    stubborn.stop()
    stubborn.module = "tests.gateway.stubborn"
    stubborn.start()
    eventually(lambda: len(gateway_list()) == 2, within_s=10)
    cluster.split(v1=7000, v2=3000)
    cluster.call(200)
    eventually(lambda: check().together.n == 200, within_s=5)
    (failing,) = check().failing
    assert failing.gateway == stubborn.id
    ((code, sentence),) = share_warnings()
    assert code == "share_check"
    assert sentence.startswith(f"m: Gateway {stubborn.id}: v2 was drawn for 0")
    # The one that is at fault goes, and with it the alarm.
    stubborn.signal()
    assert stubborn.ended() == 0
    assert share_warnings() == []


def test_a_slow_version_is_not_accused_of_getting_too_little(cluster: Cluster) -> None:
    """Nothing that v2 got has ended, so all that was counted is of v1."""
    cluster.open("v1", "v2")
    cluster.split(v1=5000, v2=5000)
    (slow,) = cluster.engines["v2"]
    slow.set(delay_headers_ms=60_000)
    gateway = cluster.gateways[0]
    with ExitStack() as stack:
        for _ in range(120):
            stack.enter_context(gateway.raw_chat(cluster.key, "m"))
        eventually(lambda: check().together.n == 120, within_s=20)
        drawn = check().drawn
        measured = cluster.measured(drawn["v1"])
        assert [share.requests for share in measured.shares[:2]] == [drawn["v1"], 0]
        assert shares_check({"v1": drawn["v1"]}, {"v1": 5000, "v2": 5000}).fails
        assert check().agreement is Agreement.HOLDS
