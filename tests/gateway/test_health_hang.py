"""Engines that hang behind a good health page, and what a return must not do.

The first takes its time on purpose: the times are those of the product.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import pytest

from cluster.health import Admin, Label, Passive, PassiveAxis
from cluster.health.load import LOADS, Load
from tests.gateway.scene import NAMES, Scene, scene_open
from tests.gateway.streams import Streams
from tests.gateway.world import GatewayProcess, read_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(150)]


def test_an_engine_that_hangs_is_out_within_45_s_and_disturbs_nobody(
    scene: Scene,
) -> None:
    """vllm#24207, Fastllm#19: 85 minutes of routing to a hung engine whose health page
    was green."""
    one, other = scene.gateways
    for engine in scene.engines:
        engine.set(gap_ms=10)
    scene.engines[2].set(hang=True)
    livez_s = []
    opens = partial(one.raw_chat, scene.key, stream=True, max_tokens=10)
    with Streams(opens, 40):
        began = time.monotonic()
        suspect_s = ejected_s = 0.0
        while not ejected_s:
            passed_s = time.monotonic() - began
            assert passed_s < 45, scene.labels()
            asked = time.monotonic()
            assert one.request("GET", "/livez").status == 200
            livez_s.append(time.monotonic() - asked)
            label = scene.labels()[2]
            if label is Label.SUSPECT and not suspect_s:
                suspect_s = passed_s
            if label is Label.EJECTED:
                ejected_s = passed_s
            time.sleep(0.25)
    assert 29 < suspect_s < 36 and 39 < ejected_s < 45
    axis = scene.control.record(NAMES[2]).passive
    assert axis is not None and axis.cause == "hang"
    scene.until(lambda: scene.state(other, NAMES[2], "ejected") == 1)
    for gateway in (one, other):
        assert NAMES[2] not in scene.served(gateway, 30)
    # All but what a busy machine may hold up; a frozen router would freeze each.
    assert statistics.quantiles(livez_s, n=20)[-1] < 1.0
    assert scene.labels()[:2] == [Label.HEALTHY] * 2


def test_an_engine_that_is_known_to_be_slow_is_waited_for_longer(
    hasty: Scene,
) -> None:
    """Its 0.9 s from token to token make 9 s of 3, read when it falls silent."""
    scene = hasty
    load = msgspec.json.encode(Load(time.time(), gap_p99_s=0.9))
    scene.control.client.hset(LOADS, NAMES[2], load.decode())
    for engine in scene.engines:
        engine.set(gap_ms=10)
    scene.engines[2].set(hang=True)
    opens = partial(scene.gateways[0].raw_chat, scene.key, stream=True, max_tokens=10)
    with Streams(opens, 20):
        scene.engines[2].counters_when(lambda counters: counters.running >= 2)
        took_s = scene.until(lambda: scene.labels()[2] is Label.SUSPECT, within_s=40)
    assert took_s > 8
    axis = scene.control.record(NAMES[2]).passive
    assert axis is not None and axis.cause == "hang"


class Crowd:
    """So many streams at once, which one thread reads."""

    def __init__(self, gateway: GatewayProcess, key: str, count: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.began: dict[socket.socket, float] = {}
        self.tails: dict[socket.socket, bytes] = {}
        for _ in range(count):
            at = time.monotonic()
            stream = gateway.raw_chat(key, stream=True, max_tokens=20)
            self.began[stream], self.tails[stream] = at, b""
            self.selector.register(stream, selectors.EVENT_READ)

    def whole_s(self, count: int) -> list[float]:
        """How long those took that came to their end first, so many of them."""
        took_s: list[float] = []
        while len(took_s) < count:
            ready = self.selector.select(30)
            assert ready, f"{len(took_s)} of {count} ended"
            for entry, _events in ready:
                stream = cast("socket.socket", entry.fileobj)
                part = stream.recv(65536)
                assert part, "a stream was cut off"
                self.tails[stream] = self.tails[stream][-20:] + part
                if b"data: [DONE]" in self.tails[stream]:
                    took_s.append(time.monotonic() - self.began[stream])
                    self.selector.unregister(stream)
        return took_s

    def close(self) -> None:
        self.selector.close()
        for stream in self.began:
            stream.close()


def p99_of_a_crowd_s(scene: Scene, count: int) -> float:
    """Of those streams that do not hang."""
    for engine in scene.engines:
        engine.counters_when(lambda counters: counters.running == 0)
        engine.request("DELETE", "/mock/counters")
    with contextlib.closing(Crowd(scene.gateways[0], scene.key, count)) as crowd:
        hung = 0
        if scene.engines[2].request("GET", "/mock")["hang"]:
            scene.until(lambda: sum(taken(scene)) == count)
            hung = scene.engines[2].counters().running
            assert count / 4 < hung < count / 2
        return statistics.quantiles(crowd.whole_s(count - hung), n=100)[98]


def taken(scene: Scene) -> list[int]:
    return [engine.counters().requests for engine in scene.engines]


def test_one_hung_replica_of_three_holds_up_none_of_five_hundred_streams(
    scene: Scene,
) -> None:
    """production-stack#749: one hung replica froze the whole router."""
    for engine in scene.engines:
        engine.set(gap_ms=100)
    well_s = [p99_of_a_crowd_s(scene, 500) for _ in range(2)]
    scene.engines[2].set(hang=True)
    livez_s: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.05):
            began = time.monotonic()
            assert scene.gateways[0].request("GET", "/livez").status == 200
            livez_s.append(time.monotonic() - began)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        hung_s = [p99_of_a_crowd_s(scene, 500) for _ in range(2)]
    finally:
        ended.set()
        asking.join(30)
    # A router that one replica freezes is out by the time a hang takes to be found; a
    # machine that does other things meanwhile, by less than this.
    assert min(hung_s) < 2 * max(well_s), (well_s, hung_s)
    assert statistics.quantiles(livez_s, n=20)[-1] < 1.0


def is_in(scene: Scene, replica: str, state: str) -> bool:
    return scene.state(scene.gateways[0], replica, state) == 1


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Scene]:
    """Its gateways suspect after 3 s of silence and eject after 4."""
    with scene_open(tmp_path, module="tests.gateway.hasty") as scene:
        yield scene


def test_the_silence_of_slow_clients_is_not_the_replicas(hasty: Scene) -> None:
    """Streams that the gateway itself holds back, because nobody reads them."""
    scene = hasty
    gateway = scene.gateways[0]
    scene.engines[2].set(huge_body_bytes=40_000_000)
    for name in NAMES[:2]:
        scene.control.admin(name, Admin.DISABLED)
        scene.until(partial(is_in, scene, name, "disabled"))
    with ExitStack() as stack:
        for _ in range(3):
            stream = gateway.raw_chat(scene.key, stream=True)
            stack.enter_context(contextlib.closing(stream))
        scene.engines[2].counters_when(lambda counters: counters.running == 3)
        for name in NAMES[:2]:
            scene.control.admin(name, Admin.ENABLED)
            scene.until(partial(is_in, scene, name, "healthy"))
        # The two that have nothing open serve all that comes, for long enough.
        deadline = time.monotonic() + 7
        while time.monotonic() < deadline:
            assert NAMES[2] not in scene.served(gateway, 1)
            time.sleep(0.1)
        assert scene.engines[2].counters().running == 3
        assert scene.labels() == [Label.HEALTHY] * 3
    # Where streams wait for the replica itself, these gateways do not wait so long.
    scene.engines[2].reset()
    scene.engines[2].set(hang=True)
    opens = partial(gateway.raw_chat, scene.key, stream=True, max_tokens=10)
    with Streams(opens, 9):
        scene.until(lambda: scene.labels()[2] is Label.EJECTED)


def test_counters_belong_to_requests_and_a_return_brings_no_hot_spot(
    scene: Scene,
) -> None:
    """vllm-router#197: health checks zeroed in-flight counters, and whoever came back
    with a counter of 0 was given everything."""
    gateway = scene.gateways[0]
    now = time.time()
    axis = PassiveAxis(Passive.EJECTED, now, now + 900, 1, "failures_in_a_row", "d")
    scene.control.passive(NAMES[0], axis)
    scene.until(lambda: scene.state(gateway, NAMES[0], "ejected") == 1)
    for engine in scene.engines:
        engine.set(gap_ms=100, tokens=10_000)
    with ExitStack() as stack:

        def pin(count: int) -> None:
            for _ in range(count):
                stream = gateway.raw_chat(scene.key, stream=True, max_tokens=10_000)
                stack.enter_context(contextlib.closing(stream))
                read_until(stream, b"w1")

        pin(20)
        assert running(scene) == [0, 10, 10]
        # Probes come and go; nothing of it reaches the counters.
        for _ in range(20):
            for name in NAMES[1:]:
                scene.control.probe(name)
        assert gateway.metric("sluice_in_flight") == 20
        # Its time is over: one request proves it, then it is given its share slowly.
        over = msgspec.structs.replace(axis, until=now + 0.001)
        scene.control.passive(NAMES[0], over)
        scene.until(lambda: scene.state(gateway, NAMES[0], "half_open") == 1)
        assert gateway.chat(scene.key, max_tokens=1).status == 200
        scene.until(lambda: scene.labels()[0] is Label.HEALTHY)
        for _ in range(10):
            pin(2)
            counts = running(scene)
            assert counts[0] <= 1.5 * sum(counts) / 3, counts
            time.sleep(0.2)
        assert sum(running(scene)) == gateway.metric("sluice_in_flight") == 40
    for engine in scene.engines:
        engine.counters_when(lambda counters: counters.running == 0)
    gateway.wait_for(lambda: gateway.metric("sluice_in_flight") == 0)


def running(scene: Scene) -> list[int]:
    return [engine.counters().running for engine in scene.engines]
