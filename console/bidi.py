"""Text of people among text of ours, whatever direction it runs in."""

from __future__ import annotations

import unicodedata

_TURNS = frozenset(
    {"R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"}
)
_FIRST_STRONG_ISOLATE, _POP = "\u2068", "\u2069"


def isolated(text: str) -> str:
    """The text for the middle of a sentence. Where it could turn the words around it
    the other way, it stands between marks that keep it to itself (Unicode's annex 9:
    an isolate that is never closed inside ends with the mark after it, and marks of its
    own that close one too many are taken out)."""
    if not any(unicodedata.bidirectional(one) in _TURNS for one in text):
        return text
    inner = text.replace(_POP, "").replace("\u202c", "")
    return f"{_FIRST_STRONG_ISOLATE}{inner}{_POP}"
