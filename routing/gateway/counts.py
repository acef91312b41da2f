"""Exact counts of this process: a cell for all that is counted apart.

Each cell holds an absolute figure for the life of the process; see
``routing.contracts.counts``. Nothing is ever dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from routing.contracts.counts import Cell, Figures, counts_fields
from routing.contracts.outcome import Outcome

# Beyond so many cells new ones count by the hour.
FINE_CELLS = 50_000
# One write of more would hold Redis up.
WRITE_CELLS = 500
_CLOSED_KEPT = 7 * 24 * 60
_FIGURES = len(Figures._fields)


class Tally:
    """One cell. ``seq`` is the write that last held it, 0 for none; ``changed`` says
    whether it has grown since."""

    __slots__ = ("cell", "changed", "figures", "seq")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.figures = [0] * _FIGURES
        self.changed = False
        self.seq = 0


class Counts:
    """``acknowledged`` is the last write of which the database holds everything."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tallies: dict[tuple[object, ...], Tally] = {}
        self._changed: list[Tally] = []
        self._seq = 0
        self._wall_minute = 0
        self._minute = 0
        # Minutes of which cells were forgotten, in that order: a figure that began
        # again at 0 would contradict the stored one.
        self._closed: dict[int, None] = {}
        self.acknowledged = 0

    @property
    def changed(self) -> int:
        """How many cells grew since they were last written."""
        return len(self._changed)

    @property
    def waiting(self) -> int:
        """How many cells are not stored as they are now."""
        acknowledged = self.acknowledged
        tallies = self._tallies.values()
        return sum(t.changed or t.seq > acknowledged for t in tallies)

    def count(self, outcome: Outcome) -> None:
        wall_minute = int(self._clock() // 60)
        if wall_minute != self._wall_minute:
            self._turn(wall_minute)
        key = (
            self._minute,
            outcome.model,
            outcome.generation,
            outcome.first_version,
            int(outcome.first_probability * 10_000 + 0.5),
            outcome.chosen,
            outcome.version,
            outcome.team,
            outcome.key,
            outcome.ending,
        )
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tally(Cell._make(key))
        if not tally.changed:
            tally.changed = True
            self._changed.append(tally)
        _add(tally.figures, outcome)

    def take(self) -> dict[str | bytes, int | bytes]:
        """The fields of the next write: at most ``WRITE_CELLS`` cells that changed, and
        the number of the write."""
        tallies = self._changed[:WRITE_CELLS]
        del self._changed[:WRITE_CELLS]
        self._seq += 1
        for tally in tallies:
            tally.changed, tally.seq = False, self._seq
        return counts_fields(self._seq, {t.cell: t.figures for t in tallies})

    def doubt(self) -> None:
        """Redis may have lost what it was sent: all that is not stored goes again."""
        for tally in self._tallies.values():
            if not tally.changed and tally.seq > self.acknowledged:
                tally.changed = True
                self._changed.append(tally)

    def acknowledge(self, seq: int) -> bool:
        """The database holds what stood there after this write; whether that is news.
        What is done and stored is forgotten."""
        news = seq > self.acknowledged
        self.acknowledged = max(self.acknowledged, seq)
        self._turn(int(self._clock() // 60))
        self._forget()
        return news

    def _turn(self, wall_minute: int) -> None:
        self._wall_minute = wall_minute
        self._minute = self._open_from(wall_minute)

    def _open_from(self, minute: int) -> int:
        """The first minute from this one on of which nothing was forgotten."""
        while minute in self._closed:
            minute += 1
        return minute

    def _tally(self, cell: Cell) -> Tally:
        if len(self._tallies) >= FINE_CELLS:
            hour = self._open_from(cell.minute - cell.minute % 60)
            cell = cell._replace(minute=hour)
        tally = self._tallies.get(cell)
        if tally is None:
            tally = self._tallies[cell] = Tally(cell)
        return tally

    def _forget(self) -> None:
        for cell, tally in list(self._tallies.items()):
            minute = tally.cell.minute
            stored = not tally.changed and tally.seq <= self.acknowledged
            if stored and minute < self._minute:
                del self._tallies[cell]
                self._closed[minute] = None
        while len(self._closed) > _CLOSED_KEPT:
            del self._closed[next(iter(self._closed))]


def _add(figures: list[int], outcome: Outcome) -> None:
    """In the order of ``Figures``."""
    figures[0] += 1
    attempts = len(outcome.attempts)
    if attempts > 1:
        figures[1] += attempts - 1
    if outcome.prompt_tokens is not None:
        figures[2] += outcome.prompt_tokens
        figures[3] += outcome.completion_tokens or 0
        figures[4] += outcome.cached_tokens or 0
        figures[5] += outcome.estimated
    figures[6] += int(outcome.duration_ms + 0.5)
    if outcome.first_content_ms is not None:
        figures[7] += int(outcome.first_content_ms + 0.5)
        figures[8] += 1
    figures[9] += outcome.bytes_in
    figures[10] += outcome.bytes_out
