"""Buffers and cells by themselves: bounds, order, clocks, what is sent again."""

from __future__ import annotations

import random
from functools import partial

import pytest

from routing.contracts.counts import Figures, counts_read
from routing.contracts.outcome import Attempt, Ending
from routing.gateway import counts as counts_module
from routing.gateway.counts import WRITE_CELLS, Counts
from routing.gateway.outcomes import (
    BATCH_BYTES,
    SENT_BYTES,
    WAITING_BYTES,
    Outcomes,
    SentBatch,
)
from routing.gateway.usage import Usage, estimate, usage_at_ends
from tests.gateway import world

outcome = partial(world.outcome, model="m")


class Wall:
    """A clock of the wall that a test may set."""

    def __init__(self, minute: int) -> None:
        self.minute = minute

    def __call__(self) -> float:
        return self.minute * 60 + 1.5


def written(counts: Counts) -> dict[tuple[object, ...], Figures]:
    """All that is to be written now, cell by cell."""
    found: dict[tuple[object, ...], Figures] = {}
    while counts.changed:
        fields = counts.take()
        text = {
            name if isinstance(name, bytes) else name.encode(): (
                value if isinstance(value, bytes) else str(value).encode()
            )
            for name, value in fields.items()
        }
        found |= dict(counts_read(text).cells.items())
    return found


def lines_of(batches: list[SentBatch]) -> list[tuple[int, bytes]]:
    """Number and line of everything in these batches."""
    found = []
    for batch in batches:
        body = batch.fields[-1]
        assert isinstance(body, bytes)
        found += list(enumerate(body.split(b"\n"), batch.first))
    return found


# Counts ---------------------------------------------------------------------------


def test_a_cell_sums_what_the_outcomes_say() -> None:
    counts = Counts(Wall(100))
    attempts = (Attempt("a", "v1", "reset"), Attempt("b", "v1"))
    counts.count(
        outcome(
            attempts=attempts,
            prompt_tokens=7,
            completion_tokens=5,
            cached_tokens=3,
            duration_ms=10.5,
            first_content_ms=4.4,
            bytes_in=100,
            bytes_out=50,
        )
    )
    counts.count(
        outcome(prompt_tokens=2, completion_tokens=0, estimated=True, duration_ms=0.4)
    )
    counts.count(outcome(status=401, ending=Ending.REFUSED))
    cells = written(counts)
    assert sorted(cells.values()) == [
        Figures(1),
        Figures(2, 1, 9, 5, 3, 1, 11, 4, 1, 100, 50),
    ]


def test_shares_generations_and_choices_are_counted_apart() -> None:
    counts = Counts(Wall(100))
    for probability, generation, chosen in (
        (0.9, 1, False),
        (0.9, 2, False),
        (1, 2, 1),
    ):
        counts.count(
            outcome(
                first_version="v1",
                first_probability=probability,
                generation=generation,
                chosen=bool(chosen),
            )
        )
    cells = counts_cells(counts)
    assert cells == {(1, 9000, False), (2, 9000, False), (2, 10_000, True)}


def counts_cells(counts: Counts) -> set[tuple[int, int, bool]]:
    found: set[tuple[int, int, bool]] = set()
    for cell in written(counts):
        _, _, generation, _, share_bp, chosen, *_ = cell
        assert isinstance(generation, int) and isinstance(share_bp, int)
        found.add((generation, share_bp, bool(chosen)))
    return found


def test_a_third_is_told_in_whole_basis_points() -> None:
    counts = Counts(Wall(100))
    counts.count(outcome(first_version="v1", first_probability=3333 / 10_000))
    counts.count(outcome(first_version="v2", first_probability=3334 / 10_000))
    assert counts_cells(counts) == {(0, 3333, False), (0, 3334, False)}


def test_only_what_changed_is_written_and_only_what_is_done_forgotten() -> None:
    wall = Wall(100)
    counts = Counts(wall)
    counts.count(outcome())
    assert len(written(counts)) == 1 and not counts.changed
    assert counts.waiting == 1
    counts.acknowledge(1)
    assert counts.waiting == 0
    counts.count(outcome())
    (figures,) = written(counts).values()
    assert figures.requests == 2
    wall.minute = 101
    counts.acknowledge(1)
    # The second write is not acknowledged, so the minute is not forgotten.
    counts.doubt()
    (figures,) = written(counts).values()
    assert figures.requests == 2
    counts.acknowledge(3)
    counts.doubt()
    assert not counts.changed


def test_after_a_loss_all_that_is_not_stored_is_written_again() -> None:
    counts = Counts(Wall(100))
    for number in range(WRITE_CELLS + 10):
        counts.count(outcome(key=str(number)))
    first = counts.take()
    assert len(first) == WRITE_CELLS + 1
    counts.take()
    counts.acknowledge(1)
    counts.doubt()
    assert len(written(counts)) == 10


def test_a_clock_that_jumps_back_starts_no_stored_minute_anew() -> None:
    wall = Wall(100)
    counts = Counts(wall)
    totals: dict[tuple[object, ...], Figures] = {}

    def tell(minute: int) -> None:
        wall.minute = minute
        counts.count(outcome())
        for cell, figures in written(counts).items():
            assert figures >= totals.get(cell, Figures())
            totals[cell] = figures
        counts.acknowledge(10**6)

    for minute in (100, 101, 102, 99, 100, 101, 102, 103, 50, 104, 100, 5000, 101):
        tell(minute)
    assert sum(figures.requests for figures in totals.values()) == 13
    minutes = {cell[0] for cell in totals}
    assert {99, 50, 5000} <= minutes


def test_very_many_waiting_cells_are_counted_by_the_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counts_module, "FINE_CELLS", 20)
    wall = Wall(600)
    counts = Counts(wall)
    for minute in range(600, 660):
        wall.minute = minute
        for number in range(4):
            counts.count(outcome(key=str(number)))
    cells = written(counts)
    assert len(cells) == 20
    assert sum(figures.requests for figures in cells.values()) == 240
    # Stored, they are forgotten, and minutes count again.
    counts.acknowledge(10**6)
    wall.minute = 660
    counts.acknowledge(10**6)
    counts.count(outcome())
    ((cell, figures),) = written(counts).items()
    assert (cell[0], figures.requests) == (660, 1)


def test_any_order_of_losses_and_acknowledgements_ends_in_the_same_sums() -> None:
    """A reader that sees only some writes, a clock that wanders, losses in between."""
    rng = random.Random(7)
    wall = Wall(1000)
    counts = Counts(wall)
    stored: dict[tuple[object, ...], Figures] = {}
    redis: dict[tuple[object, ...], Figures] = {}
    seq = emitted = 0
    for _ in range(3000):
        wall.minute += rng.choice((0, 0, 0, 1, -1, -3, 2))
        move = rng.random()
        if move < 0.5:
            counts.count(outcome(key=str(rng.randrange(5)), bytes_in=1))
            emitted += 1
        elif move < 0.75 and counts.changed:
            redis.update(written(counts))
            seq += 1
        elif move < 0.9:
            for cell, figures in redis.items():
                assert figures >= stored.get(cell, Figures())
                stored[cell] = figures
            counts.acknowledge(seq)
        else:
            redis.clear()
            counts.doubt()
    redis.update(written(counts))
    stored.update(redis)
    assert sum(figures.requests for figures in stored.values()) == emitted


# Outcomes -------------------------------------------------------------------------


def test_batches_are_numbered_without_a_gap() -> None:
    outcomes = Outcomes("g")
    for number in range(1, 3001):
        outcomes.add(b"%d" % number + b"x" * 100)
    batches = outcomes.take(partly=False)
    assert all(batch.size >= BATCH_BYTES for batch in batches)
    while more := outcomes.take(partly=True):
        batches += more
    found = lines_of(batches)
    assert [number for number, _ in found] == list(range(1, 3001))
    assert all(line.startswith(b"%d" % number) for number, line in found)
    assert outcomes.emitted == 3000 and outcomes.waiting == 0


def test_what_is_in_doubt_goes_again_in_order_before_anything_new() -> None:
    outcomes = Outcomes("g")
    for number in range(4):
        outcomes.add(b"old%d" % number)
        outcomes.take(partly=True)
    outcomes.acknowledge(1)
    outcomes.add(b"new")
    outcomes.doubt()
    assert outcomes.waiting == 4
    (again, *_) = [outcomes.take(partly=True)]
    assert lines_of(again) == [(2, b"old1"), (3, b"old2"), (4, b"old3"), (5, b"new")]
    # A second doubt half-way, and an acknowledgement of what is still to go.
    outcomes.doubt()
    outcomes.acknowledge(3)
    assert lines_of(outcomes.take(partly=True)) == [(4, b"old3"), (5, b"new")]


def test_an_overflow_drops_the_oldest_and_counts_them() -> None:
    outcomes = Outcomes("g")
    line = b"x" * 1000
    count = WAITING_BYTES // len(line) + 500
    for _ in range(count):
        outcomes.add(line)
    assert outcomes.dropped >= 500
    (first, *_) = outcomes.take(partly=False)
    assert first.first == outcomes.dropped + 1
    assert outcomes.emitted == count


def test_what_was_sent_is_kept_within_its_bound() -> None:
    outcomes = Outcomes("g")
    for _ in range(4 * SENT_BYTES // 1000):
        outcomes.add(b"x" * 1000)
        if outcomes.take(partly=False):
            outcomes.arrived()
    outcomes.doubt()
    kept = []
    while batches := outcomes.take(partly=False):
        kept += batches
    assert SENT_BYTES * 0.9 < sum(batch.size for batch in kept) <= SENT_BYTES
    numbers = [number for number, _ in lines_of(kept)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


# Tokens ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(3, 5), (3, 5, None, False)),
        (Usage(3, 5, 8, {"cached_tokens": 2}), (3, 5, 2, False)),
        (Usage(3, None, 3), (3, 0, None, False)),
        (Usage(None, None, 9), (9, 0, None, False)),
        (Usage(3, 5, 8, {"cached_tokens": "2"}), (3, 5, None, False)),
        (Usage(3, 5, 8, [2]), (3, 5, None, False)),
        (Usage(None, 5), None),
        (Usage(-3, 5), None),
        (Usage(10**30, 5), None),
        (Usage(True, 5), None),
        (Usage(3.5, "x"), None),
    ],
)
def test_only_sensible_counts_are_believed(usage: Usage, expected: object) -> None:
    assert usage.tokens() == expected


def test_usage_is_found_at_either_end_of_a_long_answer() -> None:
    end = rb'xt":"a \"usage\": {"}],"usage" : {"prompt_tokens":7,"total_tokens":7,'
    end += b'"prompt_tokens_details":{"cached_tokens":4}},"id":"x"}'
    for first, last in ((b"", end), (end, b'"data":[1,2]}')):
        usage = usage_at_ends(first, last)
        assert usage is not None and usage.tokens() == (7, 0, 4, False)
    for tail in (b"", b'"usage":{"prompt', b'"usage":{]}', rb'"a \"usage\":{}"'):
        assert usage_at_ends(tail, tail) is None


def test_estimates_are_marked() -> None:
    assert estimate(103, 9) == (25, 9, None, True)
