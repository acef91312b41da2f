"""The books of gateway processes that are gone."""

from __future__ import annotations

import msgspec
import pytest
import redis

from routing.contracts import names
from routing.models import TelemetrySource
from routing.services import counts_ingest, outcomes_ingest, sources, sources_close
from tests.routing.gateway_sender import MINUTE, Sender, cell, figures

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def sender() -> Sender:
    return Sender()


def source(sender: Sender) -> TelemetrySource:
    return TelemetrySource.objects.get(pk=sender.id)


def close() -> list[str]:
    """Two looks that wait for nobody; who was closed by either."""
    return sources_close(close_after_s=0) + sources_close(close_after_s=0)


def test_a_gateway_that_died_leaves_what_never_came_and_what_was_open(
    sender: Sender,
) -> None:
    sender.send(4)
    sender.batch(3)
    sender.live(in_flight=5)
    outcomes_ingest()
    assert sources_close() == []
    sender.die()
    assert close() == [sender.id]
    found = source(sender)
    assert (found.last_outcome, found.lost, found.unfinished) == (4, 3, 5)
    assert found.closed_at is not None and found.lost_at is not None
    assert close() == []
    assert (source(sender).lost, source(sender).unfinished) == (3, 5)


def test_nothing_is_closed_before_it_was_away_for_its_time(sender: Sender) -> None:
    sender.send(1)
    sender.live()
    outcomes_ingest()
    sources_close()
    sender.die()
    assert sources_close() == sources_close() == []
    assert source(sender).closed_at is None


def test_outcomes_after_the_last_record_ended_requests_that_it_knew_open(
    sender: Sender,
) -> None:
    sender.send(4)
    sender.live(in_flight=3)
    sources_close()
    sender.send(2)
    outcomes_ingest()
    sender.die()
    close()
    assert (source(sender).lost, source(sender).unfinished) == (0, 1)


def test_a_gateway_that_was_told_to_stop_leaves_nothing_open(sender: Sender) -> None:
    sender.send(4)
    sender.live(in_flight=3)
    sources_close()
    sender.leave()
    outcomes_ingest()
    assert close() == [sender.id]
    assert (source(sender).lost, source(sender).unfinished) == (0, 0)


def test_rows_that_wait_in_the_stream_are_not_lost(sender: Sender) -> None:
    sender.send(4)
    sender.live()
    sources_close()
    sender.die()
    assert close() == []
    outcomes_ingest()
    assert close() == [sender.id]
    assert (source(sender).last_outcome, source(sender).lost) == (4, 0)


def test_a_gateway_that_was_only_cut_off_has_its_books_opened_again(
    sender: Sender,
) -> None:
    sender.send(4)
    first, lines = sender.batch(6)
    sender.live(in_flight=1)
    outcomes_ingest()
    sources_close()
    sender.die()
    close()
    assert source(sender).lost == 6
    # It comes back; of what it kept, two were too many.
    sender.live()
    sender.append(first + 2, lines[2:])
    outcomes_ingest()
    found = source(sender)
    assert (found.last_outcome, found.lost, found.unfinished) == (10, 2, 0)
    assert found.closed_at is None
    assert close() == []


def test_books_that_were_opened_by_what_came_late_are_closed_again(
    sender: Sender,
) -> None:
    first, lines = sender.batch(6)
    sender.live(in_flight=1)
    sources_close()
    sender.die()
    close()
    assert source(sender).lost == 6
    sender.append(first, lines)
    outcomes_ingest()
    assert (source(sender).lost, source(sender).lost_at) == (0, None)
    assert close() == [sender.id]
    assert (source(sender).lost, source(sender).unfinished) == (0, 1)


def test_an_emptied_redis_closes_nobody_who_lives(
    valkey: redis.Redis, sender: Sender
) -> None:
    sender.send(2)
    sender.live()
    outcomes_ingest()
    sources_close()
    valkey.flushall()
    # Before the gateway has renewed its lease.
    assert sources_close() == []
    sender.live()
    assert close() == []
    assert source(sender).closed_at is None


def test_one_that_died_with_an_emptied_redis_is_closed_without_knowledge(
    valkey: redis.Redis, sender: Sender
) -> None:
    sender.send(2)
    outcomes_ingest()
    valkey.flushall()
    assert close() == [sender.id]
    assert (source(sender).lost, source(sender).unfinished) == (0, 0)


def test_after_a_long_time_without_a_look_absence_begins_anew(
    valkey: redis.Redis, sender: Sender
) -> None:
    """Redis was away for minutes: every lease is over, and nobody died."""
    sender.send(1)
    sender.live()
    outcomes_ingest()
    sources_close()
    sender.die()
    sources_close()
    long_ago = float(valkey.hget(names.GATEWAYS_LAST, "#looked") or 0) - 600
    last = valkey.hget(names.GATEWAYS_LAST, sender.id)
    assert isinstance(last, bytes)
    absent = sources._last_decode({b"gw": last})["gw"]
    old = msgspec.structs.replace(absent, absent_at=long_ago)
    valkey.hset(
        names.GATEWAYS_LAST,
        mapping={"#looked": long_ago, sender.id: msgspec.json.encode(old)},
    )
    assert sources_close() == []
    sender.live()
    assert close() == []


def test_traces_are_removed_after_an_hour_unless_counts_wait(
    valkey: redis.Redis, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FORGET_AFTER_S", 0)
    sender.send(1)
    sender.live()
    sender.count({cell(): figures(1)})
    outcomes_ingest()
    sources_close()
    sender.die()
    close()
    assert valkey.hlen(names.counts(sender.id)) == 2
    counts_ingest(now=60 * MINUTE)
    sources_close(close_after_s=0)
    assert valkey.keys("sluice:counts:*") == []
    assert valkey.scard(names.COUNTS_GATEWAYS) == 0
    assert valkey.hlen(names.COUNTS_ACKS) == valkey.hlen(names.OUTCOMES_ACKS) == 0
    assert valkey.zcard(names.GATEWAYS) == 0
    assert valkey.hkeys(names.GATEWAYS_LAST) == [b"#looked"]
    # What remains is in the database, and it is not begun again.
    assert close() == []
    assert valkey.hkeys(names.GATEWAYS_LAST) == [b"#looked"]


def test_strange_records_and_ids_stop_nothing(
    valkey: redis.Redis, sender: Sender
) -> None:
    valkey.zadd(names.GATEWAYS, {"g" * 65: 1, "é": 1, "junk": 1, "huge": 1})
    valkey.set(names.gateway("junk"), b"{")
    valkey.hset(names.GATEWAYS_LAST, mapping={"other": "[]", b"\xfe": "{}"})
    huge = Sender("huge")
    huge.live(emitted=10**30)
    sender.send(1)
    sender.live()
    outcomes_ingest()
    sources_close()
    huge.die()
    sender.die()
    assert set(close()) == {"huge", sender.id}
    assert source(sender).lost == 0
    assert source(huge).lost == 10**9
