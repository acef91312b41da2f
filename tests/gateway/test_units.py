"""The small parts that need no process: settings, figures, ids, keys, the file."""

from __future__ import annotations

import asyncio
import threading
import time
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast

import pytest

from routing.balance.state import ReplicaStates
from routing.contracts.keys import KeyEntry, key_generate, key_hash
from routing.contracts.outcome import Ending, outcome_encode
from routing.gateway.access_log import HELD_BYTES, AccessLog
from routing.gateway.config import GatewayConfig, client_address
from routing.gateway.ids import client_request_id, request_id
from routing.gateway.key_file import keys_merge, keys_read
from routing.gateway.metrics import (
    Gauges,
    Metrics,
    families_decode,
    families_encode,
    render,
)
from routing.gateway.redis_link import RedisLink
from routing.gateway.watcher import Watcher
from tests.gateway.world import outcome


def test_the_defaults_are_those_of_the_contract() -> None:
    config = GatewayConfig.from_env({})
    assert (config.host, config.port) == ("127.0.0.1", 8080)
    assert config.max_body_bytes == 32 * 1024 * 1024
    assert config.max_multipart_bytes == 100 * 1024 * 1024
    assert (config.key_grace_s, config.drain_s, config.hold_s) == (600, 30, 15)


def test_an_address_in_brackets_and_a_secret_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("unix:///x.sock\n")
    config = GatewayConfig.from_env(
        {
            "SLUICE_GATEWAY_BIND": "[::1]:9",
            "REDIS_URL_FILE": str(tmp_path / "url"),
        }
    )
    assert (config.host, config.port) == ("::1", 9)
    assert config.redis_url == "unix:///x.sock"


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "1.1.1.1, 203.0.113.9, 10.0.0.7", "203.0.113.9"),
        ("203.0.113.5", "1.1.1.1", "203.0.113.5"),
        ("10.0.0.1", "junk, 10.0.0.7", "10.0.0.7"),
        ("10.0.0.1", "junk", "10.0.0.1"),
        ("10.0.0.1", "[2001:db8::1]", "2001:db8::1"),
    ],
)
def test_only_trusted_proxies_are_believed(
    peer: str, forwarded: str, expected: str
) -> None:
    trusted = (ip_network("10.0.0.0/8"),)
    assert client_address(peer, forwarded, trusted) == expected


def test_request_ids_sort_by_time_and_never_repeat() -> None:
    ids = [request_id(at) for at in range(1_000, 3_000)]
    assert ids == sorted(ids)
    assert all(len(one) == 32 and int(one, 16) for one in ids)
    assert len({request_id(1.0) for _ in range(5_000)}) == 5_000


def test_a_clients_id_is_kept_only_if_it_is_harmless() -> None:
    assert client_request_id(b"abc-1.2:3") == "abc-1.2:3"
    for raw in (None, b"", b"a" * 129, b"a b", b"a\nb", b"\xff", b'"'):
        assert client_request_id(raw) == ""


def test_the_text_has_each_family_once_and_escapes_its_labels() -> None:
    metrics, other = Metrics(), Metrics()
    metrics.count(outcome(model='a"b\\c\nd', duration_ms=30, first_content_ms=20))
    other.count(outcome(status=499, ending=Ending.CLIENT_LEFT, duration_ms=1e9))
    sent = families_decode(families_encode(other.families("two", Gauges())))
    text = render([metrics.families("one", Gauges(redis_up=True)), sent]).decode()
    assert text.count("# TYPE sluice_request_duration_seconds histogram") == 1
    assert 'model="a\\"b\\\\c\\nd"' in text
    assert 'sluice_redis_up{gateway="one"} 1' in text
    assert 'sluice_client_disconnects_total{gateway="two"} 1' in text
    buckets = [
        line.rsplit(" ", 1)[1]
        for line in text.splitlines()
        if line.startswith("sluice_request_duration_seconds_bucket{")
        and 'gateway="one"' in line
    ]
    assert buckets == ["0"] * 3 + ["1"] * 14
    assert 'le="+Inf"} 1' in text and text.endswith("\n")


def test_the_access_log_drops_and_counts_when_nobody_reads() -> None:
    import os

    read_end, write_end = os.pipe()
    log = AccessLog(write_end)
    one = outcome_encode(outcome(path="x" * 190, client_request_id="y" * 120))
    for _ in range(3 * HELD_BYTES // 400):
        log.write(one)
    assert log.dropped > 0
    got = bytearray()

    def read() -> None:
        while part := os.read(read_end, 1 << 20):
            got.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    log.close()
    os.close(write_end)
    reader.join(10)
    os.close(read_end)
    written = 3 * HELD_BYTES // 400 - log.dropped
    assert got.count(b"\n") == written


def entry_of(name: str, **fields: Any) -> KeyEntry:
    fresh = key_generate()
    return KeyEntry(name, key_hash(fresh.text), "demo", **fields)


def test_the_key_file_merges_what_several_workers_know(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    now = time.time()
    old, new = entry_of("a"), entry_of("a", active=False)
    keys_merge(path, [(new, now), (entry_of("b"), now)], set(), now - 600)
    keys_merge(path, [(old, now - 60), (entry_of("c"), now)], set(), now - 600)
    found = {entry.id: entry for entry, _ in keys_read(path)}
    assert set(found) == {"a", "b", "c"}
    assert not found["a"].active
    keys_merge(path, [], {"b"}, now - 600)
    keys_merge(path, [(entry_of("d"), now - 700)], set(), now - 600)
    assert {entry.id for entry, _ in keys_read(path)} == {"a", "c"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_spoiled_key_file_is_no_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for content in (b"", b"junk", b'{"a":1}', b"[1]"):
        path.write_bytes(content)
        assert keys_read(path) == []


def test_revisions_that_come_fast_leave_the_newest_on_disk_and_whole(
    tmp_path: Path,
) -> None:
    """Each is written beside the traffic while the next one may be there already."""
    path = tmp_path / "snapshot.json"
    watcher = Watcher(cast("RedisLink", None), ReplicaStates(), path)
    bodies = [b"%d" % number * 200_000 for number in range(1, 9)]
    seen: list[bytes] = []

    async def keep(body: bytes) -> None:
        await watcher.keep(body)
        seen.append(path.read_bytes())

    async def keep_all() -> None:
        await asyncio.gather(*map(keep, bodies))

    asyncio.run(keep_all())
    assert path.read_bytes() == bodies[-1]
    assert set(seen) <= set(bodies)
    assert list(tmp_path.iterdir()) == [path]


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    now = time.time()

    def write(worker: int) -> None:
        for turn in range(10):
            entry = entry_of(f"{worker}-{turn}")
            keys_merge(path, [(entry, now)], set(), now - 600)

    workers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)
    assert len(keys_read(path)) == 40
