"""The tasks in a real worker: from a wish to a replica that answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis

from cluster import tasks
from cluster.models import Node
from tests import services
from tests.cluster.conftest import WEIGHTS

SCENE = """
import hashlib, json, os, sys, time
import django
django.setup()
from cluster import live
from cluster.actor import SYSTEM
from cluster.engines import artifact_path
from cluster.health import state_merge
from cluster.models import Replica
from cluster.services import (
    model_create, node_register, replica_create, replica_remove, version_create
)

weights = sys.argv[1]
with artifact_path(weights).open("rb") as file:
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
node = node_register(name="local", actor=SYSTEM)
version = version_create(
    model=model_create(name="smol", actor=SYSTEM), name="v1", engine="llamacpp",
    served_name="s", artifact=weights, artifact_sha256=sha256,
    params={"ctx-size": 256, "warmup": False}, actor=SYSTEM,
)

def labels(last):
    seen, began = [], time.monotonic()
    while time.monotonic() - began < 60:
        record = live.records_read([replica.id])[replica.id]
        label = state_merge(record, now=time.time()).label.value
        if seen[-1:] != [label]:
            seen.append(label)
        if label == last:
            return seen
        time.sleep(0.01)
    raise SystemExit(f"never {last}: {seen}")

replica = replica_create(version=version, driver="process", node=node, actor=SYSTEM)
first = labels("healthy")
pid = Replica.objects.get().pid
# Nobody asks the node to look: the process's keeper tells it.
os.kill(pid, 9)
second = labels("down") + labels("healthy")
replica_remove(replica=replica, actor=SYSTEM)
third = labels("registered")
print(json.dumps([first, second, third, pid != Replica.objects.get().pid]))
"""


@pytest.fixture
def environment(
    tmp_path: Path, valkey_server: services.Valkey, valkey: object, settings: Any
) -> Iterator[dict[str, str]]:
    """Of a Sluice on a database in a file, with a worker at work."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "SLUICE_DATA_DIR": str(tmp_path / "data"),
        "DATABASE_URL": f"sqlite:///{tmp_path}/fleet.sqlite3",
        "REDIS_URL": valkey_server.url,
    }
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity=0"],
        env=environment,
        cwd=settings.BASE_DIR,
        timeout=60,
        check=True,
    )
    command = ["-m", "celery", "--app=console", "worker", "--queues=celery,node.local"]
    log = tmp_path / "worker.log"
    with log.open("wb") as file:
        worker = subprocess.Popen(
            [sys.executable, *command, "--concurrency=2", "--loglevel=info"],
            env=environment,
            cwd=settings.BASE_DIR,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    deadline = time.monotonic() + 60
    while " ready." not in log.read_text():
        assert worker.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    yield environment
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="no xllamacpp here")
def test_the_worker_brings_a_replica_up_back_and_down(
    environment: dict[str, str], settings: Any
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCENE, WEIGHTS],
        env=environment,
        cwd=settings.BASE_DIR,
        stdout=subprocess.PIPE,
        timeout=200,
        check=True,
        text=True,
    )
    first, second, third, replaced = json.loads(done.stdout)
    assert {"registered", "starting", "loading", "healthy"} <= set(first)
    assert is_on_the_way(first)
    assert second[:2] == ["healthy", "down"] and second[-1] == "healthy"
    assert is_on_the_way([label for label in second if label != "down"][1:])
    assert third[-1] == "registered"
    assert replaced


def is_on_the_way(labels: list[str]) -> bool:
    """In the order of a start; who only looks now and then may miss a short one."""
    way = ["registered", "starting", "loading", "warming", "healthy"]
    return labels == sorted(set(labels), key=way.index)


@pytest.mark.django_db(transaction=True)
def test_a_nudge_goes_to_the_nodes_own_queue_and_compares_no_clocks(
    monkeypatch: pytest.MonkeyPatch, valkey: redis.Redis
) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(
        tasks.node_reconcile, "apply_async", lambda **options: sent.append(options)
    )
    Node.objects.create(name="gpu-1")
    Node.objects.create(name="gpu-2")
    tasks.nodes_reconcile()
    assert sent == [
        {"args": ("gpu-1",), "queue": "node.gpu-1", "retry": False},
        {"args": ("gpu-2",), "queue": "node.gpu-2", "retry": False},
    ]


@pytest.mark.django_db(transaction=True)
def test_nudges_do_not_pile_up_for_a_node_that_is_away(valkey: redis.Redis) -> None:
    Node.objects.create(name="gpu-1")
    for _ in range(50):
        tasks.nodes_reconcile()
    assert valkey.llen("node.gpu-1") == 2
