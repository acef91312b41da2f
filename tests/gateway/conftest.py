"""One Valkey, two mock engines and one gateway for all tests that harm none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import services
from tests.fakes.engine import MockEngine
from tests.gateway import world
from tests.gateway.scene import Scene, scene_open
from tests.gateway.world import ControlPlane, GatewayProcess


@pytest.fixture(scope="module")
def control_shared() -> Iterator[ControlPlane]:
    with services.valkey() as server:
        control = ControlPlane(server)
        control.mark_complete()
        yield control
        control.client.close()


@pytest.fixture
def control(control_shared: ControlPlane) -> ControlPlane:
    """Which nobody has told anything about a replica yet."""
    control_shared.forget()
    return control_shared


@pytest.fixture(scope="module")
def engines_shared() -> Iterator[tuple[MockEngine, MockEngine]]:
    with MockEngine() as one, MockEngine() as other:
        yield one, other


@pytest.fixture
def engines(
    engines_shared: tuple[MockEngine, MockEngine],
) -> tuple[MockEngine, MockEngine]:
    """Both with fresh switches and counters, and nothing left of the test before."""
    for engine in engines_shared:
        if engine.process is None:
            engine.start()
        engine.counters_when(lambda counters: counters.running == 0)
        engine.reset()
    return engines_shared


@pytest.fixture(scope="module")
def gateway_shared(
    control_shared: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway") / "data"
    with world.gateway(folder, control_shared.valkey.url) as process:
        yield process


@pytest.fixture
def shared_gateway(
    control: ControlPlane, gateway_shared: GatewayProcess
) -> GatewayProcess:
    """Without a route, and without a grudge against any replica: it forgets those
    that no revision lists once they serve nothing."""
    gateway_shared.wait_for(lambda: gateway_shared.metric("sluice_in_flight") == 0)
    world.apply(control, gateway_shared)
    return gateway_shared


@pytest.fixture(scope="module")
def key(control_shared: ControlPlane) -> str:
    """May call everything, and choose versions."""
    return control_shared.key(scopes=("choose_version",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data directory for a gateway that the test starts itself."""
    return tmp_path / "data"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_open(tmp_path) as scene:
        yield scene
