"""Counts from the gateways: absolute figures that add up whatever is read twice."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from django.db import connections
from django.db.models import Sum

from routing.contracts import names
from routing.contracts.counts import Cell, Figures, counts_fields
from routing.contracts.outcome import Ending
from routing.models import (
    GenerationServed,
    TelemetryCursor,
    TelemetrySource,
    TrafficMinute,
    UsageDay,
    UsageHour,
)
from routing.services import counts_ingest, ingest_counts
from tests.routing.gateway_sender import MINUTE, Sender, cell, figures

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def sender() -> Sender:
    return Sender()


def ingest() -> int:
    return counts_ingest(now=time.time())


def waiting(valkey: redis.Redis, sender: Sender) -> set[Any]:
    return set(valkey.hkeys(names.counts(sender.id)))


def ack(valkey: redis.Redis, sender: Sender) -> bytes | None:
    found = valkey.hget(names.COUNTS_ACKS, sender.id)
    assert found is None or isinstance(found, bytes)
    return found


def totals(model: type[TrafficMinute | UsageHour | UsageDay]) -> tuple[int, int]:
    sums = model.objects.aggregate(n=Sum("requests"), tokens=Sum("prompt_tokens"))
    return sums["n"] or 0, sums["tokens"] or 0


def served() -> dict[tuple[str, str], int]:
    rows = GenerationServed.objects.values("first_version", "version")
    sums = rows.annotate(n=Sum("requests")).order_by()
    return {(row["first_version"], row["version"]): row["n"] for row in sums}


def test_every_figure_of_a_cell_is_stored(sender: Sender) -> None:
    sent = Figures(*range(1, 12))
    sender.count({cell(): list(sent)})
    assert ingest() == 1
    minute, hour = TrafficMinute.objects.get(), UsageHour.objects.get()
    day = UsageDay.objects.get()
    for row in (minute, hour, day):
        assert Figures(*(getattr(row, name) for name in Figures._fields)) == sent
        assert (row.team, row.key, row.model) == ("red", "k" * 12, "qwen")
        assert row.ending == Ending.COMPLETED
    assert minute.gateway == sender.id
    assert minute.minute == datetime.fromtimestamp(60 * MINUTE, UTC)
    assert hour.hour == datetime.fromtimestamp(3_600 * (MINUTE // 60), UTC)
    assert day.day == hour.hour.date()


def test_absolute_figures_add_only_what_they_grew_by(sender: Sender) -> None:
    for requests in (3, 3, 10):
        sender.count({cell(): figures(requests)})
        ingest()
    assert totals(TrafficMinute) == totals(UsageHour) == totals(UsageDay) == (10, 100)
    assert served() == {("v1", "v1"): 10}


def test_minutes_keys_and_gateways_sum_up_in_the_hour(sender: Sender) -> None:
    other = Sender("gw-bbbbbbbbbbbb")
    minute = MINUTE - MINUTE % 60
    for each in (sender, other):
        each.count(
            {
                cell(minute=minute): figures(1),
                cell(minute=minute + 59): figures(2),
                cell(minute=minute - 1): figures(4),
                cell(minute=minute, key="other"): figures(8),
                cell(minute=minute, generation=4): figures(16),
            }
        )
    assert ingest() == 10
    assert TrafficMinute.objects.count() == 10
    rows = UsageHour.objects.order_by("hour", "key").values_list("key", "requests")
    assert list(rows) == [("k" * 12, 8), ("k" * 12, 38), ("other", 16)]


def test_only_drawn_requests_that_reached_a_replica_count_for_a_generation(
    sender: Sender,
) -> None:
    sender.count(
        {
            cell(): figures(1),
            cell(version="v2"): figures(2),
            cell(version="", ending=Ending.REFUSED): figures(4),
            cell(chosen=True): figures(8),
            cell(first_version="", version=""): figures(16),
            cell(ending=Ending.BROKEN): figures(32),
        }
    )
    ingest()
    assert served() == {("v1", "v1"): 33, ("v1", "v2"): 2}
    row = GenerationServed.objects.get(version="v2")
    assert (row.model, row.generation, row.gateway) == ("qwen", 3, sender.id)
    assert totals(UsageHour)[0] == 63


def test_what_is_stored_leaves_the_hash_and_is_acknowledged(
    valkey: redis.Redis, sender: Sender
) -> None:
    sender.count({cell(): figures(1)})
    sender.count({cell(minute=MINUTE - 1): figures(2)})
    ingest()
    assert waiting(valkey, sender) == {b"#seq"}
    assert ack(valkey, sender) == b"2"
    assert ingest() == 0
    sender.count({cell(): figures(5)})
    assert ingest() == 1
    assert (totals(TrafficMinute)[0], ack(valkey, sender)) == (7, b"3")


def test_a_cell_that_grew_while_it_was_stored_stays_in_the_hash(
    valkey: redis.Redis, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender.count({cell(): figures(1)})
    write = ingest_counts._write

    def write_while_it_grows(*arguments: Any) -> int | None:
        if sender.seq == 1:
            sender.count({cell(): figures(6)})
        return write(*arguments)

    monkeypatch.setattr(ingest_counts, "_write", write_while_it_grows)
    ingest()
    assert (totals(UsageHour)[0], ack(valkey, sender)) == (1, b"1")
    assert len(waiting(valkey, sender)) == 2
    ingest()
    assert (totals(UsageHour)[0], ack(valkey, sender)) == (6, b"2")


def test_what_was_committed_but_not_acknowledged_adds_nothing_again(
    valkey: redis.Redis, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender.count({cell(): figures(3)})
    with monkeypatch.context() as patch:
        patch.setattr(ingest_counts, "_delete", _fail)
        with pytest.raises(redis.ConnectionError):
            ingest()
    assert (totals(UsageHour)[0], ack(valkey, sender)) == (3, None)
    assert ingest() == 0
    assert (totals(UsageHour)[0], ack(valkey, sender)) == (3, b"1")
    assert waiting(valkey, sender) == {b"#seq"}


def _fail(*_: object) -> None:
    raise redis.ConnectionError("gone")


def test_an_emptied_redis_is_written_again_and_adds_nothing_twice(
    valkey: redis.Redis, sender: Sender
) -> None:
    sender.count({cell(): figures(3)})
    ingest()
    valkey.flushall()
    assert ingest() == 0
    sender.count({cell(): figures(4), cell(minute=MINUTE - 1): figures(9)})
    ingest()
    assert totals(TrafficMinute)[0] == totals(UsageHour)[0] == 13
    assert ack(valkey, sender) == b"2"


def test_an_older_read_takes_nothing_back(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another ingester commits between this one's read and its transaction."""
    sender.count({cell(): figures(3)})
    read = ingest_counts._read
    seen: list[int] = []

    def read_slowly(gateway: str, now: float) -> Any:
        found = read(gateway, now)
        if not seen:
            seen.append(1)
            sender.count({cell(): figures(9)})
            ingest()
        return found

    monkeypatch.setattr(ingest_counts, "_read", read_slowly)
    assert ingest() == 0
    assert totals(TrafficMinute)[0] == totals(UsageHour)[0] == 9


def test_more_than_one_transaction_holds_goes_in_chunks(
    valkey: redis.Redis, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_counts, "_CELLS_MOST", 10)
    cells = {
        cell(minute=MINUTE - n % 3, key=f"key{n:09d}"): figures(1) for n in range(95)
    }
    sender.count(cells)
    # No time for more than the first chunk: the write is not acknowledged.
    assert counts_ingest(now=time.time(), budget_s=0) == 10
    assert ack(valkey, sender) is None
    assert len(waiting(valkey, sender)) == 86
    assert ingest() == 85
    assert ack(valkey, sender) == b"1"
    assert totals(UsageHour)[0] == 95


def test_ingesters_at_once_count_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads with connections of their own, beside gateways that go on counting."""
    monkeypatch.setattr(ingest_counts, "_CELLS_MOST", 7)
    senders = [Sender(f"gw-{number}") for number in range(2)]
    done = threading.Event()
    failures: list[BaseException] = []

    def ingest_on() -> None:
        try:
            while not done.is_set():
                ingest()
        except BaseException as error:
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ingest_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    for requests in range(1, 31):
        for each in senders:
            each.count({cell(key=f"key{n}"): figures(requests) for n in range(20)})
    done.set()
    for thread in threads:
        thread.join(60)
    ingest()
    assert not failures
    assert totals(TrafficMinute) == totals(UsageHour) == (1_200, 12_000)
    assert served() == {("v1", "v1"): 1_200}


# Bad input -----------------------------------------------------------------------


def foreign() -> int:
    cursor = TelemetryCursor.objects.filter(pk=1).first()
    return cursor.foreign if cursor else 0


@pytest.mark.parametrize(
    "strange",
    [
        cell(model="m" * 101),
        cell(model="m\0"),
        cell(team="t" * 64),
        cell(key="k" * 13),
        cell(version="v" * 101),
        cell(first_version="v" * 101),
        cell(minute=-1),
        cell(minute=10**12),
        cell(generation=2**31),
        cell(generation=-1),
        cell(share_bp=10_001),
    ],
)
def test_an_impossible_cell_is_foreign_and_removed(
    valkey: redis.Redis, sender: Sender, strange: Cell
) -> None:
    sender.count({strange: figures(1), cell(): figures(2)})
    assert ingest() == 1
    assert foreign() == 1
    assert waiting(valkey, sender) == {b"#seq"}
    assert ingest() == 0
    assert foreign() == 1


@pytest.mark.parametrize("value", [-1, 10**15 + 1, 2**70])
def test_impossible_figures_are_foreign(sender: Sender, value: int) -> None:
    sender.count({cell(): figures(1, prompt_tokens=value)})
    assert ingest() == 0
    assert (foreign(), TrafficMinute.objects.count()) == (1, 0)


def test_fields_that_are_no_cells_are_foreign_and_removed(
    valkey: redis.Redis, sender: Sender
) -> None:
    sender.count({cell(): figures(2)})
    name = names.counts(sender.id)
    good = next(iter(counts_fields(1, {cell(key="x"): [1]})))
    valkey.hset(name, mapping={"junk": "1", b"\xff": b"\xfe", good: "[1", "[]": "[]"})
    assert ingest() == 1
    assert foreign() == 4
    assert waiting(valkey, sender) == {b"#seq"}


@pytest.mark.parametrize("seq", [10**30, -5, 2**62 + 1, "x"])
def test_an_impossible_number_of_a_write_stops_nothing(
    valkey: redis.Redis, sender: Sender, seq: Any
) -> None:
    sender.count({cell(): figures(2)})
    valkey.hset(names.counts(sender.id), "#seq", seq)
    assert ingest() == 1
    sender.count({cell(): figures(5)})
    assert ingest() == 1
    assert (totals(UsageHour)[0], ack(valkey, sender)) == (5, b"2")


def test_strange_members_and_strange_hashes_are_put_out_of_the_set(
    valkey: redis.Redis, sender: Sender
) -> None:
    valkey.sadd(names.COUNTS_GATEWAYS, "g" * 65, "", b"\xff", "wrong")
    valkey.set(names.counts("wrong"), "no hash")
    sender.count({cell(): figures(2)})
    assert ingest() == 1
    ingest()
    assert valkey.smembers(names.COUNTS_GATEWAYS) == {sender.id.encode()}
    assert foreign() == 4


def test_counts_older_than_their_minutes_are_kept_are_removed_and_not_taken(
    valkey: redis.Redis, sender: Sender
) -> None:
    sender.count({cell(minute=MINUTE - 8 * 1_440): figures(7), cell(): figures(1)})
    assert ingest() == 1
    assert totals(UsageHour)[0] == 1
    assert waiting(valkey, sender) == {b"#seq"}
    assert (foreign(), ack(valkey, sender)) == (0, b"1")


def test_a_gateway_with_counts_and_no_rows_is_a_source_too(sender: Sender) -> None:
    sender.count({cell(): figures(1)})
    ingest()
    source = TelemetrySource.objects.get()
    assert (source.pk, source.counts_seq, source.last_outcome) == (sender.id, 1, 0)
