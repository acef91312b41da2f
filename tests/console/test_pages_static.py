"""Static files as they are served: hashed, and modules that find each other."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

from django.core.management import call_command
from pytest_django import Settings

BASE = Path(__file__).parents[2]


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
    static = BASE / "static"
    size = {file.name: file.stat().st_size for file in (static / "js").glob("*.js")}
    every = _closure(static / "js", "app.js")
    assert sum(map(size.__getitem__, every)) <= 25_000
    for name in size:
        page = every | _closure(static / "js", name)
        assert sum(map(size.__getitem__, page)) <= 45_000, name
    base = (static / "css/base.css").stat().st_size
    largest = max(file.stat().st_size for file in (static / "css").glob("*.css"))
    assert largest == base <= 20_000


def css_files() -> list[Path]:
    return sorted((BASE / "static" / "css").glob("*.css"))


def test_no_style_is_left_for_what_no_page_has() -> None:
    """Classes, ids and attributes of every rule occur in a template, script or view.
    Plotly's own names are in its script."""
    folders = ("templates", "static/js", "console")
    text = "\n".join(
        path.read_text("utf-8")
        for folder in folders
        for path in (BASE / folder).rglob("*")
        if path.suffix in (".html", ".js", ".py", ".svg")
    )
    made = re.compile(r"(mark|banner|verdict|series|theme|line|phase)-\w+")
    dead = set()
    for path in css_files():
        if path.name == "plotly.css":
            continue
        rules = re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.S)
        for selectors in re.findall(r"([^{}]+)\{", rules):
            for name in re.findall(r"[.#]([A-Za-z][\w-]*)", selectors):
                if not made.fullmatch(name) and name not in text:
                    dead.add((path.name, name))
    assert dead == set()


def test_colours_are_defined_in_one_place() -> None:
    # Shadows are black, whatever the theme.
    literal = re.compile(r"#(?!000)[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(")
    for path in css_files():
        # The page of the API is on its own, without the console around it.
        if path.name in ("base.css", "api-docs.css"):
            continue
        lines = path.read_text("utf-8").splitlines()
        found = [line for line in lines if literal.search(line)]
        assert found == [], path.name


def test_every_token_that_is_used_is_defined_in_the_base() -> None:
    base = (BASE / "static" / "css" / "base.css").read_text("utf-8")
    known = set(re.findall(r"(--[\w-]+):", base))
    scripts = "".join(p.read_text("utf-8") for p in (BASE / "static/js").glob("*.js"))
    by_script = set(re.findall(r'setProperty\("(--[\w-]+)"', scripts))
    for path in css_files():
        text = path.read_text("utf-8")
        own = set(re.findall(r"(--[\w-]+):", text)) | by_script
        assert set(re.findall(r"var\((--[\w-]+)", text)) <= known | own, path.name
