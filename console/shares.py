"""Shares of a route as bars: integers in, drawing numbers out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.history import percent as percent_text
from routing.contracts.route import WEIGHT_TOTAL_BP

# The design has five series; further versions share the last, grey one.
_SERIES = 5
# A narrower slice cannot hold its label; the legend carries it.
_LABEL_BP = 1400


@dataclass(frozen=True)
class Slice:
    """One version's part of a bar. ``series`` follows the order of the versions, so
    that a version keeps its colour; ``x`` and ``width`` are percentages."""

    name: str
    bp: int
    series: int
    x: str
    width: str
    middle: str

    @property
    def percent(self) -> str:
        return percent_text(self.bp)

    @property
    def label(self) -> str:
        return f"{self.name} {self.percent}" if self.bp >= _LABEL_BP else ""


def slices(shares: Iterable[tuple[str, int]]) -> list[Slice]:
    """Slices of (version name, basis points), in the order of the versions."""
    parts: list[Slice] = []
    start = 0
    for index, (name, bp) in enumerate(shares):
        parts.append(
            Slice(
                name=name,
                bp=bp,
                series=min(index, _SERIES) + 1,
                x=_share(start),
                width=_share(bp),
                middle=_share(start + bp / 2),
            )
        )
        start += bp
    return parts


def _share(bp: float) -> str:
    return f"{bp * 100 / WEIGHT_TOTAL_BP:g}%"
