"""Draws are counted when they are made, and published with the gateway's record."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from cluster.health import Admin
from routing.balance.router import Router
from routing.balance.state import ReplicaStates
from routing.contracts import names
from routing.contracts.draws import RouteDraws, draws_decode
from routing.contracts.snapshot import RouteEntry, Snapshot
from routing.gateway.draws import Draws
from tests.fakes.engine import MockEngine
from tests.gateway import world
from tests.gateway.scene import Scene
from tests.gateway.world import ControlPlane, GatewayProcess, apply, route

Engines = tuple[MockEngine, MockEngine]


def published(control: ControlPlane, gateway: GatewayProcess) -> dict[str, RouteDraws]:
    body = control.client.get(names.gateway_draws(gateway.id))
    return draws_decode(body) if isinstance(body, bytes) else {}


def drawn(control: ControlPlane, gateway: GatewayProcess) -> dict[str, int]:
    draws = published(control, gateway).get("drawn")
    return draws.drawn if draws is not None else {}


def test_draws_are_told_apart_from_choices_and_from_what_served(
    control: ControlPlane, engines: Engines, shared_gateway: GatewayProcess, key: str
) -> None:
    """v2 has a weight and no replica that may serve: v1 serves for it."""
    one, other = (engine.address for engine in engines)
    for name in ("drawn-v1-1", "drawn-v2-1"):
        control.probe(name)
    control.admin("drawn-v2-1", Admin.DISABLED)
    split = {"v1": (5000, [one]), "v2": (5000, [other])}
    gateway = shared_gateway
    apply(control, gateway, route("drawn", split))
    served = [gateway.chat(key, "drawn").headers for _ in range(40)]
    assert {headers["x-sluice-version"] for headers in served} == {"v1"}
    chosen = {"x-sluice-version": "v1"}
    body = {"model": "drawn", "messages": [{"role": "user", "content": "hi"}]}
    for _ in range(5):
        gateway.request("POST", "/v1/chat/completions", key, body, chosen)
    gateway.wait_for(lambda: sum(drawn(control, gateway).values()) == 40)
    outcomes = [o for o in gateway.outcomes() if o.model == "drawn"]
    firsts = [o.first_version for o in outcomes if o.first_probability < 1]
    assert drawn(control, gateway) == {v: firsts.count(v) for v in ("v1", "v2")}
    assert drawn(control, gateway)["v2"] > 0


def test_a_request_that_never_ends_was_drawn_all_the_same(
    control: ControlPlane, engines: Engines, shared_gateway: GatewayProcess, key: str
) -> None:
    engines[0].set(hang=True)
    control.probe("drawn-v1-1")
    entry = route("drawn", {"v1": (10_000, [engines[0].address])})
    apply(control, shared_gateway, replace(entry, generation=9))
    with shared_gateway.raw_chat(key, "drawn"):
        shared_gateway.wait_for(lambda: drawn(control, shared_gateway) == {"v1": 1})


def test_a_new_generation_counts_from_nothing_and_a_dead_gateway_says_nothing(
    control: ControlPlane, engines: Engines, key: str, folder: Path
) -> None:
    control.probe("drawn-v1-1")
    entry = route("drawn", {"v1": (10_000, [engines[0].address])})
    control.publish(entry)
    with world.gateway(folder, control.valkey.url) as gateway:
        gateway.chat(key, "drawn")
        gateway.wait_for(lambda: drawn(control, gateway) == {"v1": 1})
        apply(control, gateway, replace(entry, generation=8))
        gateway.wait_for(lambda: published(control, gateway) == {})
        gateway.chat(key, "drawn")
        gateway.wait_for(lambda: drawn(control, gateway) == {"v1": 1})
        assert published(control, gateway)["drawn"].generation == 8
        name = names.gateway_draws(gateway.id)
        gateway.signal()
        assert gateway.ended() == 0
        assert not control.client.exists(name)


def test_draws_outlive_a_killed_and_an_emptied_redis(scene: Scene) -> None:
    """What was drawn meanwhile is told when Redis is back."""
    gateway = scene.gateways[0]

    def told() -> int:
        draws = published(scene.control, gateway).get("m")
        return sum(draws.drawn.values()) if draws is not None else 0

    scene.served(gateway, 5)
    scene.until(lambda: told() == 5)
    scene.control.valkey.kill()
    scene.served(gateway, 7)
    scene.control.valkey.start()
    scene.until(lambda: told() == 12, within_s=15)
    scene.control.client.delete(names.gateway_draws(gateway.id))
    scene.until(lambda: told() == 12)


def drawn_by(draws: Draws, epoch: int, entry: RouteEntry) -> dict[str, int]:
    snapshot = Snapshot(1, epoch, 1, 0.0, (entry,))
    router = Router.compile(snapshot, ReplicaStates())
    return draws.current(router)["m"].drawn


def test_a_generation_of_another_life_of_the_model_or_database_is_another() -> None:
    entry = route("m", {"v1": (10_000, [])})
    draws = Draws()
    for epoch, other in ((1, entry), (1, replace(entry, created=9)), (2, entry)):
        draws.count(epoch, other, "v1")
        draws.count(epoch, other, "v1")
        assert drawn_by(draws, epoch, other) == {"v1": 2}
    # The same generation in a later revision goes on.
    same = replace(entry, versions=())
    draws.count(2, same, "v1")
    assert drawn_by(draws, 2, same) == {"v1": 3}
    assert draws.current(None) == {}
