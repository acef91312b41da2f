from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class NodeFiles(NamedTuple):
    """Where a node keeps what it knows of its processes, and their logs."""

    data_dir: Path
    node_name: str

    @property
    def folder(self) -> Path:
        return self.data_dir / "run" / f"node-{self.node_name}"

    @property
    def owner(self) -> str:
        """Marks our processes: two installations may share a machine."""
        return f"{self.data_dir.resolve()}#{self.node_name}"

    @property
    def checksums(self) -> Path:
        return self.folder / "checksums.json"

    @property
    def deaths(self) -> Path:
        """A pipe into which each keeper writes when its process has ended."""
        return self.folder / "deaths"

    def lock(self, name: str) -> Path:
        return self.folder / f"{name}.lock"

    def notes(self, replica_id: str) -> Path:
        return self.folder / f"{replica_id}.notes"

    def exit(self, replica_id: str) -> Path:
        return self.folder / f"{replica_id}.exit"

    def log(self, replica_id: str) -> Path:
        return self.data_dir / "log" / f"replica-{replica_id}.log"

    def create(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.data_dir / "log").mkdir(mode=0o700, parents=True, exist_ok=True)

    def holder(self) -> str:
        """Tells this installation of the node from another one of the same name: a
        word that is made once and stays, across boots, with the folder."""
        path = self.folder / "holder"
        fresh = self.folder / f"holder.{secrets.token_hex(8)}"
        if not path.exists():
            fresh.write_text(secrets.token_hex(16), encoding="ascii")
            with suppress(FileExistsError):
                # Unlike a rename, a link never takes another's place.
                os.link(fresh, path)
            fresh.unlink()
        return path.read_text(encoding="ascii")

    def noted_ids(self) -> list[str]:
        """The replicas that there are notes of, removed ones too."""
        return [path.stem for path in self.folder.glob("*.notes")]
