"""Usage adds up: to the outcomes, and of its parts."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from importlib import import_module
from zoneinfo import ZoneInfo

import pytest
from django.apps import apps

from routing.contracts.outcome import Ending, Outcome
from routing.models import OutcomeRecord, UsageDay, UsageHour
from routing.selectors.usage import (
    ERRORS,
    GROUPS,
    UsageFilter,
    Used,
    usage_newest_hour,
    usage_read,
    usage_sum,
    usage_total,
)
from tests import outcomes

pytestmark = pytest.mark.django_db

# 2027-01-15 08:00 UTC.
START = 1_800_000_000.0
DAY_S = 86_400


def traffic(count: int = 400) -> list[Outcome]:
    """Requests of three days, kept as rows and as counts, by two hands."""
    rng = random.Random(11)
    made = []
    for _n in range(count):
        at = START + rng.random() * 3 * DAY_S
        if rng.random() < 0.1:
            made.append(outcomes.refused(at))
            continue
        made.append(
            outcomes.outcome(
                at,
                team=rng.choice(["search", "ads"]),
                key=rng.choice(["k1", "k2"]),
                model=rng.choice(["qwen", "bge"]),
                version=rng.choice(["v1", "v2"]),
                ending=rng.choice(list(Ending)),
                prompt_tokens=rng.choice([None, rng.randrange(5000)]),
                completion_tokens=rng.choice([None, rng.randrange(900)]),
                cached_tokens=rng.choice([None, 64]),
                estimated=rng.random() < 0.3,
            )
        )
    outcomes.keep(*made)
    outcomes.count(made)
    return made


ALL = UsageFilter(first=date(2027, 1, 1), last=date(2027, 1, 31))


def test_usage_reconciles_with_the_outcomes_to_the_last_token() -> None:
    made = traffic()
    for name in ("team", "key", "model", "version"):
        prompt: Counter[str] = Counter()
        completion: Counter[str] = Counter()
        requests: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        for row in OutcomeRecord.objects.all():
            value = getattr(row, name)
            requests[value] += 1
            prompt[value] += row.prompt_tokens or 0
            completion[value] += row.completion_tokens or 0
            errors[value] += row.ending in ERRORS
        found = {
            row.of[name]: row.used for row in usage_read(wanted=ALL, group=(name,))
        }
        assert found.keys() == requests.keys()
        for value, used in found.items():
            assert used.requests == requests[value]
            assert used.prompt_tokens == prompt[value]
            assert used.completion_tokens == completion[value]
            assert used.errors == errors[value]
    assert usage_total(wanted=ALL).estimated == sum(one.estimated for one in made)


def test_the_parts_of_every_grouping_add_up_to_the_total() -> None:
    traffic()
    total = usage_total(wanted=ALL)
    assert total.requests == 400 and total.tokens > 0
    for size in range(1, len(GROUPS) + 1):
        for group in itertools.combinations(GROUPS, size):
            rows = usage_read(wanted=ALL, group=group)
            assert usage_sum(rows) == total, group
            keys = [tuple(row.of.values()) for row in rows]
            assert keys == sorted(keys) and len(set(keys)) == len(keys)


def test_days_are_those_of_the_zone_and_both_ends_are_included() -> None:
    for text in (
        "2027-01-15T23:59:59",
        "2027-01-16T00:00:00",
        "2027-01-16T23:59:59",
        "2027-01-17T00:00:00",
    ):
        at = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        outcomes.count([outcomes.outcome(at, duration_ms=0.0)])
    one_day = UsageFilter(first=date(2027, 1, 16), last=date(2027, 1, 16))
    rows = usage_read(wanted=one_day, group=("day",))
    assert [(row.of["day"], row.used.requests) for row in rows] == [
        (date(2027, 1, 16), 2)
    ]
    to_the_end = UsageFilter(first=date(1, 1, 1), last=date.max)
    assert len(usage_read(wanted=to_the_end, group=("day",))) == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [("team", "ads"), ("key", "k2"), ("model", "bge"), ("version", "v2")],
)
def test_a_filter_leaves_exactly_its_own_part(field: str, value: str) -> None:
    traffic()
    parts = {row.of[field]: row.used for row in usage_read(wanted=ALL, group=(field,))}
    wanted = replace(ALL, **{field: value})  # type: ignore[arg-type]
    assert usage_total(wanted=wanted) == parts[value]


def test_no_usage_is_zero_and_not_unknown() -> None:
    assert usage_total(wanted=ALL) == Used()
    assert usage_read(wanted=ALL, group=("day", "team")) == []
    assert usage_newest_hour() is None
    assert Used().error_share == 0.0


def test_the_newest_hour_that_has_counts_is_known() -> None:
    outcomes.count([outcomes.outcome(START, duration_ms=0.0)])
    assert usage_newest_hour() == datetime(2027, 1, 15, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "zone", ["UTC", "Asia/Shanghai", "America/New_York", "Pacific/Kiritimati"]
)
def test_days_and_hours_together_are_the_hours_of_the_span(zone: str) -> None:
    """In a zone of its own most of a span is read from days of UTC. In March the
    clocks of New York change."""
    rng = random.Random(5)
    begins = datetime(2027, 3, 10, tzinfo=UTC).timestamp()
    made = [
        outcomes.outcome(begins + rng.random() * 8 * DAY_S, team=rng.choice("abc"))
        for _n in range(300)
    ]
    outcomes.count(made)
    place = ZoneInfo(zone)
    for first, last in ((11, 16), (12, 13), (14, 14), (1, 31)):
        wanted = UsageFilter(
            first=date(2027, 3, first), last=date(2027, 3, last), zone=place
        )
        plain: Counter[tuple[date, str]] = Counter()
        for row in UsageHour.objects.all():
            day = row.hour.astimezone(place).date()
            if wanted.first <= day <= wanted.last:
                plain[day, row.team] += row.requests
        by_team = Counter[str]()
        for (_day, team), requests in plain.items():
            by_team[team] += requests
        found = usage_read(wanted=wanted, group=("day", "team"))
        assert {(r.of["day"], r.of["team"]): r.used.requests for r in found} == plain
        found = usage_read(wanted=wanted, group=("team",))
        assert {row.of["team"]: row.used.requests for row in found} == by_team
        assert usage_total(wanted=wanted).requests == plain.total()
        one = usage_read(wanted=wanted, group=("team",), only=[{"team": "a"}])
        assert [row.used.requests for row in one] == [by_team["a"]] * (by_team["a"] > 0)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
def test_a_span_without_ends_can_be_asked_for_in_every_zone(zone: str) -> None:
    outcomes.count([outcomes.outcome(START)])
    endless = UsageFilter(first=date.min, last=date.max, zone=ZoneInfo(zone))
    assert usage_total(wanted=endless).requests == 1
    assert len(usage_read(wanted=endless, group=("day",))) == 1
    past = UsageFilter(first=date.min, last=date(1, 2, 1), zone=ZoneInfo(zone))
    assert usage_total(wanted=past) == Used()


def test_usage_of_before_is_summed_up_by_the_migration() -> None:
    traffic()
    days = UsageDay.objects.order_by("day", "team", "key", "model", "version", "ending")
    names = [field.name for field in UsageDay._meta.fields if field.name != "id"]
    before = list(days.values_list(*names))
    days.delete()
    import_module("routing.migrations.0006_usage_day").days_fill(apps, None)
    assert list(days.values_list(*names)) == before
