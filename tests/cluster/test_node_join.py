"""``manage.py node join``: one machine a name, and one sentence for each trouble."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import LazySettings
from django.core.management import CommandError, call_command
from django.db import connections

from cluster import presence
from cluster.drivers.files import NodeFiles
from cluster.models import Node
from tests.cluster.heartbeats import FACTS, silent

pytestmark = pytest.mark.django_db(transaction=True)
JOIN = ("manage.py", "node", "join", "--name", "gpu-a", "--host")


@pytest.fixture
def become(
    monkeypatch: pytest.MonkeyPatch,
    valkey: redis.Redis,
    settings: LazySettings,
    tmp_path: Path,
) -> Iterator[list[list[str]]]:
    """What a join would become; the environment is complete."""
    settings.DATA_DIR = tmp_path / "data"
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _path, words: became.append(words))
    monkeypatch.setattr(os, "umask", lambda _mask: 0)
    monkeypatch.setattr(connections, "close_all", lambda: None)
    monkeypatch.setenv("SLUICE_DATA_DIR", str(settings.DATA_DIR))
    monkeypatch.chdir(settings.BASE_DIR)
    for name in ("DATABASE_URL", "REDIS_URL", "SLUICE_SECRET_KEY"):
        monkeypatch.setenv(name, "as everywhere")
    yield became


def join(name: str = "gpu-a", *more: str) -> None:
    call_command("node", "join", "--name", name, "--host", "10.0.0.7", *more)


def test_a_join_registers_the_node_and_becomes_its_worker(
    become: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    join()
    assert Node.objects.get(name="gpu-a").host == "10.0.0.7"
    [words] = become
    assert words[words.index("--queues") + 1] == "node.gpu-a"
    call_command("node", "list")
    assert re.search(
        r"gpu-a  10\.0\.0\.7  reachable  last heartbeat \d+ s ago",
        capsys.readouterr().out,
    )


@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS_URL", "SLUICE_SECRET_KEY"])
def test_a_join_says_which_setting_is_missing(
    become: list[list[str]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(name)
    with pytest.raises(CommandError, match=f"^Set {name} "):
        join()
    assert become == [] and not Node.objects.exists()


def test_a_join_as_another_living_machine_is_refused(
    become: list[list[str]],
) -> None:
    presence.presence_beat("gpu-a", holder="another", facts=FACTS)
    for more in ([], ["--replace"]):
        with pytest.raises(CommandError, match=r"10\.0\.0\.7.*last heartbeat"):
            join("gpu-a", *more)
    assert become == [] and not Node.objects.exists()
    silent("gpu-a", 46)
    with pytest.raises(CommandError, match="use --replace"):
        join()
    join("gpu-a", "--replace")
    assert len(become) == 1


def test_a_second_worker_on_the_same_machine_is_refused(
    become: list[list[str]], settings: LazySettings
) -> None:
    files = NodeFiles(Path(settings.DATA_DIR), "gpu-a")
    files.create()
    script = "import fcntl,sys; f=open(sys.argv[1],'a'); fcntl.lockf(f, fcntl.LOCK_EX)"
    script += "; print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(files.lock("worker"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        holder.stdout.readline()
        with pytest.raises(CommandError, match="runs on this machine already"):
            join()
        holder.stdin.close()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"DATABASE_URL": "mysql://x"}, "DATABASE_URL must start with"),
        ({"DATABASE_URL": "postgresql://x@127.0.0.1:1/x"}, "DATABASE_URL cannot be"),
        ({"DATABASE_URL": "sqlite:////proc/none/x"}, "DATABASE_URL cannot be used"),
        ({"REDIS_URL": "redis://127.0.0.1:1"}, "REDIS_URL cannot be used"),
        ({"SLUICE_DATA_DIR": "/proc/none"}, "The data directory /proc/none cannot"),
        ({}, "has not this release's tables"),
    ],
)
@pytest.mark.processes
def test_an_unusable_setting_is_told_in_one_sentence(
    tmp_path: Path, settings: LazySettings, changed: dict[str, str], sentence: str
) -> None:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path}/empty.sqlite3",
        "REDIS_URL": settings.REDIS_URL,
        "SLUICE_SECRET_KEY": "k" * 50,
        "SLUICE_DATA_DIR": str(tmp_path / "data"),
    }
    if set(changed) & {"REDIS_URL", "SLUICE_DATA_DIR"}:
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
        subprocess.run(migrate, env=environment, cwd=settings.BASE_DIR, check=True)
    done = subprocess.run(
        [sys.executable, *JOIN, "10.0.0.7"],
        env=environment | changed,
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert sentence in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.fixture
def spawn_worker(
    tmp_path: Path, valkey: redis.Redis, settings: LazySettings
) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts ``node join`` for real, each time with a data directory of its own."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path}/fleet.sqlite3",
        "REDIS_URL": settings.REDIS_URL,
        "SLUICE_SECRET_KEY": "k" * 50,
    }
    migrate = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
    subprocess.run(migrate, env=environment, cwd=settings.BASE_DIR, check=True)
    workers: list[subprocess.Popen[bytes]] = []

    def start(folder: str, *more: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{folder}.log").open("ab") as log:
            workers.append(
                subprocess.Popen(
                    [sys.executable, *JOIN, "127.0.0.1", *more],
                    env=environment | {"SLUICE_DATA_DIR": str(tmp_path / folder)},
                    cwd=settings.BASE_DIR,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return workers[-1]

    yield start
    for worker in workers:
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
            worker.send_signal(signal.SIGCONT)
        worker.wait(30)


def until(condition: Callable[[], Any], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.processes
@pytest.mark.timeout(240)
def test_a_real_worker_beats_and_gives_way_to_the_one_that_replaced_it(
    spawn_worker: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    first = spawn_worker("one")

    def heard() -> int:
        _now, heard = presence.presences_read(["gpu-a"])
        known = heard["gpu-a"]
        return known.facts.pid if known and known.facts else 0

    # The worker is the very process that joined.
    until(
        lambda: heard() == first.pid and " ready." in (tmp_path / "one.log").read_text()
    )
    second = spawn_worker("two")
    assert second.wait(60) == 1
    assert "whose last heartbeat is" in (tmp_path / "two.log").read_text()
    known = presence.presences_read(["gpu-a"])[1]["gpu-a"]
    assert known and known.rival and known.facts and known.rival.pid == second.pid
    assert known.facts.pid == first.pid
    # As a machine that hangs: one that lives would be heard again any moment.
    first.send_signal(signal.SIGSTOP)
    silent("gpu-a", 60)
    third = spawn_worker("two", "--replace")
    until(lambda: heard() == third.pid)
    first.send_signal(signal.SIGCONT)
    assert first.wait(30) == 0
    assert "was replaced by the one at" in (tmp_path / "one.log").read_text()
    assert heard() == third.pid
