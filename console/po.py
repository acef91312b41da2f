"""Message catalogues and the messages that sources want, without gettext's tools."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from django.utils.translation.template import templatize

# Functions that mark a message, with the positions of (context, singular, plural).
_MARKERS: dict[str, tuple[int | None, int, int | None]] = {
    "_": (None, 0, None),
    "gettext": (None, 0, None),
    "gettext_lazy": (None, 0, None),
    "gettext_noop": (None, 0, None),
    "ngettext": (None, 0, 1),
    "ngettext_lazy": (None, 0, 1),
    "pgettext": (0, 1, None),
    "pgettext_lazy": (0, 1, None),
    "npgettext": (0, 1, 2),
}
_PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|\{\w+\}")
_TEMPLATE_CALL = re.compile(
    r"(?<![\w.])(?P<name>_|n?gettext|n?pgettext)\((?P<arguments>(?:\s*u?(?:'(?:[^'\\]|\\.)*'|"
    r'"(?:[^"\\]|\\.)*"'
    r"|'''.*?'''|\"\"\".*?\"\"\")\s*,?)+)",
    re.DOTALL,
)


class Key(NamedTuple):
    """What identifies a message. ``plural`` is empty for one without."""

    context: str
    text: str
    plural: str = ""


class Entry(NamedTuple):
    texts: list[str]
    fuzzy: bool


def source_messages(path: Path) -> Iterator[Key]:
    """The messages that a Python file or a template asks to have translated."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        yield from _python_messages(text)
    else:
        yield from _template_messages(text, path)


def _python_messages(text: str) -> Iterator[Key]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _MARKERS:
            values = [
                a.value if isinstance(a, ast.Constant) else None for a in node.args
            ]
            if (key := _key(name, values)) is not None:
                yield key


def _template_messages(text: str, path: Path) -> Iterator[Key]:
    """Django turns a template into calls that its tools can find; so can we."""
    for match in _TEMPLATE_CALL.finditer(templatize(text, origin=str(path))):
        values = ast.literal_eval(f"[{match['arguments'].strip().rstrip(',')}]")
        if (key := _key(match["name"], values)) is not None:
            yield key


def _key(name: str, values: Sequence[object]) -> Key | None:
    context_at, text_at, plural_at = _MARKERS[name]

    def value(position: int | None) -> str:
        if position is None or position >= len(values):
            return ""
        found = values[position]
        return found if isinstance(found, str) else ""

    text = value(text_at)
    return Key(value(context_at), text, value(plural_at)) if text else None


def catalogue_read(path: Path) -> dict[Key, Entry]:
    """The entries of a ``.po`` file, without its header and its obsolete ones."""
    entries: dict[Key, Entry] = {}
    for block in re.split(r"\n\s*\n", path.read_text("utf-8")):
        lines = [line for line in block.splitlines() if not line.startswith("#~")]
        fuzzy = any(line.startswith("#,") and "fuzzy" in line for line in lines)
        fields: dict[str, str] = {}
        name = ""
        for line in lines:
            if match := re.match(r'(msg\w+(?:\[\d+\])?) (".*")$', line):
                name, fields[match[1]] = match[1], str(ast.literal_eval(match[2]))
            elif line.startswith('"') and name:
                fields[name] += str(ast.literal_eval(line))
        if fields.get("msgid"):
            key = Key(
                fields.get("msgctxt", ""),
                fields["msgid"],
                fields.get("msgid_plural", ""),
            )
            texts = [text for name, text in fields.items() if name.startswith("msgstr")]
            entries[key] = Entry(texts, fuzzy)
    return entries


def placeholders_differ(key: Key, entry: Entry) -> str:
    """A placeholder that a translation lacks or invents, or an empty text."""
    wanted = set(_PLACEHOLDER.findall(key.plural or key.text))
    for text in entry.texts:
        if difference := wanted ^ set(_PLACEHOLDER.findall(text)):
            return str(min(difference))
    return ""


def as_compiled(entries: dict[Key, Entry]) -> dict[str | tuple[str, int], str]:
    """The entries as Python's reader of ``.mo`` files holds them."""
    compiled: dict[str | tuple[str, int], str] = {}
    for key, entry in entries.items():
        if entry.fuzzy:
            continue
        text = f"{key.context}\x04{key.text}" if key.context else key.text
        if key.plural:
            compiled |= {(text, n): part for n, part in enumerate(entry.texts)}
        else:
            compiled[text] = entry.texts[0]
    return compiled
