"""Engines that are not installed here, as programs on a PATH of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NAMES = ("vllm", "sglang", "text-generation-launcher", "ollama")

# It notes how it was started and becomes the mock engine at the address it was told.
_PROGRAM = """#!{python}
import json, os, sys
arguments = sys.argv[1:]
told = dict(word.split("=", 1) for word in arguments if "=" in word)
host, _, port = os.environ.get("OLLAMA_HOST", ":").rpartition(":")
host = told.get("--host") or told.get("--hostname") or host
name = told.get("--served-model-name") or told.get("--model-id") or "smol"
with open({notes!r}, "w") as file:
    json.dump({{"arguments": arguments, "environment": dict(os.environ)}}, file)
os.execv({python!r}, [
    {python!r}, "-m", "cluster.engines.mock", "--host", host, "--port",
    told.get("--port") or port, "--model", name,
])
"""


class Programs:
    """A folder with a program of each name; ``started`` is how one was started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in NAMES:
            text = _PROGRAM.format(python=sys.executable, notes=str(self._notes(name)))
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def _notes(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def started(self, name: str) -> Any:
        """``arguments`` and ``environment`` of the last start."""
        return json.loads(self._notes(name).read_text())
