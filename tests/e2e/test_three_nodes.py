"""Three nodes on a network of their own, with real engines, one of them cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import psycopg
import pytest
import redis

from cluster import feed
from cluster.drivers.files import NodeFiles
from cluster.drivers.identity import marked_processes
from cluster.health import Label, ProcessAxis, record_decode, state_merge
from cluster.health.inflight import inflight_name
from cluster.health.record import NodeReach
from tests import services
from tests.cluster.conftest import WEIGHTS
from tests.e2e import networks
from tests.e2e.product import ROOT, eventually
from tests.gateway.world import GatewayProcess, read_until

CUT_S = 60.0
NAMES = ("a", "b", "c")

SCENE = """
import sys
import django
django.setup()
from django.core.management import call_command
from cluster.actor import SYSTEM
from cluster.models import Node
from cluster.services import model_create, replica_create, version_create
from routing.services import key_issue, team_create
from routing.services.inventory import routes_align

version = version_create(
    model=model_create(name="smol", actor=SYSTEM), name="v1", engine="llamacpp",
    served_name="s", artifact=sys.argv[1],
    params={"ctx-size": 512, "warmup": False}, actor=SYSTEM,
)
for node in Node.objects.order_by("name"):
    replica_create(version=version, driver="process", node=node, actor=SYSTEM)
routes_align(actor=SYSTEM)
_key, text = key_issue(
    team=team_create(slug="t", name="T", actor=SYSTEM), name="k", scopes=[],
    actor=SYSTEM,
)
print(text)
"""


class Row(NamedTuple):
    """What the database has of a replica."""

    pid: int
    address: str
    started_for: int


class Cluster:
    """A control plane on this machine, and a worker on each machine of a network."""

    def __init__(
        self, net: networks.Network, folder: Path, database: str, redis_url: str
    ) -> None:
        self.net = net
        self.folder = folder
        self.database = database
        self.redis = redis.Redis.from_url(redis_url, socket_timeout=2)
        self.environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "DATABASE_URL": database,
            "REDIS_URL": redis_url,
            "SLUICE_SECRET_KEY": "k" * 50,
            "SLUICE_DATA_DIR": str(folder / "control"),
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self, *words: str) -> str:
        return subprocess.run(
            [sys.executable, *words],
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            timeout=90,
            check=True,
            text=True,
        ).stdout

    def start(
        self, name: str, *words: str, prefix: list[str] | None = None
    ) -> subprocess.Popen[bytes]:
        own = {"SLUICE_DATA_DIR": str(self.folder / name)}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    [*(prefix or []), sys.executable, *words],
                    env=self.environment | own,
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return self.processes[-1]

    def join(self, name: str) -> subprocess.Popen[bytes]:
        words = ["manage.py", "node", "join", "--name", name]
        words += ["--host", self.net.address(name), "--concurrency", "1"]
        return self.start(name, *words, prefix=self.net.inside(name))

    def files(self, name: str) -> NodeFiles:
        return NodeFiles(self.folder / name, name)

    def record(self, number: int) -> tuple[ProcessAxis | None, Label]:
        names = feed.feed_names(feed.REPLICAS)
        fields: Any = self.redis.hgetall(names.entry(f"smol-v1-{number}"))
        record = record_decode(fields)
        return record.process, state_merge(record, now=time.time()).label

    def healthy(self, number: int) -> bool:
        return self.record(number)[1] is Label.HEALTHY

    def reach(self, number: int) -> str:
        names = feed.feed_names(feed.REPLICAS)
        raw: Any = self.redis.hget(names.entry(f"smol-v1-{number}"), "node")
        reached = [state for state in NodeReach if raw and state.encode() in raw]
        # "reachable" is a part of "unreachable".
        return max(reached, key=len, default="")

    def row(self, number: int) -> Row:
        question = "SELECT pid, address, started_for FROM cluster_replica WHERE id = %s"
        with psycopg.connect(self.database) as connection:
            found = connection.execute(question, (f"smol-v1-{number}",)).fetchone()
        assert found is not None
        return Row(*found)

    def engines(self, name: str) -> list[int]:
        """The sessions of the node's living replicas."""
        marked = marked_processes(self.files(name).owner)
        return sorted({process.session for process in marked})

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
        for name in NAMES:
            for process_ in marked_processes(self.files(name).owner):
                os.kill(process_.identity.pid, signal.SIGKILL)
        self.redis.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if reason := networks.unusable():
        pytest.skip(reason)
    with ExitStack() as stack:
        net = stack.enter_context(networks.network(*NAMES))
        url = stack.enter_context(
            services.postgresql(host=net.gateway, network=net.range)
        )
        server = stack.enter_context(services.valkey(net.gateway))
        made = Cluster(net, tmp_path, url, server.url)
        stack.callback(made.end)
        made.run("manage.py", "migrate", "--verbosity=0")
        made.run("manage.py", "schedule_install")
        yield made


class Caller(threading.Thread):
    """Asks the gateway again and again, until it is stopped."""

    def __init__(self, gateway: GatewayProcess, key: str) -> None:
        super().__init__()
        self.gateway, self.key = gateway, key
        self.statuses: list[int] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.5):
            answer = self.gateway.chat(self.key, "smol", max_tokens=2)
            self.statuses.append(answer.status)


@contextmanager
def calling(gateway: GatewayProcess, key: str) -> Iterator[Caller]:
    caller = Caller(gateway, key)
    caller.start()
    try:
        yield caller
    finally:
        caller.stopped.set()
        caller.join(30)


@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="no xllamacpp here")
def test_a_node_that_is_cut_off_for_a_minute_restarts_nothing(
    cluster: Cluster,
) -> None:
    celery = ("-m", "celery", "-A", "console", "--quiet")
    workers = {name: cluster.join(name) for name in NAMES}
    eventually(
        lambda: all(cluster.redis.exists(f"sluice:node:{name}") for name in NAMES),
        within_s=60,
    )
    cluster.start("control", *celery, "worker", "--queues=celery", "--concurrency=2")
    cluster.start("beat", *celery, "beat", "--pidfile=", "--schedule=/dev/null")
    key = cluster.run("-c", SCENE, WEIGHTS).strip()
    numbers = (1, 2, 3)
    eventually(lambda: all(map(cluster.healthy, numbers)), within_s=60)
    eventually(lambda: cluster.reach(1) == "reachable", within_s=60)
    before = {
        number: (cluster.row(number), cluster.record(number)[0]) for number in numbers
    }
    gateway = GatewayProcess(
        cluster.folder / "gateway", cluster.environment["REDIS_URL"]
    )
    try:
        gateway.start()
        gateway.wait_for(lambda: gateway.chat(key, "smol", max_tokens=1).status == 200)
        with calling(gateway, key) as caller:
            cluster.net.cut("a")
            cut_at = time.monotonic()
            _worker_killed_and_adopted(cluster, workers["b"], before[2])
            _replica_killed_and_back(cluster, before[3][0])
            eventually(lambda: not cluster.healthy(1), within_s=60)
            eventually(lambda: cluster.reach(1) == "unreachable", within_s=60)
            threading.Event().wait(max(0.0, cut_at + CUT_S - time.monotonic()))
            # The engine runs on: silence ends no process, on either side.
            assert cluster.engines("a") == [before[1][0].pid]
            cluster.net.mend("a")
            mended_at = time.monotonic()
            eventually(
                lambda: cluster.healthy(1) and cluster.reach(1) == "reachable",
                within_s=60,
            )
            back_s = time.monotonic() - mended_at
        assert set(caller.statuses) == {200}, caller.statuses
        assert back_s < 30, back_s
        _drained_under_long_streams(cluster, gateway, key)
    finally:
        gateway.stop()
    # Not one restart: the same process, known by the same start.
    assert (cluster.row(1), cluster.record(1)[0]) == before[1]
    assert cluster.engines("a") == [before[1][0].pid]
    # And the node does again what is wanted of it.
    os.kill(before[1][0].pid, signal.SIGKILL)
    eventually(lambda: cluster.row(1).pid != before[1][0].pid, within_s=30)
    eventually(lambda: cluster.healthy(1), within_s=30)
    assert len(cluster.engines("a")) == 1


DRAIN = """
import sys
import django
django.setup()
from cluster.actor import SYSTEM
from cluster.models import Replica
from cluster.services import replica_drain
replica_drain(
    replica=Replica.objects.get(pk=sys.argv[1]), then_stop=True, deadline_s=300,
    actor=SYSTEM,
)
"""


def _drained_under_long_streams(
    cluster: Cluster, gateway: GatewayProcess, key: str
) -> None:
    """Its streams end whole, then its process ends; the others serve on."""
    with ExitStack() as stack:
        streams = [
            stack.enter_context(
                gateway.raw_chat(key, "smol", stream=True, max_tokens=60)
            )
            for _ in range(20)
        ]
        held = inflight_name(gateway.id)
        gateway.wait_for(lambda: cluster.redis.hexists(held, "smol-v1-2"))
        cluster.run("-c", DRAIN, "smol-v1-2")
        assert cluster.engines("b") == [cluster.row(2).pid]
        answers = [read_until(stream, b"[DONE]", within_s=120) for stream in streams]
    assert all(b"[DONE]" in answer for answer in answers)
    assert not any(b'"error"' in answer for answer in answers)
    served = [answer.partition(b"x-sluice-replica: ")[2][:9] for answer in answers]
    assert served.count(b"smol-v1-2") >= 2, served
    eventually(lambda: cluster.engines("b") == [], within_s=60)
    eventually(lambda: cluster.record(2)[1] is Label.STOPPED, within_s=30)
    after = gateway.chat(key, "smol", max_tokens=1)
    assert after.status == 200 and after.headers["x-sluice-replica"] != "smol-v1-2"


def _worker_killed_and_adopted(
    cluster: Cluster,
    worker: subprocess.Popen[bytes],
    before: tuple[Row, ProcessAxis | None],
) -> None:
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(10)
    assert psutil.pid_exists(before[0].pid)
    again = cluster.join("b")
    log = cluster.folder / "b.log"
    eventually(lambda: log.read_text().count(" ready.") == 2, within_s=60)
    assert again.poll() is None
    cluster.run("-c", NUDGE, "b")
    eventually(lambda: cluster.redis.llen("node.b") == 0, within_s=20)
    assert (cluster.row(2), cluster.record(2)[0]) == before
    assert cluster.engines("b") == [before[0].pid]


NUDGE = """
import sys
import django
django.setup()
from cluster.models import Node
from cluster.tasks import node_nudge
node_nudge(Node.objects.get(name=sys.argv[1]))
"""


def _replica_killed_and_back(cluster: Cluster, before: Row) -> None:
    os.kill(before.pid, signal.SIGKILL)
    eventually(lambda: cluster.row(3).pid != before.pid, within_s=30)
    eventually(lambda: cluster.healthy(3), within_s=30)
    axis = cluster.record(3)[0]
    assert axis is not None and axis.restarts == 1
    assert cluster.row(3).address == before.address
    assert len(cluster.engines("c")) == 1
