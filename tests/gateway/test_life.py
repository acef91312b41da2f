"""A gateway's life: starts, outages, revisions under traffic, and its end."""

from __future__ import annotations

import json
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from routing.contracts import names
from routing.contracts.gateway import gateway_decode
from routing.contracts.outcome import Ending
from tests import services
from tests.fakes.engine import MockEngine
from tests.gateway import world
from tests.gateway.world import (
    ROOT,
    ControlPlane,
    GatewayProcess,
    read_all,
    read_until,
    route,
)

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
def gateway(
    control: ControlPlane, engines: Engines, folder: Path
) -> Iterator[GatewayProcess]:
    publish(control, engines)
    with world.gateway(folder, control.valkey.url) as process:
        yield process


@pytest.fixture
def key(control: ControlPlane) -> str:
    return control.key()


def publish(control: ControlPlane, engines: Engines) -> int:
    for replica in ("m-v1-1", "m-v1-2"):
        control.probe(replica)
    addresses = [engine.address for engine in engines]
    return control.publish(route("m", {"v1": (10_000, addresses)}))


def revision(gateway: GatewayProcess) -> int:
    return int(gateway.request("GET", "/readyz").json["revision"])


def redis_up(gateway: GatewayProcess) -> bool:
    return bool(gateway.request("GET", "/readyz").json["redis"]["up"])


# Revisions --------------------------------------------------------------------


def test_a_revision_is_applied_and_acknowledged_well_within_two_seconds(
    gateway: GatewayProcess, control: ControlPlane, engines: Engines
) -> None:
    took_s = []
    for _ in range(10):
        began = time.monotonic()
        number = publish(control, engines)
        acks = names.acks(1, number)
        gateway.wait_for(lambda: control.client.hget(acks, gateway.id))  # noqa: B023
        took_s.append(time.monotonic() - began)
        body = control.client.get(names.gateway(gateway.id))
        assert isinstance(body, bytes)
        assert gateway_decode(body).revision == number
    # Most of them: a busy machine may hold any one up.
    assert statistics.median(took_s) < 0.5


def test_a_notice_that_is_lost_costs_at_most_the_poll(
    gateway: GatewayProcess, control: ControlPlane, engines: Engines
) -> None:
    took_s = []
    for _ in range(3):
        began = time.monotonic()
        control.client.client_kill_filter(_type="pubsub")
        number = publish(control, engines)
        gateway.wait_for(lambda: revision(gateway) == number)  # noqa: B023
        took_s.append(time.monotonic() - began)
    assert min(took_s) < 2


def test_a_gateway_never_goes_backwards_and_ignores_what_it_cannot_read(
    gateway: GatewayProcess, control: ControlPlane, engines: Engines
) -> None:
    number = publish(control, engines)
    gateway.wait_for(lambda: revision(gateway) == number)
    for body in (b"junk", b'{"schema":99}', b'{"schema":1}'):
        control.revision += 1
        control.publish_body(body)
        gateway.wait_for(lambda: ignored_count(gateway) == control.revision - number)
    control.revision = 0
    control.publish(route("old", {}))
    control.revision = 0
    assert revision(gateway) == number
    newer_epoch = control.publish(route("new", {}), epoch=2)
    gateway.wait_for(lambda: revision(gateway) == newer_epoch)


def ignored_count(gateway: GatewayProcess) -> float:
    return gateway.metric("sluice_snapshots_ignored_total")


def test_a_revision_under_streams_cuts_none_of_them(
    gateway: GatewayProcess, control: ControlPlane, engines: Engines, key: str
) -> None:
    for engine in engines:
        engine.set(gap_ms=30)
    streams = [gateway.raw_chat(key, stream=True, max_tokens=100) for _ in range(8)]
    for stream in streams:
        read_until(stream, b"w1")
    number = control.publish(route("other", {}))
    gateway.wait_for(lambda: revision(gateway) == number)
    assert sum(engine.counters().running for engine in engines) == 8
    for stream in streams:
        assert b"data: [DONE]" in read_until(stream, b"0\r\n\r\n")
        stream.close()
    assert gateway.chat(key).status == 404


# Starting -----------------------------------------------------------------------


def test_a_gateway_without_anything_lives_but_is_not_ready(
    folder: Path, control: ControlPlane
) -> None:
    with world.gateway(folder, f"unix://{folder}/nothing.sock") as gateway:
        assert gateway.request("GET", "/livez").status == 200
        reply = gateway.request("GET", "/readyz")
        assert reply.status == 503
        assert reply.json["reasons"] == ["no snapshot was applied yet"]
        reply = gateway.chat("sk-" + "a" * 48)
        assert (reply.status, reply.code) == (503, "auth_unavailable")
        assert reply.headers["retry-after"] == "1"
    key = control.key()
    with world.gateway(folder, control.valkey.url) as gateway:
        reply = gateway.chat(key)
        assert (reply.status, reply.code) == (503, "no_healthy_replica")
        number = control.publish(route("m", {}))
        gateway.wait_for(lambda: revision(gateway) == number)
        assert gateway.request("GET", "/readyz").status == 200


def test_a_gateway_that_restarts_without_redis_serves_what_it_served(
    gateway: GatewayProcess, control: ControlPlane, key: str
) -> None:
    file = gateway.folder / "gateway-keys.json"

    def kept() -> bool:
        """Each use reads the key anew if its entry has changed meanwhile."""
        assert gateway.chat(key).status == 200
        return file.exists() and key[3:15] in file.read_text()

    gateway.wait_for(kept)
    assert file.stat().st_mode & 0o777 == 0o600
    assert key not in file.read_text()
    control.valkey.kill()
    gateway.stop()
    gateway.start()
    assert gateway.chat(key).status == 200
    reply = gateway.chat(key[:15] + "z" * 36)
    assert (reply.status, reply.code) == (401, "invalid_api_key")
    reply = gateway.chat("sk-" + "b" * 48)
    assert (reply.status, reply.code) == (503, "auth_unavailable")


def test_the_grace_of_seen_keys_ends(
    control: ControlPlane, engines: Engines, key: str, folder: Path
) -> None:
    publish(control, engines)
    environment = {"SLUICE_KEY_GRACE_S": "3"}
    with world.gateway(folder, control.valkey.url, env=environment) as gateway:
        assert gateway.chat(key).status == 200
        control.valkey.kill()
        assert gateway.chat(key).status == 200
        reply = gateway.wait_for(
            lambda: next((r for r in [gateway.chat(key)] if r.status != 200), None)
        )
        assert (reply.status, reply.code) == (503, "auth_unavailable")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLUICE_GATEWAY_BIND", "nonsense"),
        ("SLUICE_GATEWAY_BIND", "192.0.2.1:1"),
        ("SLUICE_MAX_BODY_MB", "-1"),
        ("SLUICE_KEY_GRACE_S", "ten"),
        ("SLUICE_TRUSTED_PROXIES", "10.0.0.1/8"),
        ("REDIS_URL", "http://x"),
        ("REDIS_URL_FILE", "/nowhere/at/all"),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_exit_code_two(
    name: str, value: str, folder: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "routing.gateway"],
        cwd=ROOT,
        env={"SLUICE_DATA_DIR": str(folder), name: value},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.strip().endswith(".")


def test_the_gateway_never_loads_django() -> None:
    code = (
        "import sys, routing.gateway.__main__\n"
        "bad = {'django', 'celery', 'channels'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=20)


# Redis away -----------------------------------------------------------------------


def test_without_redis_known_keys_go_on_and_it_all_comes_back_by_itself(
    gateway: GatewayProcess, control: ControlPlane, engines: Engines, key: str
) -> None:
    unseen = control.key()
    assert gateway.chat(key).status == 200
    control.valkey.kill()
    statuses = [gateway.chat(key).status for _ in range(50)]
    assert statuses == [200] * 50
    gateway.wait_for(lambda: not redis_up(gateway))
    reply = gateway.chat(unseen)
    assert (reply.status, reply.code) == (503, "auth_unavailable")
    assert gateway.request("GET", "/readyz").status == 200
    assert gateway.metric("sluice_redis_up") == 0
    control.valkey.start()
    gateway.wait_for(lambda: redis_up(gateway))
    assert gateway.chat(unseen).status == 200
    number = publish(control, engines)
    gateway.wait_for(lambda: revision(gateway) == number)


def test_a_redis_that_hangs_stops_no_request(
    gateway: GatewayProcess, control: ControlPlane, key: str
) -> None:
    assert gateway.chat(key).status == 200
    assert control.valkey.process is not None
    control.valkey.process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        took_s: list[float] = []
        while time.monotonic() - began < 3 or len(took_s) < 20:
            asked = time.monotonic()
            assert gateway.chat(key).status == 200
            took_s.append(time.monotonic() - asked)
        # The machine may hold up one or another; Redis would hold up each.
        assert statistics.quantiles(took_s, n=10)[-1] < 0.5
        asked = time.monotonic()
        assert gateway.chat("sk-" + "c" * 48).code == "auth_unavailable"
        assert time.monotonic() - asked < 5
    finally:
        control.valkey.process.send_signal(signal.SIGCONT)
    gateway.wait_for(lambda: redis_up(gateway))


def test_an_emptied_redis_refuses_no_known_key_and_never_says_401(
    gateway: GatewayProcess, control: ControlPlane, engines: Engines, key: str
) -> None:
    unseen = control.key()
    assert gateway.chat(key).status == 200
    control.client.flushall()
    for _ in range(30):
        assert gateway.chat(key).status == 200
        reply = gateway.chat(unseen)
        assert reply.status in (200, 503)
        time.sleep(0.03)
    gateway.wait_for(lambda: gateway.chat(unseen).status == 503)
    assert gateway.chat(unseen).code == "auth_unavailable"
    # The console writes everything again; a key it does not write is gone.
    control.mark_complete()
    gateway.wait_for(lambda: gateway.chat(key).status == 401)


def test_a_revoked_key_is_refused_within_two_seconds(
    gateway: GatewayProcess, control: ControlPlane
) -> None:
    told_s = [revoked_s(gateway, control) for _ in range(5)]
    assert statistics.median(told_s) < 0.5
    # And when the notice is lost; the best of them, for the machine may be busy.
    polled_s = []
    for _ in range(3):
        control.client.client_kill_filter(_type="pubsub")
        polled_s.append(revoked_s(gateway, control))
    assert min(polled_s) < 2


def revoked_s(gateway: GatewayProcess, control: ControlPlane) -> float:
    """How long a fresh key still serves after it was revoked."""
    text = control.key()
    assert gateway.chat(text).status == 200
    began = time.monotonic()
    control.revoke(text)
    gateway.wait_for(lambda: gateway.chat(text).status == 401)
    return time.monotonic() - began


# Several workers ------------------------------------------------------------------


def test_two_workers_on_one_port_count_together(
    gateway: GatewayProcess,
    control: ControlPlane,
    engines: Engines,
    key: str,
    tmp_path: Path,
) -> None:
    with world.gateway(
        tmp_path / "second", control.valkey.url, port=gateway.port
    ) as other:
        for _ in range(40):
            assert gateway.chat(key).status == 200

        def counted() -> dict[str, int]:
            text = gateway.request("GET", "/metrics").body.decode()
            assert text.count("# TYPE sluice_requests_total counter") == 1
            found: dict[str, int] = {}
            for line in text.splitlines():
                if line.startswith("sluice_requests_total{"):
                    worker = line.partition('gateway="')[2].partition('"')[0]
                    found[worker] = found.get(worker, 0) + int(line.split()[-1])
            return found

        # Whichever is asked: each knows the other's figures as of two seconds ago.
        gateway.wait_for(
            lambda: all(
                len(figures := counted()) == 2 and sum(figures.values()) == 40
                for _ in range(6)
            ),
            within_s=30,
        )
        other.signal()
        assert other.ended() == 0
        # The one that said goodbye is no longer listed.
        assert len(control.client.zrange(names.GATEWAYS, 0, -1)) == 1


# Ending -----------------------------------------------------------------------------


def test_a_drain_lets_streams_end_and_refuses_new_requests(
    gateway: GatewayProcess, engines: Engines, key: str
) -> None:
    for engine in engines:
        engine.set(gap_ms=50)
    idle = gateway.raw(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
    read_until(idle, b"}")
    stream = gateway.raw_chat(key, stream=True, max_tokens=60)
    read_until(stream, b"w1")
    # A request whose head is on its way when the drain begins.
    late = gateway.raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
    slow = gateway.raw_chat(key, max_tokens=60)
    # The gateway took it on, and read before it what came before it.
    engines_running(engines, 2)
    gateway.signal()
    assert read_all(idle) == b""
    late.sendall(b"content-length: 2\r\n\r\n{}")
    answer = read_all(late)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"draining"' in answer and b"connection: close" in answer
    with pytest.raises(ConnectionRefusedError):
        gateway.raw()
    assert b"data: [DONE]" in read_all(stream)
    whole = read_all(slow)
    assert whole.startswith(b"HTTP/1.1 200 ") and b"connection: close" in whole
    assert gateway.ended() == 0
    endings = {outcome.ending for outcome in gateway.outcomes()}
    assert endings == {Ending.COMPLETED, Ending.REFUSED}
    for connection in (idle, stream, late, slow):
        connection.close()


def test_what_outlives_the_drain_is_broken_off_with_a_word(
    control: ControlPlane, engines: Engines, key: str, folder: Path
) -> None:
    publish(control, engines)
    for engine in engines:
        engine.set(gap_ms=50, tokens=10_000)
    environment = {"SLUICE_DRAIN_S": "1"}
    with world.gateway(folder, control.valkey.url, env=environment) as gateway:
        stream = gateway.raw_chat(key, stream=True)
        read_until(stream, b"w1")
        whole = gateway.raw_chat(key)
        engines_running(engines, 2)
        began = time.monotonic()
        gateway.signal()
        answer = read_all(stream)
        error = json.loads(answer.rstrip().rpartition(b"data: ")[2])["error"]
        assert error["code"] == "draining"
        assert b"[DONE]" not in answer and not answer.endswith(b"0\r\n\r\n")
        assert b"HTTP/1.1 503 " in read_all(whole)
        assert gateway.ended() == 0
        assert 0.9 < time.monotonic() - began < 10
        engines_running(engines, 0)
        codes = sorted((o.ending, o.code) for o in gateway.outcomes())
        assert codes == [(Ending.BROKEN, "draining"), (Ending.REFUSED, "draining")]
        stream.close()
        whole.close()


def engines_running(engines: Engines, count: int) -> None:
    deadline = time.monotonic() + 15
    while sum(engine.counters().running for engine in engines) != count:
        assert time.monotonic() < deadline


def test_a_second_signal_ends_it_at_once(
    gateway: GatewayProcess, engines: Engines, key: str
) -> None:
    for engine in engines:
        engine.set(hang=True)
    waiting = gateway.raw_chat(key)
    engines_running(engines, 1)
    gateway.signal(signal.SIGINT)
    gateway.wait_for(
        lambda: any(line["message"] == "gateway drains" for line in gateway.log())
    )
    began = time.monotonic()
    gateway.signal(signal.SIGTERM)
    assert gateway.ended() == 1
    # Without the second one it would have waited for half a minute.
    assert time.monotonic() - began < 10
    waiting.close()
    (outcome,) = gateway.outcomes()
    assert outcome.code == "draining"


def test_a_killed_gateway_leaves_whole_files_behind(
    control: ControlPlane, engines: Engines, key: str, folder: Path
) -> None:
    """Killed in the middle of writing them, again and again."""
    publish(control, engines)
    for turn in range(4):
        with world.gateway(folder, control.valkey.url) as gateway:
            gateway.wait_for((folder / "snapshot.json").exists)
            deadline = time.monotonic() + 0.2 + turn * 0.05
            while time.monotonic() < deadline:
                publish(control, engines)
            gateway.signal(signal.SIGKILL)
            gateway.ended()
        msgspec.json.decode((folder / "snapshot.json").read_bytes())


def test_the_contract_with_uvicorn_holds() -> None:
    """What ``host.py`` overrides and reads is still there, as pinned."""
    import inspect

    import uvicorn

    assert uvicorn.__version__ == "0.54.0"
    server = uvicorn.Server(uvicorn.Config(app="x"))
    assert hasattr(server, "should_exit") and hasattr(server, "force_exit")
    for name in ("startup", "shutdown"):
        assert "sockets" in inspect.signature(getattr(server, name)).parameters
    assert list(inspect.signature(server.handle_exit).parameters) == ["sig", "frame"]
    source = inspect.getsource(uvicorn.Server.startup)
    for part in ("http_protocol_class", "server_state=", "app_state=", "self.servers"):
        assert part in source


def test_the_port_of_a_dead_worker_is_free(gateway: GatewayProcess) -> None:
    gateway.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", gateway.port)) != 0
