"""Spans of time at the edges of days, months, years and clocks."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from console import usage_query
from console.time_range import (
    TimeRange,
    instant,
    moment_text,
    time_control,
    time_range_read,
    zone_of,
)

NOW = datetime(2026, 12, 1, 3, 30, tzinfo=UTC)


def read(zone: str = "UTC", now: datetime = NOW, **query: str) -> TimeRange:
    asked = {name.rstrip("_"): value for name, value in query.items()}
    return time_range_read(asked, zone=ZoneInfo(zone), now=now)


def days(zone: str, now: datetime = NOW, **query: str) -> TimeRange:
    asked = {name.rstrip("_"): value for name, value in query.items()}
    return time_range_read(
        asked,
        zone=ZoneInfo(zone),
        now=now,
        usual="30d",
        spans=usage_query.SPANS,
        by_day=True,
    )


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "since", "until"),
    [
        ("UTC", "2026-12-31T00:00", "2027-01-01T00:00"),
        ("Asia/Shanghai", "2026-12-30T16:00", "2026-12-31T16:00"),
        ("America/Los_Angeles", "2026-12-31T08:00", "2027-01-01T08:00"),
        ("Asia/Kolkata", "2026-12-30T18:30", "2026-12-31T18:30"),
    ],
)
def test_the_last_day_of_a_year_is_that_of_the_zone(
    zone: str, since: str, until: str
) -> None:
    found = days(zone, from_="2026-12-31", to="2026-12-31")
    assert (found.since, found.until) == (utc(since), utc(until))
    assert found.days == (date(2026, 12, 31), date(2026, 12, 31))
    assert not found.errors


@pytest.mark.parametrize(
    ("zone", "first", "last"),
    [
        ("UTC", date(2026, 11, 25), date(2026, 12, 1)),
        ("Asia/Shanghai", date(2026, 11, 25), date(2026, 12, 1)),
        ("America/Los_Angeles", date(2026, 11, 24), date(2026, 11, 30)),
    ],
)
def test_today_is_that_of_the_zone_across_the_edge_of_a_month(
    zone: str, first: date, last: date
) -> None:
    assert days(zone, range="7d").days == (first, last)


def test_a_day_on_which_clocks_change_has_23_or_25_hours() -> None:
    spring = days("Europe/Berlin", from_="2026-03-29", to="2026-03-29")
    autumn = days("Europe/Berlin", from_="2026-10-25", to="2026-10-25")
    assert spring.since and spring.until and autumn.since and autumn.until
    assert (spring.until - spring.since).total_seconds() == 23 * 3600
    assert (autumn.until - autumn.since).total_seconds() == 25 * 3600


def test_a_wall_time_that_is_twice_or_never_takes_nothing_away() -> None:
    twice = read("Europe/Berlin", from_="2026-10-25T02:30", to="2026-10-25T02:30")
    assert (twice.since, twice.until) == (
        utc("2026-10-25T00:30"),
        utc("2026-10-25T01:30"),
    )
    never = read("Europe/Berlin", from_="2026-03-29T02:30", to="2026-03-29T02:30")
    assert (never.since, never.until) == (
        utc("2026-03-29T00:30"),
        utc("2026-03-29T01:30"),
    )
    once = instant(datetime(2026, 7, 1, 12), ZoneInfo("Asia/Kolkata"))
    assert once == utc("2026-07-01T06:30")


def test_an_offset_in_the_address_outweighs_the_zone() -> None:
    found = read(from_="2026-11-30T08:00+08:00", to="2026-11-30T08:00Z")
    assert (found.since, found.until) == (
        utc("2026-11-30T00:00"),
        utc("2026-11-30T08:00"),
    )


def test_the_zone_of_the_address_outweighs_that_of_the_person() -> None:
    found = read("Asia/Shanghai", zone_="America/Los_Angeles", from_="2026-11-30")
    assert found.since == utc("2026-11-30T08:00")
    assert found.given == {"from": "2026-11-30", "zone": "America/Los_Angeles"}


def test_what_is_not_understood_is_said_beside_its_field() -> None:
    bad = read(from_="yesterday", to="2026-11-30", zone_="Mars/Olympus")
    assert bad.errors.keys() == {"from", "zone"} and bad.since is None
    assert "yesterday" in bad.errors["from"]
    backwards = read(from_="2026-12-01", to="2026-11-30")
    assert backwards.errors.keys() == {"to"} and backwards.name == ""
    empty = read(from_="2026-12-01T10:00", to="2026-12-01T10:00")
    assert empty.errors.keys() == {"to"}
    assert read(range="5y").errors.keys() == {"range"}
    for zone in ("../../etc/passwd", "\0", "x" * 5000, "/etc/localtime", "Europe"):
        assert read(zone_=zone).errors.keys() == {"zone"}


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/Los_Angeles", "UTC"])
def test_the_ends_of_the_calendar_are_clamped(zone: str) -> None:
    found = days(zone, from_="0001-01-01", to="9999-12-31")
    assert found.since and found.until and not found.errors
    assert found.days and found.days[0].year <= 1970
    assert found.days[1].year == 9999
    assert not read(zone, from_="0001-01-01T00:00+14:00").errors


def test_a_quick_range_goes_on_and_an_old_name_of_it_still_works() -> None:
    found = read(range="6h")
    assert (found.since, found.until) == (utc("2026-11-30T21:30"), None)
    assert read(last="6h").given == {"range": "6h"}


def test_a_choice_keeps_the_other_values_of_the_address() -> None:
    zone = ZoneInfo("Asia/Shanghai")
    found = read("Asia/Shanghai", from_="2026-11-30T08:00")
    control = time_control(found, {"team": "a&b"}, own_zone=zone, all_words="all")
    assert control.from_text == "2026-11-30T08:00:00" and control.to_text == ""
    queries = [choice.query for choice in control.quick]
    assert queries[0] == "team=a%26b&zone=Asia%2FShanghai"
    assert "team=a%26b&range=1h&zone=Asia%2FShanghai" in queries
    assert [choice.words for choice in control.zones if choice.current] == [zone.key]
    assert not any(choice.current for choice in control.quick)


def test_an_instant_names_its_distance_from_utc() -> None:
    at = utc("2026-11-01T09:30")
    for zone, shown in (
        ("UTC", "2026-11-01 09:30:00 UTC"),
        ("Asia/Shanghai", "2026-11-01 17:30:00 UTC+8"),
        ("Asia/Kolkata", "2026-11-01 15:00:00 UTC+5:30"),
        ("America/Los_Angeles", "2026-11-01 01:30:00 UTC\u22128"),
    ):
        assert moment_text(at, ZoneInfo(zone)) == shown


def test_a_person_without_a_zone_or_with_a_lost_one_reads_utc() -> None:
    class Person:
        time_zone = ""

    person = Person()
    assert zone_of(person).key == zone_of(None).key == "UTC"
    person.time_zone = "Gone/Away"
    assert zone_of(person).key == "UTC"
    person.time_zone = "Asia/Kolkata"
    assert zone_of(person).key == "Asia/Kolkata"
