"""What an engine tells of itself, read from whatever may answer there."""

from __future__ import annotations

from cluster.engines.answers import json_field, snippet

# A description of a server with all of its arguments, or a list of hundreds of names.
TELLING_LIMIT = 262_144


def version_read(status: int, body: bytes, field: str) -> str:
    """The release in the answer; empty for any other answer."""
    value = _field(status, body, field)
    return snippet(value.encode("utf-8", "replace")) if isinstance(value, str) else ""


def names_read(status: int, body: bytes) -> list[str] | None:
    """The names in an OpenAI list of models, with the aliases that llama.cpp adds to
    it; None for any other answer."""
    entries = _field(status, body, "data")
    if not isinstance(entries, list):
        return None
    names: dict[str, None] = {}
    for entry in entries:
        name = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            return None
        names[name] = None
        aliases = entry.get("aliases")
        for alias in aliases if isinstance(aliases, list) else []:
            if isinstance(alias, str):
                names[alias] = None
    return list(names)


def _field(status: int, body: bytes, name: str) -> object:
    if status != 200 or len(body) > TELLING_LIMIT:
        return None
    return json_field(body, name)
