"""Outcomes by filter and page: the same as looking at every row, only faster."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from routing.contracts.outcome import Ending
from routing.models import OutcomeRecord
from routing.selectors import outcomes as selector
from routing.selectors.outcomes import (
    OutcomeFilter,
    id_at,
    id_moment,
    outcome_get,
    outcome_list,
)
from tests import outcomes

pytestmark = pytest.mark.django_db

START = 1_800_000_000.0


def fill(count: int = 60) -> None:
    """Rows of every kind, a second apart, in an order that repeats."""
    rng = random.Random(7)
    made = []
    for n in range(count):
        ending = rng.choice(list(Ending))
        status = {Ending.COMPLETED: 200, Ending.BROKEN: 200}.get(ending, 503)
        one = outcomes.outcome(
            START + n,
            team=rng.choice(["search", "ads"]),
            key=rng.choice(["k1", "k2", "k3"]),
            model=rng.choice(["qwen", "bge"]),
            version=rng.choice(["v1", "v2"]),
            replica=rng.choice(["qwen-v1-1", "qwen-v1-2"]),
            status=429 if ending is Ending.REFUSED else status,
            ending=ending,
        )
        made.append(outcomes.row(one, slow=rng.random() < 0.2))
    OutcomeRecord.objects.bulk_create(made)


def fits(row: OutcomeRecord, wanted: OutcomeFilter) -> bool:
    names = ("team", "key", "model", "version", "replica", "ending")
    same = all(
        getattr(row, name) == getattr(wanted, name)
        for name in names
        if getattr(wanted, name)
    )
    status = wanted.status is None or wanted.status in (row.status, row.status // 100)
    since = wanted.since is None or row.at >= wanted.since
    until = wanted.until is None or row.at < wanted.until
    return same and status and since and until and (row.slow or not wanted.slow)


def filters() -> Iterator[dict[str, Any]]:
    """No filter, each one, and each pair."""
    ones: list[dict[str, Any]] = [
        {"team": "ads"},
        {"key": "k2"},
        {"model": "qwen"},
        {"version": "v2"},
        {"replica": "qwen-v1-2"},
        {"status": 503},
        {"status": 4},
        {"ending": "refused"},
        {"ending": "completed"},
        {"slow": True},
        {"since": datetime.fromtimestamp(START + 20, UTC)},
        {"until": datetime.fromtimestamp(START + 45, UTC)},
    ]
    yield {}
    yield from ones
    yield from (a | b for a, b in itertools.combinations(ones, 2))


def walk(wanted: OutcomeFilter, limit: int = 9) -> list[UUID]:
    """Every page from the newest to the oldest."""
    seen: list[UUID] = []
    before: UUID | None = None
    while True:
        found = outcome_list(wanted=wanted, limit=limit, before=before)
        seen += [row.pk for row in found.rows]
        if not found.more:
            return seen
        before = found.reached or found.rows[-1].pk


def walk_back(wanted: OutcomeFilter, limit: int = 9) -> list[UUID]:
    """Every page from the oldest to the newest."""
    seen: list[UUID] = []
    after = UUID(int=0)
    while True:
        found = outcome_list(wanted=wanted, limit=limit, after=after)
        ids = [row.pk for row in found.rows]
        assert ids == sorted(ids, reverse=True)
        seen += reversed(ids)
        if not found.more:
            return seen
        after = found.reached or found.rows[0].pk


@pytest.fixture(params=["large chunks", "small chunks", "no time"])
def habits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers do not depend on how far one step of the search goes."""
    if request.param != "large chunks":
        monkeypatch.setattr(selector, "_CHUNK_FIRST", 3)
        monkeypatch.setattr(selector, "_CHUNK_MOST", 5)
    if request.param == "no time":
        monkeypatch.setattr(selector, "SEARCH_S", -1.0)


@pytest.mark.usefixtures("habits")
def test_every_filter_and_pair_finds_exactly_what_fits_in_either_direction() -> None:
    fill()
    rows = list(OutcomeRecord.objects.order_by("-id"))
    for given in filters():
        wanted = OutcomeFilter(**given)
        expected = [row.pk for row in rows if fits(row, wanted)]
        assert walk(wanted) == expected, given
        assert walk_back(wanted) == expected[::-1], given


def test_pages_neither_repeat_nor_lose_a_row_while_others_arrive() -> None:
    fill(30)
    first = outcome_list(wanted=OutcomeFilter(), limit=10)
    outcomes.keep(outcomes.outcome(START + 100))
    second = outcome_list(wanted=OutcomeFilter(), limit=10, before=first.rows[-1].pk)
    assert first.rows[-1].pk > second.rows[0].pk
    newer = outcome_list(wanted=OutcomeFilter(), limit=10, after=second.rows[0].pk)
    assert [row.pk for row in newer.rows] == [row.pk for row in first.rows]


def test_a_search_that_ran_out_of_time_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selector, "_CHUNK_FIRST", 10)
    fill(100)
    times = iter([0.0, 0.0, 9.0])
    wanted = OutcomeFilter(team="ads", model="none")
    found = outcome_list(
        wanted=OutcomeFilter(version="v9"), limit=5, clock=times.__next__
    )
    assert found.rows == [] and found.more
    ids = list(OutcomeRecord.objects.values_list("pk", flat=True))
    # Ten rows in the first chunk, twenty in the second.
    assert found.reached == ids[29]
    # What no row has is known at once from its index.
    nothing = outcome_list(wanted=wanted, limit=5)
    assert (nothing.rows, nothing.more, nothing.reached) == ([], False, None)


def test_the_rarer_filter_leads(
    monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    monkeypatch.setattr(selector, "_CHUNK_FIRST", 20)
    monkeypatch.setattr(selector, "_CHUNK_MOST", 20)
    many = [outcomes.outcome(START + n, team="ads") for n in range(400)]
    rare = [outcomes.outcome(START + n / 7, model="bge") for n in range(30)]
    outcomes.keep(*many, *rare)
    wanted = OutcomeFilter(team="search", model="qwen")
    # Two looks ahead, two reads of a chunk and two places; PostgreSQL is told how.
    with django_assert_max_num_queries(9):
        found = outcome_list(wanted=wanted, limit=5)
    assert (found.rows, found.more) == ([], False)


def test_an_id_is_found_whatever_its_age_and_tells_its_time() -> None:
    (old,) = outcomes.keep(outcomes.outcome(1.5))
    fill(3)
    found = outcome_get(request_id=UUID(old))
    assert found is not None and found.id.hex == old
    assert outcome_get(request_id=UUID(int=7)) is None
    assert id_moment(UUID(old)) == datetime.fromtimestamp(1.5, UTC)
    assert id_moment(UUID(int=2**128 - 1)) is None


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2027, 1, 15, 8, 0, 0, 1000, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
)
def test_a_moment_is_a_place_between_ids(moment: datetime) -> None:
    place = id_at(moment)
    found = id_moment(place)
    assert found is not None
    clamped = max(moment, datetime(1970, 1, 1, tzinfo=UTC))
    assert timedelta(0) <= clamped - found < timedelta(milliseconds=1)
    assert place.int & (2**80 - 1) == 0
