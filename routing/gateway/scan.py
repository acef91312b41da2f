"""Where the members of a JSON object stand in its bytes.

An exact scanner over bytes that are known to be a JSON object already. Nested
values are skipped by their quotes and brackets, so the cost grows with their
number and not with the length of the texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb"[^ \t\r\n,}\]]+")
_NEST = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


class NotAnObject(ValueError):
    """The bytes are no JSON object."""


def members(body: bytes) -> Iterator[tuple[str, int, int]]:
    """Each top-level member: its key, start and end of its value."""
    position = _expect(body, _skip_space(body, 0), b"{")
    position = _skip_space(body, position)
    if body[position : position + 1] == b"}":
        return
    while True:
        found = _STRING.match(body, position)
        if found is None:
            raise NotAnObject(f"no key at byte {position}")
        # A key of broken UTF-8 is nobody's, and for the engine to refuse.
        key = json.loads(found[0].decode("utf-8", "replace"), strict=False)
        position = _expect(body, _skip_space(body, found.end()), b":")
        start = _skip_space(body, position)
        end = _value_end(body, start)
        yield key, start, end
        position = _skip_space(body, end)
        if body[position : position + 1] == b"}":
            return
        position = _skip_space(body, _expect(body, position, b","))


def _skip_space(body: bytes, position: int) -> int:
    found = _SPACE.match(body, position)
    assert found is not None
    return found.end()


def _expect(body: bytes, position: int, byte: bytes) -> int:
    if body[position : position + 1] != byte:
        raise NotAnObject(f"no {byte.decode()} at byte {position}")
    return position + 1


def _value_end(body: bytes, start: int) -> int:
    first = body[start : start + 1]
    if first == b'"':
        found = _STRING.match(body, start)
    elif first in (b"{", b"["):
        return _nested_end(body, start)
    else:
        found = _SCALAR.match(body, start)
    if found is None:
        raise NotAnObject(f"no value at byte {start}")
    return found.end()


def _nested_end(body: bytes, start: int) -> int:
    depth = 0
    for found in _NEST.finditer(body, start):
        mark = body[found.start()]
        if mark in b"[{":
            depth += 1
        elif mark in b"]}":
            depth -= 1
            if depth == 0:
                return found.end()
    raise NotAnObject(f"no end of the value at byte {start}")
