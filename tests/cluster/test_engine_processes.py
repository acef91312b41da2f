"""vLLM, SGLang, TGI and Ollama through the process driver: programs of these names
that note how they were started and serve as the mock engine."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.drivers.decision import STOP_GRACE_S, Act, Seen, Wanted, decide
from cluster.health import Label, Process, ProcessAxis, state_merge
from cluster.models import Replica
from cluster.services import node_reconcile, replica_running_set, replicas_probe
from cluster.services.deep_probes import replicas_deep_probe
from cluster.services.launch import launch_command
from tests.cluster.conftest import Fleet, process, record
from tests.fakes.programs import Programs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return Programs(folder)


def healthy(replica: Replica) -> bool:
    replicas_probe(replica_ids=[replica.id])
    replicas_deep_probe()
    label = state_merge(record(replica), now=time.time()).label
    return label is Label.HEALTHY


@pytest.mark.parametrize(
    ("engine", "program", "params"),
    [
        ("vllm", "vllm", {"max-model-len": 4096}),
        ("sglang", "sglang", {"tp-size": 1}),
        ("tgi", "text-generation-launcher", {"max-total-tokens": 4096}),
        ("ollama", "ollama", {"num-parallel": 2, "env": "OLLAMA_ORIGINS=none"}),
    ],
)
def test_an_engine_is_started_with_its_command_serves_and_ends(
    fleet: Fleet,
    tmp_path: Path,
    programs: Programs,
    engine: str,
    program: str,
    params: dict[str, Any],
) -> None:
    artifact = tmp_path / "weights"
    artifact.mkdir()
    version = fleet.version(engine=engine, artifact=str(artifact), params=params)
    replica = fleet.replica(version)
    fleet.until(lambda: healthy(replica), timeout_s=30)
    replica.refresh_from_db()
    started, shown = programs.started(program), launch_command(replica)
    assert started["arguments"] == shown.words[1:] and shown.words[0] == program
    assert shown.environment.items() <= started["environment"].items()
    assert started["environment"].get("OLLAMA_ORIGINS", "none") == "none"
    assert not any(name.startswith("SLUICE_SECRET") for name in started["environment"])
    replica_running_set(replica=replica, running=False, actor=fleet.actor)
    fleet.until(lambda: process(replica).state is Process.STOPPED)


def test_a_program_may_lie_anywhere(
    fleet: Fleet, tmp_path: Path, programs: Programs
) -> None:
    elsewhere = tmp_path / "v0.33" / "vllm"
    elsewhere.parent.mkdir()
    (programs.folder / "vllm").rename(elsewhere)
    params = {"model": "Qwen/Qwen3-8B", "program": str(elsewhere)}
    replica = fleet.replica(fleet.version(engine="vllm", params=params))
    fleet.until(lambda: healthy(replica), timeout_s=30)
    assert programs.started("vllm")["arguments"][:2] == ["serve", "Qwen/Qwen3-8B"]


def test_the_path_of_a_version_counts(fleet: Fleet, programs: Programs) -> None:
    """Engines live in environments of their own; a version may name its folder."""
    mine = programs.folder.parent / "mine"
    mine.mkdir()
    (programs.folder / "vllm").rename(mine / "vllm")
    params = {"model": "a/b", "env": f"PATH={mine}:/usr/bin:/bin"}
    replica = fleet.replica(fleet.version(engine="vllm", params=params))
    fleet.until(lambda: healthy(replica), timeout_s=30)
    assert programs.started("vllm")["environment"]["PATH"].startswith(str(mine))


@pytest.mark.parametrize(
    ("fields", "reason", "words"),
    [
        (
            {"params": {"model": "a/b"}},
            "engine_missing",
            "There is no program vllm on the PATH of this node: install vLLM there, or "
            "name it in the version's parameter program.",
        ),
        (
            {"params": {"model": "a/b", "program": "/no/such/vllm"}},
            "engine_missing",
            "There is no program /no/such/vllm on this node.",
        ),
        # A folder and a file without the right to be run are no programs.
        (
            {"params": {"model": "a/b", "program": "/usr"}},
            "engine_missing",
            "There is no program /usr on this node.",
        ),
        (
            {"artifact": "/usr", "artifact_sha256": "0" * 64},
            "checksum_mismatch",
            "/usr is a folder, which has no checksum, but the version states one.",
        ),
        (
            {"artifact": "/no/such/folder"},
            "artifact_missing",
            "There is no file /no/such/folder on this node.",
        ),
        (
            {"engine": "ollama", "params": {"env": "OLLAMA_HOST=0.0.0.0:11434"}},
            "bad_param",
            "The parameter env may not set OLLAMA_HOST: the launch sets it itself.",
        ),
    ],
)
def test_what_cannot_be_started_says_why_on_its_record(
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
    reason: str,
    words: str,
) -> None:
    monkeypatch.setenv("PATH", "/no/such/folder")
    replica = fleet.replica(fleet.version(**({"engine": "vllm"} | fields)))
    node_reconcile(node=fleet.node)
    axis = process(replica)
    assert (axis.state, axis.reason) == (Process.FAILED, reason)
    assert axis.detail == words


def test_a_program_that_is_installed_later_is_found(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    replica = fleet.replica(fleet.version(engine="vllm", params={"model": "a/b"}))
    node_reconcile(node=fleet.node)
    assert process(replica).reason == "engine_missing"
    Programs(folder)
    fleet.until(lambda: process(replica).state is Process.RUNNING)


def test_a_command_is_shown_as_a_shell_would_take_it(fleet: Fleet) -> None:
    params = {"keep-alive": "1 h"}
    replica = fleet.replica(fleet.version(engine="ollama", params=params))
    assert launch_command(replica).text == (
        "OLLAMA_HOST=127.0.0.1:0 OLLAMA_KEEP_ALIVE='1 h' ollama serve"
    )


@pytest.mark.parametrize(
    ("passed_s", "grace_s", "act"),
    [
        (STOP_GRACE_S - 1, 0.0, Act.NOTHING),
        (STOP_GRACE_S, 0.0, Act.KILL),
        (STOP_GRACE_S, 30.0, Act.NOTHING),
        (30.0, 30.0, Act.KILL),
    ],
)
def test_an_engine_is_killed_when_its_own_time_to_end_is_over(
    passed_s: float, grace_s: float, act: Act
) -> None:
    seen = Seen(ProcessAxis(Process.STOPPING, 1000.0), alive=True)
    assert decide(Wanted(False, 1, grace_s), seen, 1000.0 + passed_s).act is act
