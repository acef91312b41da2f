"""Outcomes and counts when Redis dies, forgets or fills, and when the clock jumps."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from routing.contracts import names
from routing.contracts.gateway import gateway_decode
from routing.contracts.outcome import batch_read
from tests import services
from tests.fakes.engine import MockEngine
from tests.gateway import world
from tests.gateway.reader import Reader, figures_of, sums
from tests.gateway.world import ControlPlane, GatewayProcess, route

pytestmark = pytest.mark.processes
Engines = tuple[MockEngine, MockEngine]


@pytest.fixture
def control() -> Iterator[ControlPlane]:
    """A Valkey of the test's own, which it may kill or empty."""
    with services.valkey() as server:
        control = ControlPlane(server)
        control.mark_complete()
        yield control
        control.client.close()


@pytest.fixture
def key(control: ControlPlane) -> str:
    return control.key()


@pytest.fixture
def gateway(
    control: ControlPlane, engines: Engines, folder: Path
) -> Iterator[GatewayProcess]:
    control.probe("m-v1-1")
    control.publish(route("m", {"v1": (10_000, [engines[0].address])}))
    with world.gateway(folder, control.valkey.url) as process:
        yield process


@contextmanager
def traffic(gateway: GatewayProcess, key: str) -> Iterator[list[int]]:
    """Requests one after another until the end of the block; their statuses."""
    statuses: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            statuses.append(gateway.chat(key, max_tokens=2).status)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield statuses
    finally:
        over.set()
        thread.join(20)


def more(gateway: GatewayProcess, statuses: list[int], count: int = 30) -> None:
    wanted = len(statuses) + count
    gateway.wait_for(lambda: len(statuses) >= wanted, within_s=15)


def settle(gateway: GatewayProcess, reader: Reader, asked: int) -> None:
    """Read until as many outcomes as requests are there, and in the log."""
    name, logged = gateway.id, gateway.outcomes

    def there() -> bool:
        reader.read()
        cells = reader.cells.get(name, {}).values()
        counted = sum(figures.requests for figures in cells)
        return counted == reader.last.get(name, 0) == len(logged()) == asked

    gateway.wait_for(there, within_s=15)


def complete(gateway: GatewayProcess, reader: Reader, asked: int) -> None:
    """No gap, no duplicate, and the counts are those of the outcomes."""
    settle(gateway, reader, asked)
    assert reader.lost[gateway.id] == 0
    assert reader.outcomes == gateway.outcomes()
    assert sums(list(reader.cells[gateway.id].values())) == figures_of(reader.outcomes)


def lines_held(control: ControlPlane) -> int:
    """How many outcomes the stream holds now, repeated ones counted each time."""
    entries: Any = control.client.xrange(names.OUTCOMES)
    return sum(len(batch_read(fields).lines) for _, fields in entries)


def test_a_killed_redis_loses_nothing(
    gateway: GatewayProcess, control: ControlPlane, key: str
) -> None:
    reader = Reader(control.client)
    with traffic(gateway, key) as statuses:
        for turn in range(3):
            more(gateway, statuses)
            reader.read(acknowledge=turn != 1)
            more(gateway, statuses, 10)
            control.valkey.kill()
            more(gateway, statuses)
            control.valkey.start()
    assert set(statuses) == {200}
    complete(gateway, reader, len(statuses))


def test_a_redis_that_comes_back_with_old_data_loses_nothing(
    gateway: GatewayProcess, control: ControlPlane, key: str
) -> None:
    """It dies and its disk holds what was there some time ago: the mark of the epoch
    is still the same, only the broken link tells."""
    reader = Reader(control.client)
    folder = control.valkey.folder
    with traffic(gateway, key) as statuses:
        gateway.wait_for(lambda: control.client.get(names.OUTCOMES_EPOCH))
        more(gateway, statuses)
        control.valkey.kill()
        shutil.copytree(folder / "appendonlydir", folder / "old")
        control.valkey.start()
        epoch = control.client.get(names.OUTCOMES_EPOCH)
        more(gateway, statuses, 60)
        settled = gateway.id
        gateway.wait_for(lambda: control.client.hlen(names.counts(settled)))
        control.valkey.kill()
        shutil.rmtree(folder / "appendonlydir")
        (folder / "old").rename(folder / "appendonlydir")
        control.valkey.start()
        assert control.client.get(names.OUTCOMES_EPOCH) == epoch
        more(gateway, statuses)
    complete(gateway, reader, len(statuses))


def test_an_emptied_redis_gets_everything_again_that_was_not_stored(
    gateway: GatewayProcess, control: ControlPlane, engines: Engines, key: str
) -> None:
    reader, name = Reader(control.client), gateway.id
    with traffic(gateway, key) as statuses:
        for turn in range(4):
            more(gateway, statuses)
            if turn % 2:
                reader.read()
            # Something is lost each time that nobody has read.
            gateway.wait_for(lambda: lines_held(control))
            gateway.wait_for(lambda: control.client.hlen(names.counts(name)))
            control.client.flushall()
    complete(gateway, reader, len(statuses))
    assert not control.client.exists(names.SNAPSHOT_BODY)


def test_what_is_sent_twice_is_taken_once(
    gateway: GatewayProcess, control: ControlPlane, key: str
) -> None:
    """Redis dies after it got the batches and before anybody acknowledged them."""
    reader = Reader(control.client)
    for _ in range(20):
        gateway.chat(key)
    gateway.wait_for(lambda: lines_held(control) == 20)
    control.valkey.kill()
    control.valkey.start()
    gateway.chat(key)
    gateway.wait_for(lambda: lines_held(control) == 41)
    complete(gateway, reader, 21)
    assert reader.repeated == 20


def test_a_redis_that_hangs_loses_nothing(
    gateway: GatewayProcess, control: ControlPlane, key: str
) -> None:
    reader = Reader(control.client)
    assert control.valkey.process is not None
    with traffic(gateway, key) as statuses:
        more(gateway, statuses)
        control.valkey.process.send_signal(signal.SIGSTOP)
        gateway.wait_for(
            lambda: any("wait:" in str(line["message"]) for line in gateway.log())
        )
        more(gateway, statuses)
        control.valkey.process.send_signal(signal.SIGCONT)
        more(gateway, statuses)
    assert set(statuses) == {200}
    complete(gateway, reader, len(statuses))


def test_a_stream_that_nobody_reads_stays_within_its_bound(
    control: ControlPlane, engines: Engines, key: str, folder: Path
) -> None:
    """Rows are lost, counted by the numbers that are missing; counts are not."""
    environment = {"SLUICE_OUTCOMES_MB": "1"}
    with world.gateway(folder, control.valkey.url, env=environment) as gateway:
        # About 420 bytes each, on connections that ask for many.
        ask = b"GET /v1/models?x HTTP/1.1\r\nhost: x\r\nx-request-id: "
        ask += b"y" * 120 + b"\r\n\r\n"
        for _ in range(50):
            with gateway.raw(ask * 99 + b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n") as c:
                world.read_until(c, b'"ok"}')
        name = gateway.id
        gateway.wait_for(lambda: len(gateway.outcomes()) == 4950)
        gateway.wait_for(lambda: gateway.metric("sluice_outcomes_waiting") == 0)
        held = int(control.client.get(names.OUTCOMES_BYTES) or 0)
        assert 0 < held <= 1024 * 1024
        reader = Reader(control.client)
        settle(gateway, reader, 4950)
        assert reader.lost[name] > 1000
        assert len(reader.outcomes) + reader.lost[name] == 4950
        assert sums(list(reader.cells[name].values())) == figures_of(gateway.outcomes())
        assert control.client.get(names.OUTCOMES_BYTES) == b"0"


def test_a_gateway_without_redis_keeps_counting(engines: Engines, folder: Path) -> None:
    with world.gateway(folder, "") as gateway:
        for _ in range(5):
            assert gateway.chat("").status == 401
        assert gateway.metric("sluice_count_cells_waiting") == 1
        assert gateway.metric("sluice_outcomes_waiting") == 5
        gateway.signal()
        assert gateway.ended() == 0
        assert len(gateway.outcomes()) == 5


def test_what_comes_while_redis_is_away_at_the_end_does_not_hold_the_end_up(
    gateway: GatewayProcess, control: ControlPlane, key: str
) -> None:
    gateway.chat(key)
    control.valkey.kill()
    gateway.chat(key)
    gateway.signal()
    assert gateway.ended(within_s=8) == 0
    assert len(gateway.outcomes()) == 2
    assert any("stay unsent" in str(line["message"]) for line in gateway.log())


def test_the_record_of_a_gateway_tells_how_many_it_emitted(
    gateway: GatewayProcess, control: ControlPlane, key: str
) -> None:
    name = gateway.id
    for _ in range(7):
        gateway.chat(key)

    def emitted() -> int:
        body = control.client.get(names.gateway(name))
        assert isinstance(body, bytes)
        assert gateway_decode(body).dropped == 0
        return gateway_decode(body).emitted

    gateway.wait_for(lambda: emitted() == 7)


def test_outcomes_that_nobody_stores_are_warned_of_but_take_nobody_out(
    control: ControlPlane, engines: Engines, key: str, folder: Path
) -> None:
    control.probe("m-v1-1")
    control.publish(route("m", {"v1": (10_000, [engines[0].address])}))
    module = "tests.gateway.unheard"
    with world.gateway(folder, control.valkey.url, module=module) as gateway:
        assert gateway.request("GET", "/readyz").json["warnings"] == []
        gateway.chat(key)
        reply = gateway.request("GET", "/readyz")
        gateway.wait_for(lambda: gateway.request("GET", "/readyz").json["warnings"])
        reply = gateway.request("GET", "/readyz")
        assert reply.status == 200
        (warning,) = reply.json["warnings"]
        assert "nothing was stored of 1 outcomes and 1 counts" in warning
        assert gateway.metric("sluice_unacknowledged_seconds") > 0
        reader = Reader(control.client)
        settle(gateway, reader, 1)
        gateway.wait_for(lambda: not gateway.request("GET", "/readyz").json["warnings"])


def test_a_clock_that_jumps_back_breaks_nothing_else(
    control: ControlPlane, engines: Engines, key: str, folder: Path, tmp_path: Path
) -> None:
    control.probe("m-v1-1")
    control.publish(route("m", {"v1": (10_000, [engines[0].address])}))
    file = tmp_path / "clock"
    file.write_text("0")
    environment = {"SLUICE_TEST_CLOCK": str(file)}
    module = "tests.gateway.jumping"
    reader, asked = Reader(control.client), 0
    with world.gateway(
        folder, control.valkey.url, module=module, env=environment
    ) as gateway:
        for offset_s in (0, 70, 0, -3600, 200_000, 65, 130, -7200):
            replaced = tmp_path / "new"
            replaced.write_text(str(offset_s))
            replaced.rename(file)
            with traffic(gateway, key) as statuses:
                more(gateway, statuses, 8)
            assert set(statuses) == {200}
            asked += len(statuses)
            settle(gateway, reader, asked)
        complete(gateway, reader, asked)
        assert all(0 < outcome.duration_ms < 10_000 for outcome in reader.outcomes)
        ids = {outcome.request_id for outcome in reader.outcomes}
        assert len(ids) == len(reader.outcomes)
