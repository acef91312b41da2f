"""From a replica to the process that is to run: file, port, command, environment."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from cluster.drivers.checksum import ChecksumCache
from cluster.drivers.limits import Confinement, confine, limits_read
from cluster.drivers.ports import is_free, listen_host, port_choose
from cluster.drivers.spawn import environment_build
from cluster.engines import Engine, LaunchOrder, LaunchRefused, engine_get
from cluster.models import Replica
from cluster.services.artifacts import artifact_find, artifact_verified


class Launch(msgspec.Struct, frozen=True):
    address: str
    command: list[str]
    environment: dict[str, str]
    confinement: Confinement


def launch_prepare(
    replica: Replica,
    *,
    owner: str,
    start: str,
    checksums: ChecksumCache,
    avoid_ports: Collection[int],
    neighbours: Collection[int] = (),
) -> Launch:
    """Everything that a start needs; nothing is started yet.

    ``neighbours`` are the pids of the node's other processes.
    Raises ``LaunchRefused``, ``SpawnFailed``, ``ArtifactMissing`` or ``Unverified``.
    """
    assert replica.node is not None
    version = replica.version
    host = listen_host(replica.node.host)
    artifact = artifact_verified(version, checksums)
    port = _port(replica, host, avoid_ports)
    engine = engine_get(version.engine)
    order = LaunchOrder(version.served_name, host, port, artifact, version.params)
    command = engine.launch(order)
    environment = environment_build(
        replica_id=replica.id,
        owner=owner,
        start=start,
        extra=str(version.params.get("env", "")),
    )
    _variables_add(environment, engine.environment(order))
    command = _program_found(engine, command, environment)
    shown = f"[{replica.node.host}]" if ":" in replica.node.host else replica.node.host
    mark = hashlib.sha256(owner.encode()).hexdigest()[:8]
    confinement = confine(
        limits_read(version.params),
        group=f"sluice-{mark}-{replica.id}",
        neighbours=neighbours,
    )
    return Launch(f"http://{shown}:{port}", command, environment, confinement)


def _port(replica: Replica, host: str, avoid: Collection[int]) -> int:
    """The port that the version demands, else the last one, else a free one."""
    demanded = replica.version.params.get("port")
    if demanded is None:
        return port_choose(host, kept=port_of(replica.address), avoid=avoid)
    if isinstance(demanded, bool) or not isinstance(demanded, int):
        raise LaunchRefused("bad_param", "The parameter port must be a number.")
    if not 0 < demanded < 65536:
        raise LaunchRefused("bad_param", f"There is no port {demanded}.")
    if not is_free(host, demanded):
        raise LaunchRefused("port_taken", f"Port {demanded} on {host} is taken.")
    return demanded


def port_of(address: str) -> int:
    """The port in an address that we made; 0 in an empty one."""
    return urlsplit(address).port or 0


def _variables_add(environment: dict[str, str], needed: dict[str, str]) -> None:
    for name in needed.keys() & environment.keys():
        raise LaunchRefused(
            "bad_param",
            f"The parameter env may not set {name}: the launch sets it itself.",
        )
    environment.update(needed)


def _program_found(
    engine: Engine, command: list[str], environment: dict[str, str]
) -> list[str]:
    """The command with the whole path of its program, as found on this node."""
    if not engine.program:
        return command
    program, *words = command
    found = shutil.which(program, path=environment.get("PATH", os.defpath))
    if found is not None:
        return [found, *words]
    if "/" in program:
        detail = f"There is no program {program} on this node."
    else:
        detail = (
            f"There is no program {program} on the PATH of this node: install "
            f"{engine.title} there, or name it in the version's parameter program."
        )
    raise LaunchRefused("engine_missing", detail)


class Command(NamedTuple):
    """What starts a replica; ``environment`` only what its engine needs."""

    environment: dict[str, str]
    words: list[str]

    @property
    def text(self) -> str:
        """As a shell would take it."""
        variables = [f"{n}={shlex.quote(v)}" for n, v in self.environment.items()]
        return " ".join([*variables, shlex.join(self.words)])


def launch_command(replica: Replica) -> Command:
    """What its node runs for it, by what is on record; nothing is started.

    Raises ``LaunchRefused``, or ``ArtifactMissing`` where this machine lacks the file.
    """
    assert replica.node is not None
    version = replica.version
    engine = engine_get(version.engine)
    order = LaunchOrder(
        version.served_name,
        listen_host(replica.node.host),
        port_of(replica.address),
        artifact_find(version),
        version.params,
    )
    return Command(engine.environment(order), engine.launch(order))
