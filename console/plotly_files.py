"""The one file that browsers need of the plotly package, among the static files.

Its folder also holds data sets and widgets of tens of megabytes, and importing the
package costs time and memory: neither is done here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles.utils import matches_patterns
from django.core.files.storage import FileSystemStorage

_FILE = "plotly.min.js"
_PREFIX = "plotly"


class PlotlyFinder(BaseFinder):
    """Finds ``plotly/plotly.min.js``, and nothing else."""

    def check(self, **_options: Any) -> list[Any]:
        return []

    def find(  # type: ignore[override]
        self, path: str, find_all: bool = False, **_options: Any
    ) -> list[str] | str:
        found = str(_folder() / _FILE)
        if path != f"{_PREFIX}/{_FILE}" or not Path(found).is_file():
            return []
        return [found] if find_all else found

    def list(
        self, ignore_patterns: Iterable[str] | None
    ) -> Iterator[tuple[str, FileSystemStorage]]:
        folder = _folder()
        ignored = matches_patterns(_FILE, list(ignore_patterns or ()))
        if not ignored and (folder / _FILE).is_file():
            storage = FileSystemStorage(location=folder)
            # Read by collectstatic, which puts it before the name.
            storage.prefix = _PREFIX  # type: ignore[attr-defined]
            yield _FILE, storage


def _folder() -> Path:
    spec = find_spec("plotly")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "package_data"
