"""One value that says what is lost, late or in trouble on the way to the database."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.db import OperationalError
from django.utils import timezone

from routing import services, tasks
from routing.contracts import names
from routing.models import TelemetryCursor, TelemetrySource
from routing.selectors import Alarm, telemetry_state
from tests.routing.gateway_sender import Sender
from tests.services import Valkey

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


def lose(name: str, **changes: Any) -> None:
    TelemetrySource.objects.create(gateway=name, **changes)


def ago(**span: float) -> Any:
    return timezone.now() - timedelta(**span)


def test_all_is_well_with_nothing_there_and_after_everything_was_taken() -> None:
    assert telemetry_state().alarms == ()
    Sender().send(3)
    tasks.outcomes_ingest()
    found = telemetry_state()
    assert not found.alarms and not found.sources
    assert (found.lag_s, found.stream_bytes, found.lost) == (0, 0, 0)


def test_what_waits_has_an_age_and_a_size(valkey: redis.Redis) -> None:
    _, lines = Sender().send(2)
    found = telemetry_state()
    assert found.lag_s is not None and 0 <= found.lag_s < 20
    assert found.stream_bytes == len(b"\n".join(lines))
    assert found.alarms == ()
    valkey.delete(names.OUTCOMES)
    old = int((time.time() - 31) * 1000)
    valkey.xadd(names.OUTCOMES, {"any": "thing"}, id=f"{old}-0")
    assert telemetry_state().alarms == (Alarm.LAG,)


def test_a_loss_is_an_alarm_for_an_hour_and_shown_for_a_day() -> None:
    lose("gw-1", lost=5, lost_at=ago(minutes=59))
    lose("gw-2", lost=7, lost_at=ago(hours=23))
    lose("gw-3", lost=9, lost_at=ago(hours=25))
    found = telemetry_state()
    assert (found.lost, found.alarms) == (12, (Alarm.LOST,))
    assert [source.pk for source in found.sources] == ["gw-1", "gw-2"]
    assert found.lost_at == found.sources[0].lost_at
    later = telemetry_state(now=timezone.now() + timedelta(minutes=2))
    assert (later.lost, later.alarms) == (12, ())


def test_requests_that_a_gateway_never_ended_are_an_alarm_for_an_hour() -> None:
    lose("gw-1", unfinished=2, closed_at=ago(minutes=59))
    lose("gw-2", unfinished=3, closed_at=ago(hours=2))
    lose("gw-3", unfinished=4, closed_at=ago(hours=25))
    lose("gw-4", closed_at=ago(minutes=1))
    found = telemetry_state()
    assert (found.unfinished, found.alarms) == (5, (Alarm.UNFINISHED,))
    later = telemetry_state(now=timezone.now() + timedelta(minutes=2))
    assert (later.unfinished, later.alarms) == (5, ())


def test_foreign_entries_are_counted_and_no_alarm() -> None:
    TelemetryCursor.objects.create(pk=1, foreign=4)
    assert (telemetry_state().foreign, telemetry_state().alarms) == (4, ())


def test_without_redis_the_database_is_still_told(valkey_server: Valkey) -> None:
    lose("gw-1", lost=5, lost_at=ago(minutes=1))
    valkey_server.kill()
    try:
        found = telemetry_state()
    finally:
        valkey_server.start()
    assert found.alarms == (Alarm.REDIS, Alarm.LOST)
    assert (found.lag_s, found.stream_bytes, found.lost) == (None, None, 5)


def _refuse(**_: object) -> int:
    raise OperationalError("database or disk is full")


def test_a_database_that_refuses_is_told_for_a_minute(
    valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(services, "outcomes_ingest", _refuse)
    tasks.outcomes_ingest()
    tasks.outcomes_ingest()
    found = telemetry_state()
    assert found.alarms == (Alarm.DATABASE,)
    assert found.trouble == "database or disk is full"
    assert 0 < valkey.ttl(names.INGEST_TROUBLE) <= 60
    # Told once, not every second.
    assert caplog.text.count("the database refuses") == 1


def test_a_database_that_cannot_be_read_is_an_alarm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TelemetrySource.objects, "filter", _refuse_all)
    assert telemetry_state().alarms == (Alarm.DATABASE,)


def _refuse_all(*_: object, **__: object) -> None:
    raise OperationalError("gone")


def test_of_tasks_at_once_one_works_and_a_redis_that_is_away_is_no_crash(
    valkey: redis.Redis, valkey_server: Valkey
) -> None:
    sender = Sender()
    sender.send(1)
    valkey.set("sluice:outcomes#turn", "another", px=60_000)
    tasks.outcomes_ingest()
    assert valkey.xlen(names.OUTCOMES) == 1
    assert valkey.get("sluice:outcomes#turn") == b"another"
    valkey.delete("sluice:outcomes#turn")
    tasks.outcomes_ingest()
    assert (valkey.xlen(names.OUTCOMES), valkey.get("sluice:outcomes#turn")) == (
        0,
        None,
    )
    valkey_server.kill()
    try:
        for task in (tasks.outcomes_ingest, tasks.counts_ingest, tasks.sources_close):
            task()
    finally:
        valkey_server.start()
