"""JSON bodies, read so that nothing in them is taken in silence or breaks later."""

from __future__ import annotations

import json
import math
from typing import Any

from django.http import HttpRequest
from ninja.parser import Parser


class StrictParser(Parser):
    """Refuses what JSON does not know (NaN), what a reader may take either way (a
    name twice), and text that a database cannot hold (U+0000, half characters)."""

    def parse_body(self, request: HttpRequest) -> Any:
        value = json.loads(
            request.body,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
        )
        _text_check(value)
        return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return result


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _text_check(value: Any) -> None:
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueError("text holds U+0000 or half a surrogate pair")
    elif isinstance(value, dict):
        for name, part in value.items():
            _text_check(name)
            _text_check(part)
    elif isinstance(value, list):
        for part in value:
            _text_check(part)
