"""What is measured: one row for each way from a client to the mock engine.

A further peer is one more function and one more row in ``CANDIDATES``.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec
import redis

from cluster import feed
from cluster.health import Probe, ProbeAxis
from routing.contracts import names
from routing.contracts.keys import KeyEntry, key_generate, key_hash
from routing.contracts.route import RouteSettings
from routing.contracts.snapshot import (
    SCHEMA,
    ReplicaEntry,
    RouteEntry,
    Snapshot,
    VersionEntry,
    snapshot_encode,
)
from tests import services
from tests.bench.machine import Cores
from tests.bench.processes import StartFailed, free_port, interrupts_held, served
from tests.fakes.engine import MockEngine

MODEL = "bench"
REPLICA = "bench-1"
_READY_S = 15


class Target(NamedTuple):
    """Where to send requests, with which key, and whose CPU time counts."""

    port: int
    pid: int
    key: str = "sk-none"


class Site(NamedTuple):
    """What a candidate needs to start: a folder of its own, the mock, the cores."""

    folder: Path
    engine: MockEngine
    cores: Cores


class Candidate(NamedTuple):
    """``missing`` says why it cannot run here, or None."""

    name: str
    missing: Callable[[], str | None]
    start: Callable[[Site], AbstractContextManager[Target]]


def never_missing() -> str | None:
    return None


@contextmanager
def mock_direct(site: Site) -> Iterator[Target]:
    yield Target(port=site.engine.port, pid=site.engine.pid)


def nginx_binary() -> str | None:
    """Where it is; the folders of servers are not in every user's path."""
    folders = os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"
    return shutil.which("nginx", path=os.pathsep.join(folders))


def nginx_missing() -> str | None:
    return None if nginx_binary() else "nginx is not installed"


_NGINX = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream engine {{
        server 127.0.0.1:{engine};
        keepalive 512;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        keepalive_requests 100000000;
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            add_header x-request-id $request_id;
        }}
    }}
}}
"""


@contextmanager
def nginx(site: Site) -> Iterator[Target]:
    """The limit: one worker that only passes on, with no log, no key, no limits."""
    port = free_port()
    configuration = site.folder / "nginx.conf"
    configuration.write_text(
        _NGINX.format(folder=site.folder, engine=site.engine.port, port=port)
    )
    binary = nginx_binary()
    assert binary is not None, "asked for where it is missing"
    command = [binary, "-p", str(site.folder), "-c", str(configuration)]
    log = site.folder / "nginx.log"
    with served(command, port=port, log=log, cores=site.cores.proxy) as pid:
        yield Target(port=port, pid=pid)


def sluice_missing() -> str | None:
    if find_spec("routing.gateway.__main__") is None:
        return "this tree has no gateway"
    return None


@contextmanager
def sluice(site: Site) -> Iterator[Target]:
    """One gateway worker with everything on: key, routing, outcome, access log."""
    port = free_port()
    with ExitStack() as stack:
        with interrupts_held():
            valkey = stack.enter_context(services.valkey())
        key = _publish(valkey.url, site.engine.address)
        environment = {
            "SLUICE_GATEWAY_BIND": f"127.0.0.1:{port}",
            "SLUICE_DATA_DIR": str(site.folder),
            "REDIS_URL": valkey.url,
        }
        with served(
            [sys.executable, "-m", "routing.gateway"],
            port=port,
            log=site.folder / "gateway.log",
            cores=site.cores.proxy,
            environment=environment,
        ) as pid:
            _await_ready(port)
            yield Target(port=port, pid=pid, key=key)


def _publish(redis_url: str, address: str) -> str:
    """One route with one healthy replica, and a key; the text of the key."""
    key = key_generate()
    entry = KeyEntry(id=key.public_id, secret_sha256=key_hash(key.text), team="bench")
    probe = ProbeAxis(state=Probe.UP, since=time.time())
    keys, replicas = feed.feed_names(feed.KEYS), feed.feed_names(feed.REPLICAS)
    client = redis.Redis.from_url(redis_url)
    _write(client, feed.ENTRY_PUT, keys, entry.id, msgspec.json.encode(entry))
    client.set(keys.complete, "1")
    fields = ("probe", msgspec.json.encode(probe))
    _write(client, feed.HASH_FIELD_PUT, replicas, REPLICA, *fields)
    client.set(names.SNAPSHOT_BODY, snapshot_encode(_snapshot(address)))
    client.set(names.SNAPSHOT_REVISION, "1:1")
    client.close()
    return key.text


def _write(
    client: redis.Redis,
    script: str,
    names_: feed.FeedNames,
    entry_id: str,
    *values: str | bytes,
) -> None:
    keys = (names_.entry(entry_id), names_.number, names_.changes, names_.notices)
    client.eval(script, len(keys), *keys, entry_id, *values)


def _snapshot(address: str) -> Snapshot:
    version = VersionEntry(
        name="v1",
        engine="generic",
        # Another name than the route's, so that it has to be replaced.
        served_name="bench-served",
        weight_bp=10_000,
        replicas=(ReplicaEntry(id=REPLICA, address=address),),
    )
    route = RouteEntry(
        model=MODEL,
        kind="chat",
        created=int(time.time()),
        generation=1,
        settings=RouteSettings(),
        versions=(version,),
    )
    return Snapshot(
        schema=SCHEMA, epoch=1, revision=1, created_at=time.time(), routes=(route,)
    )


def _await_ready(port: int) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                return
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace")
            error.close()
        except OSError as error:
            reason = str(error)
        if time.monotonic() > deadline:
            raise StartFailed(f"The gateway did not become ready: {reason}")
        time.sleep(0.02)


CANDIDATES = (
    Candidate("mock", never_missing, mock_direct),
    Candidate("nginx", nginx_missing, nginx),
    Candidate("sluice", sluice_missing, sluice),
)
# Ratios are quoted to this one, where it runs.
BASELINE = "nginx"
DIRECT = "mock"
