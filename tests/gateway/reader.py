"""Reads what gateways send, as the ingest of the control plane does."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import redis

from routing.contracts import names
from routing.contracts.counts import COUNTS_DELETE, Cell, Figures, counts_read
from routing.contracts.outcome import (
    BATCH_DELETE,
    Outcome,
    batch_read,
    outcome_decode,
)


class Reader:
    """Takes an outcome only above the last number of its gateway, and the absolute
    figures of every cell; acknowledges both when told to."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = cast(Any, client)
        self.last: dict[str, int] = {}
        self.lost: Counter[str] = Counter()
        self.repeated = 0
        self.outcomes: list[Outcome] = []
        self.cells: dict[str, dict[Cell, Figures]] = {}
        self.seqs: dict[str, int] = {}

    def read(self, *, acknowledge: bool = True) -> None:
        """Everything that is there now; it is deleted afterwards."""
        self._read_outcomes(acknowledge)
        for raw in self._client.smembers(names.COUNTS_GATEWAYS):
            self._read_counts(raw.decode(), acknowledge)

    def _read_outcomes(self, acknowledge: bool) -> None:
        entries = self._client.xrange(names.OUTCOMES)
        for _, fields in entries:
            self._take(fields)
        if not acknowledge:
            return
        if self.last:
            self._client.hset(names.OUTCOMES_ACKS, mapping=self.last)
        if entries:
            keys = (names.OUTCOMES, names.OUTCOMES_BYTES)
            ids = [entry_id for entry_id, _ in entries]
            self._client.eval(BATCH_DELETE, 2, *keys, *ids)

    def _take(self, fields: dict[bytes, bytes]) -> None:
        gateway, first, lines = batch_read(fields)
        for number, line in enumerate(lines, first):
            last = self.last.get(gateway, 0)
            if number <= last:
                self.repeated += 1
                continue
            self.lost[gateway] += number - last - 1
            self.last[gateway] = number
            outcome = outcome_decode(line)
            assert outcome.gateway == gateway
            self.outcomes.append(outcome)

    def _read_counts(self, gateway: str, acknowledge: bool) -> None:
        counts = counts_read(self._client.hgetall(names.counts(gateway)))
        assert counts.foreign == 0
        mine = self.cells.setdefault(gateway, {})
        for cell, figures in counts.cells.items():
            assert figures >= mine.get(cell, Figures()), "an absolute figure shrank"
            mine[cell] = figures
        self.seqs[gateway] = max(counts.seq, self.seqs.get(gateway, 0))
        if not acknowledge:
            return
        self._client.hset(names.COUNTS_ACKS, gateway, self.seqs[gateway])
        newest = max((cell.minute for cell in counts.cells), default=0)
        done = [
            part
            for cell, pair in counts.raw.items()
            if cell.minute < newest
            for part in pair
        ]
        if done:
            self._client.eval(COUNTS_DELETE, 1, names.counts(gateway), *done)

    def total(self) -> Figures:
        """The sums over all cells of all gateways."""
        found = [f for cells in self.cells.values() for f in cells.values()]
        return sums(found)

    def by_ending(self) -> dict[str, int]:
        counted: Counter[str] = Counter()
        for cells in self.cells.values():
            for cell, figures in cells.items():
                counted[cell.ending] += figures.requests
        return dict(counted)


def sums(found: list[Figures]) -> Figures:
    return Figures(*(sum(column) for column in zip(*found, strict=True)))


def figures_of(outcomes: list[Outcome]) -> Figures:
    """What exact counts of these outcomes must add up to."""
    return sums([_figures(outcome) for outcome in outcomes])


def _figures(outcome: Outcome) -> Figures:
    first_ms = outcome.first_content_ms
    return Figures(
        requests=1,
        retries=max(0, len(outcome.attempts) - 1),
        prompt_tokens=outcome.prompt_tokens or 0,
        completion_tokens=outcome.completion_tokens or 0,
        cached_tokens=outcome.cached_tokens or 0,
        estimated=int(outcome.estimated),
        duration_ms=int(outcome.duration_ms + 0.5),
        ttft_ms=0 if first_ms is None else int(first_ms + 0.5),
        ttft_count=int(first_ms is not None),
        bytes_in=outcome.bytes_in,
        bytes_out=outcome.bytes_out,
    )
