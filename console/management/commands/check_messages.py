"""Fails when a text that a person reads is not translated.

Needs no gettext: sources are read by Python itself, catalogues by ``console.po``.
"""

from __future__ import annotations

import gettext
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from console import po

_FOLDERS = ("cluster", "routing", "console", "templates")
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\u3000-\u303f\uff00-\uffef]")
# Where such text may stand, by how the line begins: a language names itself, and the
# mock engine talks like a model, which is no text of the interface.
_HAN_LINES = {
    "console/settings.py": "LANGUAGES",
    "cluster/engines/mock/payloads.py": "",
}


class Command(BaseCommand):
    help = "Check that every text is translated and every catalogue is compiled."

    def handle(self, *args: Any, **options: Any) -> None:
        problems = [*han_outside(settings.BASE_DIR), *catalogue_problems()]
        if problems:
            raise CommandError("\n".join(problems))
        self.stdout.write("Every text is translated.")


def sources(base: Path) -> Iterator[Path]:
    for folder in _FOLDERS:
        for path in sorted((base / folder).rglob("*")):
            if path.suffix in (".py", ".html") and "migrations" not in path.parts:
                yield path


def han_outside(base: Path) -> Iterator[str]:
    """Chinese text that stands in a source instead of in the catalogue."""
    for path in [*sources(base), *sorted((base / "static" / "js").rglob("*.js"))]:
        name = path.relative_to(base).as_posix()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            allowed = _HAN_LINES.get(name)
            fits = allowed is not None and line.startswith(allowed)
            if _HAN.search(line) and not fits:
                yield f"{name}:{number}: Chinese text belongs into locale/."


def catalogue_problems() -> Iterator[str]:
    wanted: dict[po.Key, str] = {}
    for path in sources(settings.BASE_DIR):
        for key in po.source_messages(path):
            wanted.setdefault(key, path.relative_to(settings.BASE_DIR).as_posix())
    for folder in sorted(Path(settings.LOCALE_PATHS[0]).glob("*/LC_MESSAGES")):
        yield from _language_problems(folder, wanted)


def _language_problems(folder: Path, wanted: dict[po.Key, str]) -> Iterator[str]:
    language = folder.parent.name
    entries = po.catalogue_read(folder / "django.po")
    for key, source in wanted.items():
        entry = entries.get(key)
        if entry is None or not all(entry.texts):
            yield f"{language}: {source}: not translated: {key.text!r}"
        elif entry.fuzzy:
            yield f"{language}: {source}: translation is a guess: {key.text!r}"
        elif wrong := po.placeholders_differ(key, entry):
            yield f"{language}: {source}: {wrong} differs in: {key.text!r}"
    for key in entries.keys() - wanted.keys():
        yield f"{language}: no source has: {key.text!r}"
    if _compiled(folder / "django.mo") != po.as_compiled(entries):
        yield f"{language}: django.mo is stale: run make messages."


def _compiled(path: Path) -> dict[str | tuple[str, int], str]:
    try:
        with path.open("rb") as file:
            catalogue = vars(gettext.GNUTranslations(file))["_catalog"]
    except OSError:
        return {}
    return {key: text for key, text in catalogue.items() if key}
