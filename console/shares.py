"""Shares of a route as bars: integers in, drawing numbers out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.history import percent as percent_text
from routing.contracts.route import WEIGHT_TOTAL_BP

# The design has five series; further versions share the last, grey one.
_SERIES = 5
# A narrower slice between others cannot hold its label; its row's name is there.
_LABEL_BP = 1400


@dataclass(frozen=True)
class Slice:
    """One version's part of a bar. ``series`` follows the order of the versions, so
    that a version keeps its colour; ``x``, ``width`` and ``at``, where its label
    stands, are percentages. The outer labels stand at the ends of the bar, where
    they need no width of their own."""

    name: str
    bp: int
    series: int
    x: str
    width: str
    at: str
    anchor: str

    @property
    def percent(self) -> str:
        return percent_text(self.bp)

    @property
    def label(self) -> str:
        narrow = self.bp < _LABEL_BP and self.anchor == "middle"
        return "" if narrow or not self.bp else f"{self.name} {self.percent}"


def slices(shares: Iterable[tuple[str, int]]) -> list[Slice]:
    """Slices of (version name, basis points), in the order of the versions."""
    parts: list[Slice] = []
    start = 0
    shares = list(shares)
    for index, (name, bp) in enumerate(shares):
        anchor = "middle"
        if len(shares) > 1 and index in (0, len(shares) - 1):
            anchor = "start" if index == 0 else "end"
        parts.append(
            Slice(
                name=name,
                bp=bp,
                series=min(index, _SERIES) + 1,
                x=_share(start),
                width=_share(bp),
                at=_share({"start": 0, "end": 10_000}.get(anchor, start + bp / 2)),
                anchor=anchor,
            )
        )
        start += bp
    return parts


def _share(bp: float) -> str:
    return f"{bp * 100 / WEIGHT_TOTAL_BP:g}%"
