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


def test_the_pages_own_files_stay_small() -> None:
    """The budget of a first view: styles 20 KB, scripts 25 KB, before compression."""
    static = Path(__file__).parent.parent.parent / "static"
    scripts = sum(file.stat().st_size for file in (static / "js").glob("*.js"))
    base = (static / "css/base.css").stat().st_size
    largest = max(file.stat().st_size for file in (static / "css").glob("*.css"))
    assert scripts <= 25_000 and largest == base <= 20_000
