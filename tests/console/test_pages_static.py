"""Static files as they are served: hashed, and modules that find each other."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

from django.core.management import call_command
from pytest_django import Settings


def test_modules_import_each_other_by_hashed_names(
    tmp_path: Path, settings: Settings
) -> None:
    settings.STATIC_ROOT = tmp_path
    settings.STORAGES = {"staticfiles": {"BACKEND": "console.storage.StaticFiles"}}
    call_command("collectstatic", interactive=False, stdout=StringIO())
    names = json.loads((tmp_path / "staticfiles.json").read_text())["paths"]
    for module in ("js/app.js", "js/traffic.js", "js/time.js"):
        text = (tmp_path / names[module]).read_text("utf-8")
        imports = re.findall(r'(?:from |import) ?"\./([^"]+)"', text)
        assert imports
        for name in imports:
            assert re.search(r"\.[0-9a-f]{12}\.js$", name)
            assert (tmp_path / "js" / name).exists()


def _closure(folder: Path, name: str) -> set[str]:
    """A module and all that it imports."""
    found, ahead = set[str](), [name]
    while ahead:
        if (one := ahead.pop()) not in found:
            found.add(one)
            text = (folder / one).read_text("utf-8")
            ahead += re.findall(r'(?:from |import) ?"\./([^"]+)"', text)
    return found


def test_the_pages_own_files_stay_small() -> None:
    """The budget of a first view, before compression: styles 20 KB, scripts that every
    page loads 25 KB, those of any single page 45 KB with them."""
    static = Path(__file__).parent.parent.parent / "static"
    size = {file.name: file.stat().st_size for file in (static / "js").glob("*.js")}
    every = _closure(static / "js", "app.js")
    assert sum(map(size.__getitem__, every)) <= 25_000
    for name in size:
        page = every | _closure(static / "js", name)
        assert sum(map(size.__getitem__, page)) <= 45_000, name
    base = (static / "css/base.css").stat().st_size
    largest = max(file.stat().st_size for file in (static / "css").glob("*.css"))
    assert largest == base <= 20_000
