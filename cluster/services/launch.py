"""From a replica to the process that is to run: file, port, command, environment."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from urllib.parse import urlsplit

import msgspec

from cluster.drivers.checksum import ChecksumCache
from cluster.drivers.limits import Confinement, confine, limits_read
from cluster.drivers.ports import is_free, listen_host, port_choose
from cluster.drivers.spawn import environment_build
from cluster.engines import (
    LaunchOrder,
    LaunchRefused,
    engine_get,
)
from cluster.models import Replica
from cluster.services.artifacts import artifact_verified


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
    command = engine_get(version.engine).launch(
        LaunchOrder(version.served_name, host, port, artifact, version.params)
    )
    environment = environment_build(
        replica_id=replica.id,
        owner=owner,
        start=start,
        extra=str(version.params.get("env", "")),
    )
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
