"""Rows from the stream: each once, and what is missing is counted."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import redis
from django.db import connection, connections
from django.utils import timezone

from cluster.actor import Actor
from routing.contracts import names
from routing.contracts.outcome import outcome_decode, outcome_encode
from routing.models import ApiKey, OutcomeRecord, TelemetryCursor, TelemetrySource
from routing.services import ingest as ingest_module
from routing.services import key_issue, outcome_stream, outcomes_ingest, team_create
from routing.services.outcome_rows import COLUMNS
from routing.services.outcome_stream import stream_delete
from tests.routing.gateway_sender import Sender, append, request_id
from tests.services import Valkey

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def sender() -> Sender:
    return Sender()


def source(sender: Sender) -> TelemetrySource:
    return TelemetrySource.objects.get(pk=sender.id)


def foreign() -> int:
    return TelemetryCursor.objects.get(pk=1).foreign


def ack(valkey: redis.Redis, sender: Sender) -> int:
    return int(valkey.hget(names.OUTCOMES_ACKS, sender.id) or 0)


def test_the_rows_have_every_column_and_the_whole_outcome(sender: Sender) -> None:
    assert sorted(COLUMNS) == sorted(f.attname for f in OutcomeRecord._meta.fields)
    outcome = sender.outcome(status=499, code="client_disconnected", path="/\0ü\\u0000")
    sender.append(1, [outcome_encode(outcome)])
    assert outcomes_ingest() == 1
    row = OutcomeRecord.objects.get()
    assert row.id == uuid.UUID(hex=outcome.request_id)
    assert outcome_decode(bytes(row.body)) == outcome
    assert row.at.timestamp() == pytest.approx(outcome.at, abs=1e-5)
    for name in set(COLUMNS) - {"id", "at", "slow", "attempts", "body"}:
        assert getattr(row, name) == getattr(outcome, name)
    assert (row.attempts, row.slow) == (1, False)


def test_what_was_taken_is_acknowledged_and_leaves_the_stream(
    valkey: redis.Redis, sender: Sender
) -> None:
    sender.send(3)
    sender.send(2)
    assert outcomes_ingest() == 5
    assert source(sender).last_outcome == ack(valkey, sender) == 5
    assert valkey.xlen(names.OUTCOMES) == 0
    assert valkey.get(names.OUTCOMES_BYTES) == b"0"
    assert outcomes_ingest() == 0


@pytest.mark.parametrize(
    ("changes", "slow"),
    [
        ({"streamed": True, "first_content_ms": 5_000.0}, False),
        ({"streamed": True, "first_content_ms": 5_001.0, "duration_ms": 5_100.0}, True),
        (
            {"streamed": True, "first_content_ms": None, "duration_ms": 5_001.0},
            True,
        ),
        ({"first_content_ms": 9_000.0, "duration_ms": 9_100.0}, False),
        ({"duration_ms": 30_000.0}, False),
        ({"duration_ms": 30_001.0}, True),
    ],
)
def test_slow_is_decided_when_the_row_is_written(
    sender: Sender, changes: dict[str, Any], slow: bool
) -> None:
    sender.send(1, **changes)
    outcomes_ingest()
    assert OutcomeRecord.objects.get().slow is slow


def test_more_than_one_read_holds_is_taken_within_the_budget(sender: Sender) -> None:
    for _ in range(150):
        sender.send(20)
    assert outcomes_ingest(budget_s=60) == 3_000
    assert OutcomeRecord.objects.count() == 3_000


def test_batches_that_are_sent_again_add_nothing(sender: Sender) -> None:
    first, lines = sender.send(4)
    outcomes_ingest()
    sender.append(first, lines)
    _, more = sender.batch(2)
    # Sent again together with what is new.
    sender.append(3, [*lines[2:], *more])
    assert outcomes_ingest() == 2
    assert OutcomeRecord.objects.count() == source(sender).last_outcome == 6
    assert source(sender).lost == foreign() == 0


def test_numbers_that_never_came_are_lost_and_say_when(sender: Sender) -> None:
    sender.batch(7)
    sender.send(1)
    sender.batch(5)
    sender.send(2)
    outcomes_ingest()
    found = source(sender)
    assert (found.last_outcome, found.lost) == (15, 12)
    assert found.lost_at is not None
    assert timezone.now() - found.lost_at < timedelta(minutes=1)


def test_what_the_bound_pushed_out_of_the_stream_is_counted(sender: Sender) -> None:
    for _ in range(10):
        first, lines = sender.batch(10)
        fields = {"gateway": sender.id, "first": first, "lines": b"\n".join(lines)}
        append(fields, most=20_000)
    rows = outcomes_ingest()
    assert 0 < rows < 100
    assert source(sender).lost == 100 - rows
    assert source(sender).last_outcome == 100


def test_each_gateway_has_numbers_of_its_own(valkey: redis.Redis) -> None:
    one, other = Sender("gw-one"), Sender("gw-other")
    one.send(3)
    other.send(5)
    one.send(2)
    assert outcomes_ingest() == 10
    assert ack(valkey, one) == ack(valkey, other) == 5
    assert source(one).lost == source(other).lost == 0


# Bad input -----------------------------------------------------------------------


def strange(sender: Sender, **changes: Any) -> bytes:
    """A line that decodes and yet is none."""
    raw = msgspec.json.decode(outcome_encode(sender.outcome()))
    return msgspec.json.encode(raw | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"request_id": "not-a-uuid"},
        {"request_id": "G" * 32},
        {"gateway": "gw-another"},
        {"model": "m" * 101},
        {"model": "m\0"},
        {"replica": "r" * 221},
        {"team": "t" * 64},
        {"key": "k" * 13},
        {"code": "c" * 41},
        {"status": -1},
        {"status": 40_000},
        {"generation": 2**31},
        {"generation": -1},
        {"prompt_tokens": 2**63},
        {"completion_tokens": -1},
        {"duration_ms": -0.1},
        {"duration_ms": 1e300},
        {"first_content_ms": -5},
        {"at": 1e18},
        {"at": -1e18},
        {"at": "noon"},
        {"ending": "unheard_of"},
        {"path": "p" * 70_000},
    ],
)
def test_an_impossible_line_is_skipped_and_its_neighbours_are_taken(
    sender: Sender, changes: dict[str, Any]
) -> None:
    good = [outcome_encode(sender.outcome()) for _ in range(2)]
    sender.append(1, [good[0], strange(sender, **changes), good[1]])
    assert outcomes_ingest() == 2
    assert foreign() == 1
    assert (source(sender).last_outcome, source(sender).lost) == (3, 0)


@pytest.mark.parametrize(
    "line", [b"", b"{", b"null", b"[" * 60_000, b'{"x":' + b"[" * 60_000, b"\xff\xfe"]
)
def test_junk_between_lines_is_skipped(sender: Sender, line: bytes) -> None:
    good = [outcome_encode(sender.outcome()) for _ in range(2)]
    sender.append(1, [good[0], line, good[1]])
    assert outcomes_ingest() == 2
    assert foreign() == 1


def test_foreign_entries_are_counted_removed_and_stop_nothing(
    valkey: redis.Redis, sender: Sender
) -> None:
    entries: list[dict[Any, Any]] = [
        {"hello": "world"},
        {"gateway": "g" * 65, "first": 1, "lines": b"{}"},
        {"gateway": "gw", "first": 0, "lines": b"{}"},
        {"gateway": "gw", "first": "x" * 5_000, "lines": b"{}"},
        {"gateway": "gw", "first": 10**30, "lines": b"{}"},
        {"gateway": "gé", "first": 1, "lines": b"{}"},
        {"gateway": "gw", "first": 1, "lines": b""},
    ]
    for fields in entries:
        valkey.xadd(names.OUTCOMES, fields)
    sender.send(2)
    assert outcomes_ingest() == 2
    assert foreign() == len(entries)
    assert valkey.xlen(names.OUTCOMES) == 0
    assert not TelemetrySource.objects.exclude(pk=sender.id).exists()


def test_an_impossible_leap_of_numbers_does_not_close_the_door_to_the_real_ones(
    sender: Sender,
) -> None:
    sender.send(1)
    sender.append(2**62, [outcome_encode(sender.outcome())])
    sender.send(1)
    assert outcomes_ingest() == 2
    assert (source(sender).last_outcome, source(sender).lost) == (2, 0)
    assert foreign() == 1


def test_one_request_id_from_two_gateways_is_one_row_and_breaks_no_batch() -> None:
    one, other = Sender("gw-one"), Sender("gw-other")
    twice = request_id()
    one.send(1, request_id=twice)
    other.send(2)
    other.send(1, request_id=twice)
    other.send(1)
    assert outcomes_ingest() == 5
    assert OutcomeRecord.objects.count() == 4
    assert source(other).last_outcome == 4
    assert OutcomeRecord.objects.get(pk=uuid.UUID(hex=twice)).gateway == "gw-one"


def test_something_else_under_the_streams_name_is_an_error_and_then_forgotten(
    valkey: redis.Redis, sender: Sender
) -> None:
    valkey.set(names.OUTCOMES, "not a stream")
    with pytest.raises(redis.ResponseError):
        outcomes_ingest()
    valkey.delete(names.OUTCOMES)
    sender.send(1)
    assert outcomes_ingest() == 1


# Redis begins anew ---------------------------------------------------------------


def test_an_emptied_redis_is_read_from_its_beginning(
    valkey: redis.Redis, sender: Sender
) -> None:
    first, lines = sender.send(3)
    outcomes_ingest()
    before = TelemetryCursor.objects.get(pk=1)
    valkey.flushall()
    # The gateway sends again what it never saw acknowledged.
    sender.append(first, lines)
    sender.send(2)
    assert outcomes_ingest() == 2
    assert TelemetryCursor.objects.get(pk=1).epoch != before.epoch
    assert OutcomeRecord.objects.count() == 5
    assert source(sender).lost == 0
    assert ack(valkey, sender) == 5


def test_a_clock_that_jumped_back_hides_nothing(
    valkey: redis.Redis, sender: Sender
) -> None:
    """The stream was lost, and its new ids lie below the cursor, in the same epoch."""
    sender.send(1)
    outcomes_ingest()
    valkey.delete(names.OUTCOMES)
    ahead = int(time.time() * 1000) + 3_600_000
    TelemetryCursor.objects.filter(pk=1).update(last_id=f"{ahead}-0")
    valkey.xadd(names.OUTCOMES, {"foreign": "entry"})
    sender.send(3)
    assert outcomes_ingest() == 3
    assert foreign() == 1
    assert outcomes_ingest() == 0
    sender.send(1)
    assert outcomes_ingest() == 1


def test_a_redis_that_was_killed_goes_on_where_it_was(
    valkey_server: Valkey, valkey: redis.Redis, sender: Sender
) -> None:
    sender.send(3)
    valkey_server.kill()
    try:
        with pytest.raises(redis.RedisError):
            outcomes_ingest()
    finally:
        valkey_server.start()
    sender.send(2)
    assert outcomes_ingest() == 5
    assert source(sender).lost == 0


# Two at once, and halfway --------------------------------------------------------


def test_what_was_committed_but_not_acknowledged_is_made_good(
    valkey: redis.Redis, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash between the two; foreign entries are counted once too."""
    valkey.xadd(names.OUTCOMES, {"foreign": "entry"})
    sender.send(3)
    with monkeypatch.context() as patch:
        patch.setattr(ingest_module, "_acknowledge", _fail)
        with pytest.raises(redis.ConnectionError):
            outcomes_ingest()
    assert OutcomeRecord.objects.count() == 3
    assert (ack(valkey, sender), valkey.xlen(names.OUTCOMES)) == (0, 2)
    assert outcomes_ingest() == 0
    assert (ack(valkey, sender), valkey.xlen(names.OUTCOMES)) == (3, 0)
    assert foreign() == 1


def _fail(*_: object) -> None:
    raise redis.ConnectionError("gone")


def test_of_two_ingesters_that_read_the_same_one_gives_up(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender.send(3)
    outcomes_ingest()
    sender.send(5)
    meanwhile: list[int] = []
    read = outcome_stream.stream_read

    def read_slowly() -> Any:
        found = read()
        if not meanwhile:
            meanwhile.append(0)
            meanwhile[0] = outcomes_ingest()
        return found

    monkeypatch.setattr(outcome_stream, "stream_read", read_slowly)
    assert outcomes_ingest() == 0
    assert meanwhile == [5]
    assert OutcomeRecord.objects.count() == 8


def test_four_ingesters_at_once_take_each_row_once(
    valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real threads with connections of their own, and none that deletes in time."""
    senders = [Sender(f"gw-{number}") for number in range(3)]
    for _ in range(30):
        for each in senders:
            each.send(10)
    deletes = iter(range(1_000))

    def delete_seldom(entries: Any) -> None:
        if next(deletes) % 3 == 0:
            stream_delete(entries)

    monkeypatch.setattr(outcome_stream, "stream_delete", delete_seldom)
    monkeypatch.setattr(ingest_module, "_LINES_MOST", 50)
    taken: list[int] = []
    failures: list[BaseException] = []

    def ingest() -> None:
        try:
            for _ in range(40):
                taken.append(outcomes_ingest(budget_s=5))
        except BaseException as error:
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ingest) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not failures
    assert OutcomeRecord.objects.count() == sum(taken) == 900
    for each in senders:
        assert (source(each).last_outcome, source(each).lost) == (300, 0)


# Keys ----------------------------------------------------------------------------


@pytest.fixture
def key(actor: Actor) -> ApiKey:
    team = team_create(slug="red", actor=actor)
    return key_issue(team=team, name="one", actor=actor)[0]


def used(key: ApiKey) -> tuple[float, str]:
    key.refresh_from_db()
    assert key.last_used_at is not None
    return key.last_used_at.timestamp(), key.last_used_from


def test_a_key_says_when_and_from_where_it_was_used_last(
    sender: Sender, key: ApiKey
) -> None:
    now = time.time()
    first, lines = sender.batch(1, key=key.id, at=now - 90, client="192.0.2.1")
    lines += sender.batch(1, key=key.id, at=now - 60, client="2001:db8::1")[1]
    lines += sender.batch(1, key=key.id, at=now - 80, client="192.0.2.2")[1]
    sender.append(first, lines)
    outcomes_ingest()
    at, client = used(key)
    assert at == pytest.approx(now - 60, abs=1e-3)
    assert client == "2001:db8::1"


def test_a_key_is_written_at_most_every_30_seconds_and_never_backwards(
    sender: Sender, key: ApiKey
) -> None:
    now = time.time()
    for at, expected in [(-100, -100), (-71, -100), (-200, -100), (-70, -70)]:
        sender.send(1, key=key.id, at=now + at, client="c" * 90)
        outcomes_ingest()
        used_at, client = used(key)
        assert used_at == pytest.approx(now + expected, abs=1e-3)
        assert client == "c" * 45


def test_a_gateway_whose_clock_is_ahead_does_not_use_a_key_in_the_future(
    sender: Sender, key: ApiKey
) -> None:
    sender.send(1, key=key.id, at=time.time() + 86_400)
    sender.send(1, key="unknown-key1")
    outcomes_ingest()
    assert used(key)[0] <= time.time()


def test_the_cost_of_a_batch_does_not_grow_with_its_rows_in_queries(
    sender: Sender, django_assert_max_num_queries: Any
) -> None:
    outcomes_ingest()
    sender.send(500)
    with django_assert_max_num_queries(30 if connection.vendor == "sqlite" else 20):
        assert outcomes_ingest() == 500
