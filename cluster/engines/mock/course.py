"""How far a stream is told to come: which tokens it sends, and what ends it."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from cluster.engines.mock.steps import Stop
from cluster.engines.mock.switches import Switches


class Mark(enum.Enum):
    """What comes after the tokens that were sent."""

    FAILURE = "failure"
    FINISH = "finish"


def course(tokens: int, s: Switches) -> Iterator[int | Mark | Stop]:
    """The numbers of the tokens in order, then what the switches ask for in their
    place."""
    fails_at = 0 if s.in_band_error == "before" else s.in_band_error
    for index in range(tokens + 1):
        if index in (s.cut_after, s.stall_after):
            yield Stop.CUT if index == s.cut_after else Stop.SILENCE
            return
        if index == fails_at:
            yield Mark.FAILURE
            return
        if index < tokens:
            yield index
    yield Mark.FINISH


def pause_s(index: int, s: Switches) -> float:
    """How long a token lets wait for itself."""
    return (s.gap_ms if index else s.delay_first_token_ms) / 1000
