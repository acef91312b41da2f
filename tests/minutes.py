"""Exact counts of outcomes, by minute, as the ingest of a gateway writes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

from routing.contracts.counts import Cell, Figures
from routing.contracts.outcome import Outcome
from routing.models import TrafficMinute
from tests import outcomes


def minutes_count(found: Iterable[Outcome]) -> None:
    cells: dict[Cell, list[int]] = defaultdict(lambda: [0] * len(Figures._fields))
    for one in found:
        sums = cells[outcomes.cell(one)]
        for place, value in enumerate(outcomes.figures(one)):
            sums[place] += value
    TrafficMinute.objects.bulk_create(
        TrafficMinute(
            gateway="g1",
            **cell._asdict()
            | {"minute": datetime.fromtimestamp(cell.minute * 60, UTC)}
            | dict(zip(Figures._fields, sums, strict=True)),
        )
        for cell, sums in cells.items()
    )
