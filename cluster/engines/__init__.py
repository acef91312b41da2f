"""The server programs that replicas run on: one module per engine.

An engine says where it tells its health, what an answer there means, and how it
is launched. Pure: no network, no process is touched here.
"""

from __future__ import annotations

from cluster.engines import generic, llamacpp, ollama, sglang, tgi, vllm
from cluster.engines.artifact import ArtifactMissing, artifact_path
from cluster.engines.engine import Engine, LaunchOrder, LaunchRefused, Params
from cluster.engines.scrape import Metrics

_ENGINES: dict[str, Engine] = {
    module.ENGINE.name: module.ENGINE
    for module in (vllm, sglang, llamacpp, ollama, tgi, generic)
}


def engine_get(name: str) -> Engine:
    """The engine of this name; ``KeyError`` for one that does not exist."""
    return _ENGINES[name]


__all__ = [
    "ArtifactMissing",
    "Engine",
    "LaunchOrder",
    "LaunchRefused",
    "Metrics",
    "Params",
    "artifact_path",
    "engine_get",
]
