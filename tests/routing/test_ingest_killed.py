"""The intake with real processes that are killed, and databases that make it wait."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
import redis
from django.db import connection
from django.db.models import Sum

from routing import tasks
from routing.contracts import names
from routing.models import (
    GenerationServed,
    OutcomeRecord,
    TelemetrySource,
    TrafficMinute,
    UsageHour,
)
from routing.selectors import Alarm, telemetry_state
from routing.services import counts_ingest, outcomes_ingest
from tests.routing.gateway_sender import Sender, cell, figures
from tests.routing.ingester import ingester
from tests.services import Valkey

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


def until(condition: Callable[[], bool], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def rows_beyond(count: int) -> Callable[[], bool]:
    return lambda: OutcomeRecord.objects.count() > count


def settled(*senders: Sender) -> None:
    """Everything that was sent is in the database, once."""
    while outcomes_ingest() or counts_ingest(now=time.time()):
        pass
    requests = sum(sender.sent for sender in senders)
    assert OutcomeRecord.objects.count() == requests
    for sender in senders:
        source = TelemetrySource.objects.get(pk=sender.id)
        assert (source.last_outcome, source.lost) == (sender.sent, 0)
        assert OutcomeRecord.objects.filter(gateway=sender.id).count() == sender.sent
    for model in (TrafficMinute, UsageHour, GenerationServed):
        assert model._default_manager.aggregate(n=Sum("requests"))["n"] == requests


def serve(sender: Sender, requests: int) -> None:
    """So many more requests, as rows and as counts."""
    sender.send(requests)
    sender.count({cell(): figures(sender.sent)})


@pytest.mark.parametrize(
    "die_at",
    [
        "routing.services.ingest._acknowledge",
        "routing.services.outcome_stream.stream_delete",
        "routing.services.ingest.keys_used",
        "routing.services.ingest_counts._usage_grow",
        "routing.services.ingest_counts._delete",
    ],
)
def test_an_ingester_that_dies_halfway_is_made_good_by_the_next(die_at: str) -> None:
    sender = Sender()
    serve(sender, 20)
    with ingester(die_at) as process:
        assert process.wait(60) == -9
    serve(sender, 5)
    settled(sender)


def test_ingesters_that_are_killed_again_and_again_lose_and_double_nothing() -> None:
    """Two at a time, under traffic of two gateways."""
    random.seed(7)
    senders = [Sender("gw-one"), Sender("gw-two")]
    for _ in range(2):
        with ingester() as one, ingester() as other:
            enough = OutcomeRecord.objects.count() + 100
            for number in range(40):
                for sender in senders:
                    serve(sender, random.randint(1, 30))
                if number == 20:
                    until(rows_beyond(enough))
                    one.kill()
            other.kill()
    settled(*senders)


def test_a_redis_that_is_killed_under_an_ingester_is_waited_for(
    valkey: redis.Redis, valkey_server: Valkey
) -> None:
    sender = Sender()
    serve(sender, 10)
    valkey_server.kill()
    try:
        tasks.outcomes_ingest()
        tasks.counts_ingest()
        assert telemetry_state().alarms == (Alarm.REDIS,)
    finally:
        valkey_server.start()
    serve(sender, 10)
    tasks.outcomes_ingest()
    tasks.counts_ingest()
    assert OutcomeRecord.objects.count() == 20
    settled(sender)


@contextmanager
def held() -> Iterator[None]:
    """Somebody else keeps the intake from writing."""
    values = connection.settings_dict
    if connection.vendor == "sqlite":
        other = sqlite3.connect(values["NAME"], isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.close()
        return
    with psycopg.connect(
        host=values["HOST"],
        port=values["PORT"] or None,
        user=values["USER"],
        dbname=values["NAME"],
    ) as session:
        session.execute("LOCK TABLE routing_telemetrysource IN EXCLUSIVE MODE")
        yield


def test_a_lock_that_is_held_for_seconds_delays_and_loses_nothing() -> None:
    sender = Sender()
    outcomes_ingest()
    serve(sender, 10)
    release = threading.Timer(2.0, lambda: released.set())
    released = threading.Event()
    taken: list[float] = []

    def ingest() -> None:
        tasks.outcomes_ingest()
        tasks.counts_ingest()
        taken.append(time.monotonic())
        connection.close()

    worker = threading.Thread(target=ingest)
    with held():
        worker.start()
        release.start()
        released.wait(30)
        released_at = time.monotonic()
        assert not taken
    worker.join(30)
    assert taken[0] >= released_at
    assert OutcomeRecord.objects.count() == 10
    settled(sender)


def test_a_lock_that_outlasts_the_patience_is_told_and_loses_nothing(
    valkey: redis.Redis,
) -> None:
    sender = Sender()
    outcomes_ingest()
    serve(sender, 10)
    patience = {
        "sqlite": "PRAGMA busy_timeout = 100",
        "postgresql": "SET lock_timeout = 100",
    }
    with connection.cursor() as cursor:
        cursor.execute(patience[connection.vendor])
    with held():
        tasks.outcomes_ingest()
        tasks.counts_ingest()
        assert telemetry_state().alarms == (Alarm.DATABASE,)
        assert valkey.xlen(names.OUTCOMES) == 1
    connection.close()
    serve(sender, 5)
    settled(sender)
