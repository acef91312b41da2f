"""What a change changed: the keys of an audit record that differ, before and after."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Changed(NamedTuple):
    """``name`` is written with dots where it is nested; None is what was not there,
    or was empty."""

    name: str
    before: str | None
    after: str | None


def changed(before: Any, after: Any) -> list[Changed]:
    """Only keys that differ, in the order of their names."""
    old, new = dict(_flat(before)), dict(_flat(after))
    names = sorted(old.keys() | new.keys())
    return [
        Changed(name, old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name)
    ]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    elif value not in (None, "", {}):
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        yield path, text
