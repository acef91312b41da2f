"""A real llama.cpp replica: started, asked, killed, adopted by the next worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from cluster import live
from cluster.drivers.decision import STOP_GRACE_S
from cluster.health import Label, Process, state_merge
from cluster.models import Replica, Version
from cluster.services import (
    engines_ask,
    replica_running_set,
    replicas_deep_probe,
    replicas_probe,
)
from tests import services
from tests.cluster.conftest import WEIGHTS, Fleet, process, record

pytestmark = [
    pytest.mark.skipif(
        find_spec("xllamacpp") is None, reason="no xllamacpp on this platform"
    ),
]
PARAMS: dict[str, Any] = {"ctx-size": 256, "warmup": False, "temp": 0}


def version_of(fleet: Fleet, **params: Any) -> Version:
    return fleet.version(engine="llamacpp", artifact=WEIGHTS, params=PARAMS | params)


def label(replica: Replica) -> Label:
    return state_merge(record(replica), now=time.time()).label


def chat(replica: Replica) -> str:
    replica.refresh_from_db()
    question = {
        "model": "smol",
        "max_tokens": 4,
        "messages": [{"role": "user", "content": "Say hello."}],
    }
    with httpx.Client(trust_env=False, timeout=30) as client:
        answer = client.post(f"{replica.address}/v1/chat/completions", json=question)
        names = client.get(f"{replica.address}/v1/models").json()
        metrics = client.get(f"{replica.address}/metrics")
    assert names["data"][0]["id"] == "smol"
    assert "llamacpp:requests_processing" in metrics.text
    return str(answer.raise_for_status().json()["choices"][0]["message"]["content"])


def until_healthy(fleet: Fleet, replica: Replica) -> list[Label]:
    """The labels on the way, without repetition."""
    labels: list[Label] = []

    def healthy() -> bool:
        replicas_probe()
        if label(replica) is Label.WARMING:
            replicas_deep_probe()
        now = label(replica)
        if labels[-1:] != [now]:
            labels.append(now)
        return now is Label.HEALTHY

    fleet.until(healthy, timeout_s=30)
    return labels


@pytest.mark.django_db(transaction=True)
def test_a_real_engine_serves_survives_its_killing_and_ends(fleet: Fleet) -> None:
    replica = fleet.replica(version_of(fleet))
    assert until_healthy(fleet, replica) == [Label.LOADING, Label.HEALTHY]
    assert chat(replica).strip()
    assert engines_ask() == [replica.id]
    facts = live.engine_facts_read()[replica.id]
    assert facts.release.startswith("b") and facts.serves_name is True
    replica.refresh_from_db()
    first, address = replica.pid, replica.address
    assert first is not None
    assert psutil.Process(first).num_threads() < 64
    assert "ready on http://127.0.0.1:" in fleet.files().log(replica.id).read_text()

    os.kill(first, signal.SIGKILL)
    fleet.until(lambda: label(replica) is Label.DOWN)
    assert state_merge(record(replica), now=time.time()).detail.startswith(
        "Ended by signal 9 (SIGKILL)"
    )
    assert until_healthy(fleet, replica)[-2:] == [Label.LOADING, Label.HEALTHY]
    replica.refresh_from_db()
    assert replica.pid != first and replica.address == address
    assert process(replica).restarts == 1
    assert chat(replica).strip()

    replica_running_set(replica=replica, running=False, actor=fleet.actor)
    began = time.monotonic()
    fleet.until(lambda: process(replica).state is Process.STOPPED)
    # Nobody had to force it.
    assert time.monotonic() - began < STOP_GRACE_S
    assert label(replica) is Label.STOPPED


@pytest.mark.django_db(transaction=True)
def test_an_engine_ends_at_once_even_in_the_middle_of_an_answer(fleet: Fleet) -> None:
    replica = fleet.replica(version_of(fleet, **{"ctx-size": 2048}))
    until_healthy(fleet, replica)
    replica.refresh_from_db()
    question = {
        "stream": True,
        "max_tokens": 1500,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": "Count."}],
    }
    url = f"{replica.address}/v1/chat/completions"
    with (
        httpx.Client(trust_env=False, timeout=30) as client,
        client.stream("POST", url, json=question) as answer,
    ):
        chunks = answer.iter_raw()
        next(chunks)
        replica_running_set(replica=replica, running=False, actor=fleet.actor)
        began = time.monotonic()
        fleet.until(lambda: process(replica).state is Process.STOPPED)
        with pytest.raises(httpx.HTTPError):
            while True:
                next(chunks)
        assert time.monotonic() - began < STOP_GRACE_S


@pytest.mark.django_db(transaction=True)
def test_a_damaged_model_file_is_told_in_the_engines_own_words(
    fleet: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + b"\0" * 64)
    version = fleet.version(engine="llamacpp", artifact=str(file), params=PARAMS)
    replica = fleet.replica(version)
    fleet.until(lambda: process(replica).state is Process.EXITED)
    axis = process(replica)
    assert axis.reason in ("exit_code", "signal")
    assert "Last lines:" in axis.detail and axis.next_try > axis.since


WORKER = """
import json, sys
import django
django.setup()
from cluster.actor import SYSTEM
from cluster.models import Node, Replica
from cluster.services import (
    model_create, node_reconcile, node_register, replica_create, version_create
)
if sys.argv[1] == "create":
    node = node_register(name="local", actor=SYSTEM)
    version = version_create(
        model=model_create(name="smol", actor=SYSTEM), name="v1", engine="generic",
        served_name="s", params={"command": "/bin/sleep 300"}, actor=SYSTEM,
    )
    replica_create(version=version, driver="process", node=node, actor=SYSTEM)
done = node_reconcile(node=Node.objects.get())
row = Replica.objects.get()
print(json.dumps({"pid": row.pid, "id": row.id, "started": done and done.started}))
"""


@pytest.fixture
def worker(
    tmp_path: Path, valkey_server: services.Valkey, settings: Any
) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Runs one reconcile in a process of its own, on a database in a file."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "SLUICE_DATA_DIR": str(tmp_path / "data"),
        "DATABASE_URL": f"sqlite:///{tmp_path}/fleet.sqlite3",
        "REDIS_URL": valkey_server.url,
    }

    def run(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=settings.BASE_DIR,
            stdout=subprocess.PIPE,
            timeout=60,
            check=True,
            text=True,
        ).stdout

    run("manage.py", "migrate", "--verbosity=0")
    rows: list[dict[str, Any]] = []

    def work(what: str) -> dict[str, Any]:
        rows.append(json.loads(run("-c", WORKER, what)))
        return rows[-1]

    yield work
    for row in rows:
        if psutil.pid_exists(row["pid"]):
            os.kill(row["pid"], signal.SIGKILL)


@pytest.mark.processes
@pytest.mark.usefixtures("valkey")
def test_the_next_worker_takes_the_process_over(
    worker: Callable[[str], dict[str, Any]],
) -> None:
    first = worker("create")
    assert first["started"] == [first["id"]]
    assert psutil.Process(first["pid"]).cmdline() == ["/bin/sleep", "300"]
    axis = live.records_read([first["id"]])[first["id"]].process
    second = worker("again")
    assert second == first | {"started": []}
    assert live.records_read([first["id"]])[first["id"]].process == axis
    own = psutil.Process(first["pid"]).environ()["SLUICE_REPLICA_OWNER"]
    sleepers = [
        process.pid
        for process in psutil.process_iter()
        if process.name() == "sleep"
        and process.environ().get("SLUICE_REPLICA_OWNER") == own
    ]
    assert sleepers == [first["pid"]]
