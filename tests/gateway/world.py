"""A cluster without Django: a real Valkey, mock engines and real gateways.

Snapshots, keys and replica records are written straight from the contracts.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import redis

from cluster import feed
from cluster.health import (
    Admin,
    AdminAxis,
    PassiveAxis,
    Probe,
    ProbeAxis,
    Record,
    record_decode,
    states_merge,
)
from routing.contracts import names
from routing.contracts.keys import KeyEntry, key_generate, key_hash
from routing.contracts.outcome import Ending, Outcome
from routing.contracts.route import settings_decode
from routing.contracts.snapshot import (
    ReplicaEntry,
    RouteEntry,
    Snapshot,
    VersionEntry,
    snapshot_encode,
)
from tests.services import Valkey

ROOT = Path(__file__).resolve().parents[2]
_KEYS = feed.feed_names(feed.KEYS)
_REPLICAS = feed.feed_names(feed.REPLICAS)
T = TypeVar("T")
CHAT = "/v1/chat/completions"


class ControlPlane:
    """What the console writes to Redis."""

    def __init__(self, valkey: Valkey) -> None:
        self.valkey = valkey
        self.client = redis.Redis.from_url(valkey.url, socket_timeout=2)
        self.revision = 0

    def publish(self, *routes: RouteEntry, epoch: int = 1) -> int:
        self.revision += 1
        snapshot = Snapshot(1, epoch, self.revision, time.time(), routes)
        self.publish_body(snapshot_encode(snapshot), epoch)
        return self.revision

    def publish_body(self, body: bytes, epoch: int = 1) -> None:
        number = f"{epoch}:{self.revision}"
        self.client.set(names.SNAPSHOT_BODY, body)
        self.client.set(names.SNAPSHOT_REVISION, number)
        self.client.publish(names.SNAPSHOT_NOTICES, number)

    def key(self, **fields: Any) -> str:
        """A fresh key of the team ``demo``; its text."""
        fresh = key_generate()
        entry = KeyEntry(fresh.public_id, key_hash(fresh.text), "demo", **fields)
        self.put(entry)
        return fresh.text

    def put(self, entry: KeyEntry) -> None:
        script = self.client.register_script(feed.ENTRY_PUT)
        keys = [_KEYS.entry(entry.id), _KEYS.number, _KEYS.changes, _KEYS.notices]
        script(keys=keys, args=[entry.id, msgspec.json.encode(entry)])

    def revoke(self, text: str) -> None:
        name = _KEYS.entry(text[3:15])
        body = self.client.get(name)
        assert isinstance(body, bytes)
        entry = msgspec.json.decode(body, type=KeyEntry)
        self.put(msgspec.structs.replace(entry, active=False))

    def mark_complete(self) -> None:
        self.client.set(_KEYS.complete, "1")

    def probe(self, replica_id: str, state: Probe = Probe.UP) -> None:
        self._axis(replica_id, "probe", ProbeAxis(state, time.time()))

    def admin(self, replica_id: str, state: Admin) -> None:
        self._axis(replica_id, "admin", AdminAxis(state, time.time()))

    def record(self, replica_id: str) -> Record:
        fields: Any = self.client.hgetall(_REPLICAS.entry(replica_id))
        return record_decode(fields)

    def passive(self, replica_id: str, axis: PassiveAxis) -> None:
        self._axis(replica_id, "passive", axis)

    def forget(self) -> None:
        """What tests before found out about any replica."""
        for entry in self.client.scan_iter(_REPLICAS.entry("*"), count=1000):
            self.client.delete(entry)

    def _axis(self, replica_id: str, name: str, axis: msgspec.Struct) -> None:
        script = self.client.register_script(feed.HASH_FIELD_PUT)
        keys = [
            _REPLICAS.entry(replica_id),
            _REPLICAS.number,
            _REPLICAS.changes,
            _REPLICAS.notices,
        ]
        script(keys=keys, args=[replica_id, name, msgspec.json.encode(axis)])


def route(
    model: str,
    versions: dict[str, tuple[int, list[str]]],
    *,
    kind: str = "chat",
    retries: int = 1,
    timeouts: dict[str, float] | None = None,
    **settings: Any,
) -> RouteEntry:
    """Version name → (weight, addresses); replicas are ``<model>-<version>-<n>``.
    ``settings`` are further ones of the route, as the API takes them."""
    settings |= {"timeouts": timeouts or {}, "retries": retries}
    return RouteEntry(
        model=model,
        kind=kind,
        created=1_700_000_000,
        generation=7,
        settings=settings_decode(settings),
        versions=tuple(
            VersionEntry(
                name,
                "generic",
                "served",
                weight,
                tuple(
                    ReplicaEntry(f"{model}-{name}-{n}", address)
                    for n, address in enumerate(addresses, 1)
                ),
            )
            for name, (weight, addresses) in versions.items()
        ),
    )


def apply(control: ControlPlane, gateway: GatewayProcess, *routes: RouteEntry) -> None:
    """Published, applied, and every replica in the state that its record tells: a
    revision is applied a moment before the records of its replicas are read."""
    revision = control.publish(*routes)
    gateway.wait_for(lambda: gateway.metric("sluice_snapshot_revision") == revision)
    for entry in routes:
        ids = [r.id for version in entry.versions for r in version.replicas]
        records = {id_: control.record(id_) for id_ in ids}
        for id_, state in states_merge(records, now=time.time()).items():
            gateway.wait_for(
                lambda id_=id_, label=state.label: gateway.state_of(id_) == label  # type: ignore[misc]
            )


def outcome(**fields: Any) -> Outcome:
    """One that went well, without the control side's knowledge of it."""
    defaults: dict[str, Any] = {
        "request_id": "r",
        "at": 0.0,
        "gateway": "g",
        "method": "POST",
        "path": "/",
        "status": 200,
        "ending": Ending.COMPLETED,
    }
    return Outcome(**(defaults | fields))


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error code, with the proof that all four keys are there."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return str(error["code"])

    @property
    def events(self) -> list[str]:
        blocks = self.body.decode().replace("\r\n", "\n").split("\n\n")
        return [b.removeprefix("data: ") for b in blocks if b.startswith("data: ")]

    @property
    def text(self) -> str:
        """The text of a stream's chunks, put together."""
        chunks = [json.loads(event) for event in self.events if event != "[DONE]"]
        deltas = [c["choices"][0]["delta"] for c in chunks if c.get("choices")]
        return "".join(delta.get("content") or "" for delta in deltas)


@dataclass
class GatewayProcess:
    """``python -m routing.gateway`` on a port of the kernel's choice."""

    folder: Path
    redis_url: str = ""
    module: str = "routing.gateway"
    env: dict[str, str] = field(default_factory=dict)
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> GatewayProcess:
        self.folder.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "REDIS_URL": self.redis_url,
            "SLUICE_DATA_DIR": str(self.folder),
            "SLUICE_GATEWAY_BIND": f"127.0.0.1:{self.port}",
            **self.env,
        }
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module],
                cwd=ROOT,
                env=environment,
                stdout=out,
                stderr=err,
            )
        self.port = self._listening()["port"]
        return self

    def _listening(self) -> dict[str, Any]:
        process = self.process
        assert process is not None
        return self.wait_for(
            lambda: next((x for x in self.log() if x.get("pid") == process.pid), None),
            within_s=20,
        )

    @property
    def out(self) -> Path:
        return self.folder / "access.jsonl"

    @property
    def err(self) -> Path:
        return self.folder / "gateway.jsonl"

    def log(self) -> list[dict[str, Any]]:
        assert self.process is not None
        text = self.err.read_text()
        assert self.process.poll() is None or '"port"' in text, text
        whole = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines()]

    def outcomes(self) -> list[Outcome]:
        text = self.out.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        lines = whole.splitlines()
        return [msgspec.json.decode(line, type=Outcome) for line in lines]

    def outcome(self, request_id: str) -> Outcome:
        """The one outcome of a request, which is waited for."""
        found = self.wait_for(
            lambda: [o for o in self.outcomes() if o.request_id == request_id]
        )
        assert len(found) == 1
        return found[0]

    def wait_for(self, look: Callable[[], T | None], within_s: float = 15.0) -> T:
        """The first truthy answer; the file has no event to wait for."""
        deadline = time.monotonic() + within_s
        while not (found := look()):
            assert time.monotonic() < deadline, self.err.read_text()[-3000:]
            time.sleep(0.01)
        return found

    def request(
        self,
        method: str,
        path: str,
        key: str = "",
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """One request on a connection of its own."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=15)
        try:
            sent = body if isinstance(body, bytes | None) else json.dumps(body)
            client.request(method, path, sent, self.headers(key) | (headers or {}))
            return self.read(client)
        finally:
            client.close()

    @staticmethod
    def headers(key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    @staticmethod
    def read(client: http.client.HTTPConnection) -> Reply:
        answer = client.getresponse()
        try:
            body = answer.read()
        except http.client.IncompleteRead as error:
            body = error.partial
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, headers, body)

    def chat(self, key: str, model: str = "m", **fields: Any) -> Reply:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        return self.request("POST", CHAT, key, {**body, **fields})

    def raw(self, sent: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        connection.sendall(sent)
        return connection

    def raw_chat(self, key: str, model: str = "m", **fields: Any) -> socket.socket:
        """A request on a socket of its own, which the test reads and closes."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        encoded = json.dumps({**body, **fields}).encode()
        return self.raw(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
            b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b"
            % (key.encode(), len(encoded), encoded)
        )

    def metric(self, name: str, *labels: str) -> float:
        """The sum over this gateway's own series that have these labels."""
        wanted = (f'gateway="{self.id}"', *labels)
        lines = self.request("GET", "/metrics").body.decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith(f"{name}{{") and all(part in line for part in wanted)
        )

    def state_of(self, replica: str) -> str:
        """The word by which this gateway routes; empty for a replica it has not."""
        wanted = (f'gateway="{self.id}"', f'replica="{replica}"')
        lines = self.request("GET", "/metrics").body.decode().splitlines()
        found = (
            line.partition('state="')[2].partition('"')[0]
            for line in lines
            if line.startswith("sluice_replica_state{")
            and all(part in line for part in wanted)
        )
        return next(found, "")

    @property
    def id(self) -> str:
        return str(self.request("GET", "/readyz").json["gateway"])

    def signal(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self, within_s: float = 10) -> int:
        assert self.process is not None
        return self.process.wait(within_s)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


def read_until(connection: socket.socket, mark: bytes, within_s: float = 10) -> bytes:
    """What arrives until the mark has; the end of the connection ends it too."""
    data = bytearray()
    deadline = time.monotonic() + within_s
    readable = select.poll()
    readable.register(connection, select.POLLIN)
    while data.find(mark, max(0, len(data) - 65536 - len(mark))) < 0:
        left = deadline - time.monotonic()
        assert left > 0, f"no {mark!r} in {bytes(data[-500:])!r}"
        if readable.poll(left * 1000):
            try:
                part = connection.recv(65536)
            except ConnectionResetError:
                break
            if not part:
                break
            data += part
    return bytes(data)


def read_all(connection: socket.socket, within_s: float = 10) -> bytes:
    """Everything until the other side closes."""
    return read_until(connection, b"\0never\0", within_s)


@contextmanager
def gateway(folder: Path, redis_url: str, **kwargs: Any) -> Iterator[GatewayProcess]:
    """Whatever a test did to it, the gateway itself must not have stumbled."""
    process = GatewayProcess(folder, redis_url, **kwargs)
    try:
        yield process.start()
    finally:
        process.stop()
    text = process.err.read_text()
    assert "Traceback" not in text, text
