"""Requests, errors, tokens and latencies of a model over time."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.contracts.outcome import Ending, Outcome
from routing.selectors import series
from routing.selectors.buckets import DAY, HOUR, MINUTE, buckets_make
from routing.selectors.series import model_counts, model_latencies, quantiles
from routing.selectors.usage import ERRORS
from tests import outcomes
from tests.minutes import minutes_count

NOW = datetime(2026, 11, 30, 12, 34, 56, tzinfo=UTC)
ZONES = [ZoneInfo(name) for name in ("UTC", "Asia/Kolkata", "Europe/Berlin")]


@given(
    since=st.datetimes(datetime(2024, 1, 1), datetime(2026, 11, 30)),
    length_s=st.integers(0, 500 * 86_400),
    zone=st.sampled_from(ZONES),
)
def test_parts_hold_the_whole_span_and_are_few(
    since: datetime, length_s: int, zone: ZoneInfo
) -> None:
    begin = since.replace(tzinfo=UTC)
    until = min(begin + timedelta(seconds=length_s), NOW)
    buckets = buckets_make(since=begin, until=until, now=NOW, zone=zone)
    assert 1 <= len(buckets) <= 402
    assert list(buckets.edges) == sorted(set(buckets.edges))
    assert buckets.edges[-1] >= until
    assert buckets.edges[0] <= max(begin, until - 400 * DAY)
    for place, start in enumerate(buckets.starts):
        assert buckets.place(start) == place
        if buckets.step == DAY:
            assert start.astimezone(zone).hour in (0, 1)
    assert buckets.place(buckets.edges[-1]) is None


@pytest.mark.parametrize(
    ("span", "ago", "step"),
    [
        (HOUR, 0 * DAY, MINUTE),
        (6 * HOUR, 0 * DAY, 5 * MINUTE),
        (DAY, 0 * DAY, HOUR),
        (7 * DAY, 0 * DAY, HOUR),
        (30 * DAY, 0 * DAY, DAY),
        (HOUR, 20 * DAY, HOUR),
    ],
)
def test_the_size_of_parts_follows_the_span_and_what_is_kept(
    span: timedelta, ago: timedelta, step: timedelta
) -> None:
    until = NOW - ago
    buckets = buckets_make(since=until - span, until=until, now=NOW, zone=UTC)
    assert buckets.step == step
    assert buckets.is_partial is (not ago)


def many(count: int, since: datetime, span: timedelta) -> list[Outcome]:
    rng = random.Random(7)
    return [
        outcomes.outcome(
            (since + span * rng.random()).timestamp(),
            duration_ms=0.0,
            model=rng.choice(["qwen", "qwen", "other"]),
            version=rng.choice(["v1", "v2"]),
            ending=rng.choice(list(Ending)),
            completion_tokens=rng.randrange(100),
            first_content_ms=rng.choice([None, 100.0 + rng.random() * 900]),
        )
        for _n in range(count)
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("span", [HOUR, 6 * HOUR, DAY, 20 * DAY])
def test_the_sums_over_all_parts_are_the_counts(span: timedelta) -> None:
    buckets = buckets_make(since=NOW - span, until=NOW, now=NOW, zone=UTC)
    whole = buckets.edges[-1] - buckets.edges[0]
    found = many(300, buckets.edges[0], whole)
    beyond = many(20, buckets.edges[-1] + HOUR, HOUR)
    outcomes.count([*found, *beyond])
    minutes_count([*found, *beyond])
    mine = [one for one in found if one.model == "qwen"]
    counts = model_counts(model="qwen", buckets=buckets)
    requests = Counter(one.version for one in mine)
    assert {name: sum(values) for name, values in counts.requests.items()} == requests
    for name, values in counts.tokens_out.items():
        of = [one.completion_tokens or 0 for one in mine if one.version == name]
        assert sum(values) == sum(of)
    bad = Counter(str(one.ending) for one in mine if one.ending in ERRORS)
    assert {name: sum(values) for name, values in counts.errors.items()} == bad
    at = buckets.place(datetime.fromtimestamp(mine[0].at, UTC))
    assert at is not None and counts.requests[mine[0].version][at] > 0


@pytest.mark.django_db
def test_latencies_are_the_quantiles_of_their_part() -> None:
    buckets = buckets_make(since=NOW - DAY, until=NOW, now=NOW, zone=UTC)
    found = many(900, buckets.edges[0], NOW - buckets.edges[0])
    outcomes.keep(*found)
    latencies = model_latencies(model="qwen", buckets=buckets)
    mine = [one for one in found if one.model == "qwen"]
    assert latencies.whole and latencies.read == len(mine)
    seen = 0
    for version, values in latencies.ttft.items():
        for place, one in enumerate(values):
            of = [
                each.first_content_ms
                for each in mine
                if each.version == version
                and each.first_content_ms is not None
                and buckets.place(datetime.fromtimestamp(each.at, UTC)) == place
            ]
            assert one == (quantiles(of) if of else None)
            seen += len(of)
    assert seen == sum(one.first_content_ms is not None for one in mine)


@pytest.mark.django_db
def test_a_sample_is_bounded_and_touches_every_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(series, "SAMPLE_ROWS", 240)
    buckets = buckets_make(since=NOW - HOUR, until=NOW, now=NOW, zone=UTC)
    start = buckets.edges[0].timestamp()
    # A flood in one minute, one request in every other.
    flood = [outcomes.outcome(start + n / 10) for n in range(500)]
    calm = [outcomes.outcome(start + 60 * n + 1) for n in range(1, 60)]
    outcomes.keep(*flood, *calm)
    latencies = model_latencies(model="qwen", buckets=buckets)
    assert not latencies.whole and latencies.read <= 240
    assert all(latencies.ttft["v1"][:60])


def test_a_tail_needs_enough_values() -> None:
    few, enough = quantiles([3.0, 1.0, 2.0]), quantiles([float(n) for n in range(100)])
    assert (few.p50, few.p95, few.p99) == (2.0, None, None)
    assert (enough.p50, enough.p95, enough.p99) == (49.0, 94.0, 98.0)
