from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from cluster.engines.scrape import METRICS, Metrics
from cluster.health import Reading

# Launch parameters as a version keeps them: flat, without leading hyphens.
Params = Mapping[str, str | int | float | bool]


# What the driver, not the engine, reads from a version's parameters.
DRIVER_PARAMS = frozenset({"port", "env", "cpus", "memory-mb", "nice"})


class LaunchOrder(msgspec.Struct, frozen=True):
    """What a process is to be started with; ``artifact`` is None when it has none."""

    served_name: str
    host: str
    port: int
    artifact: Path | None
    params: Params


class LaunchRefused(Exception):
    """This version cannot be started here; nothing was. ``reason`` is a code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Engine:
    """One server program. The modules beside this one say how theirs differs."""

    name: ClassVar[str]
    title: ClassVar[str]
    # Engines that answer 404 to a name they do not serve list the names they do;
    # the list is then part of health. Empty where any name is accepted.
    models_path: ClassVar[str] = ""
    # Where it tells its release, in the order of preference, and in which field.
    version_paths: ClassVar[tuple[str, ...]] = ("/version",)
    version_field: ClassVar[str] = "version"
    # The program that the node looks for on its PATH; empty where the command names
    # its own. What an artifact may be.
    program: ClassVar[str] = ""
    takes_file: ClassVar[bool] = True
    takes_folder: ClassVar[bool] = False

    def health_path(self, params: Params) -> str:
        """The path to ask; ``params`` may change it where the engine is unknown."""
        return "/health"

    def classify(self, status: int, body: bytes) -> Reading:
        """What an answer on the health path means."""
        raise NotImplementedError

    def offers(self, served_name: str, status: int, body: bytes) -> Reading:
        """What an answer on ``models_path`` means for this name."""
        raise NotImplementedError

    def names(self, served_name: str, artifact: str, params: Params) -> set[str]:
        """What its list of models may call the model of a version."""
        return {served_name}

    def metrics(self, params: Params) -> Metrics | None:
        """Its metrics; None where the engine has none."""
        return METRICS.get(self.name)

    def launch(self, order: LaunchOrder) -> list[str]:
        """The command that starts it, without a shell; raises ``LaunchRefused``."""
        raise NotImplementedError

    def environment(self, order: LaunchOrder) -> dict[str, str]:
        """The variables that it needs beside the command; as ``launch`` raises."""
        return {}

    def stop_grace_s(self, params: Params) -> float:
        """How long it may take to end when nothing runs on it any more, where that is
        longer than usual."""
        return 0.0
