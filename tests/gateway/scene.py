"""One model on three mock engines, behind two gateways: for tests of health."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cluster.health import Label, states_merge
from tests import services
from tests.fakes.engine import MockEngine
from tests.gateway import world
from tests.gateway.world import ControlPlane, GatewayProcess, route

NAMES = ("m-v1-1", "m-v1-2", "m-v1-3")


class Scene:
    """One model on three mock engines, a second one on one alone, two gateways."""

    def __init__(
        self,
        control: ControlPlane,
        engines: list[MockEngine],
        gateways: list[GatewayProcess],
    ) -> None:
        self.control = control
        self.engines = engines
        self.gateways = gateways
        self.key = control.key()
        self.label_at: dict[str, Label] = {}

    def labels(self) -> list[Label]:
        """As pages and API make them of the same records."""
        records = {name: self.control.record(name) for name in NAMES}
        states = states_merge(records, now=time.time())
        return [states[name].label for name in NAMES]

    def served(self, gateway: GatewayProcess, count: int = 12) -> Counter[str]:
        """Which replicas serve so many requests, all of which must go well."""
        replies = [gateway.chat(self.key) for _ in range(count)]
        assert [reply.status for reply in replies] == [200] * count
        return Counter(reply.headers["x-sluice-replica"] for reply in replies)

    def served_until(self, gateway: GatewayProcess, look: Callable[[], object]) -> None:
        """Requests one after another, all of which must go well, until it holds."""
        deadline = time.monotonic() + 30
        while not look():
            assert time.monotonic() < deadline, self.labels()
            self.served(gateway, 5)

    def state(self, gateway: GatewayProcess, replica: str, state: str) -> float:
        labels = (f'replica="{replica}"', f'state="{state}"')
        return gateway.metric("sluice_replica_state", *labels)

    def until(self, look: Callable[[], object], within_s: float = 15.0) -> float:
        """How long it takes until it holds."""
        began = time.monotonic()
        while not look():
            assert time.monotonic() - began < within_s, self.labels()
            time.sleep(0.02)
        return time.monotonic() - began


@contextmanager
def scene_open(folder: Path, **options: Any) -> Iterator[Scene]:
    """``options`` are those of the gateways."""
    with ExitStack() as stack:
        server = stack.enter_context(services.valkey())
        control = ControlPlane(server)
        stack.callback(control.client.close)
        control.mark_complete()
        engines = [stack.enter_context(MockEngine()) for _ in NAMES]
        for name in (*NAMES, "solo-v1-1"):
            control.probe(name)
        addresses = [engine.address for engine in engines]
        control.publish(
            route("m", {"v1": (10_000, addresses)}),
            route("solo", {"v1": (10_000, addresses[:1])}, retries=0),
        )
        gateways = [
            stack.enter_context(world.gateway(folder / name, server.url, **options))
            for name in ("one", "two")
        ]
        yield Scene(control, engines, gateways)
