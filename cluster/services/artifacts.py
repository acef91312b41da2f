from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from django.conf import settings

from cluster.drivers.checksum import ChecksumCache
from cluster.drivers.files import NodeFiles
from cluster.drivers.lock import file_lock
from cluster.engines import (
    ArtifactMissing,
    LaunchRefused,
    artifact_path,
    engine_get,
)
from cluster.models import Driver, Node, Version


class Unverified(Exception):
    """The checksum of the artifact must be computed first, which may take long."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"Computing the checksum of {path}.")
        self.path = path


def artifact_find(version: Version) -> Path | None:
    """The artifact on this machine, None if the version names none; raises
    ``ArtifactMissing``."""
    if not version.artifact:
        return None
    engine = engine_get(version.engine)
    return artifact_path(
        version.artifact,
        takes_file=engine.takes_file,
        takes_folder=engine.takes_folder,
    )


def artifact_verified(version: Version, checksums: ChecksumCache) -> Path | None:
    """The artifact, None if there is none; its checksum is the stated one.

    Raises ``ArtifactMissing``, ``LaunchRefused`` on a wrong checksum, ``Unverified``
    where it is not known yet.
    """
    path = artifact_find(version)
    if path is None or not version.artifact_sha256:
        return path
    if path.is_dir():
        raise LaunchRefused(
            "checksum_mismatch",
            f"{path} is a folder, which has no checksum, but the version states one.",
        )
    try:
        sha256 = checksums.known(path)
    except OSError as error:
        raise ArtifactMissing(f"{path} cannot be read: {error}.") from error
    if sha256 is None:
        raise Unverified(path)
    if sha256 != version.artifact_sha256:
        raise LaunchRefused(
            "checksum_mismatch",
            f"The SHA-256 of {path} is {sha256}, "
            f"but the version states {version.artifact_sha256}.",
        )
    return path


def artifacts_verify(*, node: Node) -> bool:
    """Compute the checksums that starts on this node wait for; true if any was.

    Takes as long as reading the files does. False also while another call is at it.
    """
    files = NodeFiles(Path(settings.DATA_DIR), node.name)
    files.create()
    with file_lock(files.lock("checksums")) as alone:
        return alone and _verify(node, ChecksumCache(files.checksums))


def _verify(node: Node, checksums: ChecksumCache) -> bool:
    computed = False
    for version in Version.objects.filter(
        replicas__driver=Driver.PROCESS,
        replicas__node=node,
        replicas__wanted_running=True,
        replicas__removed_at__isnull=True,
    ).distinct():
        try:
            artifact_verified(version, checksums)
        except Unverified as wanted:
            # A file that cannot be read is reported by the start that wants it.
            with suppress(OSError):
                checksums.compute(wanted.path)
                computed = True
        except (ArtifactMissing, LaunchRefused):
            continue
    return computed
