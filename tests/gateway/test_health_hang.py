"""Engines that hang behind a good health page, and what a return must not do.

These take their time on purpose: the times are those of the product.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from contextlib import ExitStack
from functools import partial

import pytest

from cluster.health import Admin, Label, Passive, PassiveAxis
from tests.gateway.scene import NAMES, Scene
from tests.gateway.streams import Streams
from tests.gateway.world import read_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(150)]


def test_an_engine_that_hangs_is_out_within_45_s_and_disturbs_nobody(
    scene: Scene,
) -> None:
    """vllm#24207, Fastllm#19: 85 minutes of routing to a hung engine whose health page
    was green. production-stack#749: one hung replica froze the whole router."""
    one, other = scene.gateways
    for engine in scene.engines:
        engine.set(gap_ms=10)
    opens = partial(one.raw_chat, scene.key, stream=True, max_tokens=10)
    with Streams(opens, 8) as before:
        time.sleep(4)
    p99_before_s = statistics.quantiles(before.durations_s, n=100)[98]
    scene.engines[2].set(hang=True)
    slowest_livez_s = 0.0
    with Streams(opens, 40) as streams:
        began = time.monotonic()
        suspect_s = ejected_s = 0.0
        while not ejected_s:
            passed_s = time.monotonic() - began
            assert passed_s < 45, scene.labels()
            asked = time.monotonic()
            assert one.request("GET", "/livez").status == 200
            slowest_livez_s = max(slowest_livez_s, time.monotonic() - asked)
            label = scene.labels()[2]
            if label is Label.SUSPECT and not suspect_s:
                suspect_s = passed_s
            if label is Label.EJECTED:
                ejected_s = passed_s
            time.sleep(0.25)
    assert 29 < suspect_s < 36 and 39 < ejected_s < 45
    axis = scene.control.record(NAMES[2]).passive
    assert axis is not None and axis.cause == "hang"
    scene.until(lambda: scene.state(other, NAMES[2], "ejected") == 1, within_s=1)
    for gateway in (one, other):
        assert NAMES[2] not in scene.served(gateway, 30)
    assert slowest_livez_s < 1.0
    # Forty streams instead of eight share two replicas and this machine.
    p99_s = statistics.quantiles(streams.durations_s, n=100)[98]
    assert p99_s < 10 * p99_before_s + 1.0, (p99_before_s, p99_s)
    assert scene.labels()[:2] == [Label.HEALTHY] * 2


def is_in(scene: Scene, replica: str, state: str) -> bool:
    return scene.state(scene.gateways[0], replica, state) == 1


def test_the_silence_of_slow_clients_is_not_the_replicas(scene: Scene) -> None:
    """Streams that the gateway itself holds back, because nobody reads them."""
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
        deadline = time.monotonic() + 42
        while time.monotonic() < deadline:
            assert NAMES[2] not in scene.served(gateway, 1)
            time.sleep(0.5)
        assert scene.engines[2].counters().running == 3
        assert scene.labels() == [Label.HEALTHY] * 3


def test_counters_belong_to_requests_and_a_return_brings_no_hot_spot(
    scene: Scene,
) -> None:
    """vllm-router#197: health checks zeroed in-flight counters, and whoever came back
    with a counter of 0 was given everything."""
    gateway = scene.gateways[0]
    now = time.time()
    axis = PassiveAxis(Passive.EJECTED, now, now + 3, 1, "failures_in_a_row", "d")
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
        # One request proves the replica, then it is given its share slowly.
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
