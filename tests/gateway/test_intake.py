"""From real gateways through Redis into the database, with what dies on the way."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest
from django.conf import settings as django_settings
from django.db.models import Sum

from cluster import live
from routing.models import OutcomeRecord, TelemetrySource, TrafficMinute, UsageHour
from routing.services import counts_ingest, outcomes_ingest, sources_close
from tests.gateway.scene import Scene
from tests.gateway.world import GatewayProcess

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def fed(scene: Scene) -> Iterator[Scene]:
    """The intake reads where these gateways write."""
    url = django_settings.REDIS_URL
    django_settings.REDIS_URL = scene.control.valkey.url
    live.redis_client.cache_clear()
    yield scene
    live.redis_client().close()
    django_settings.REDIS_URL = url
    live.redis_client.cache_clear()


def ingest() -> int:
    """One turn of everything; how many rows came."""
    taken = outcomes_ingest()
    counts_ingest(now=time.time())
    sources_close()
    return taken


def rows(gateway: str) -> int:
    return OutcomeRecord.objects.filter(gateway=gateway).count()


def counted(gateway: str) -> int:
    cells = TrafficMinute.objects.filter(gateway=gateway)
    return cells.aggregate(n=Sum("requests"))["n"] or 0


def chats(scene: Scene, gateway: GatewayProcess, count: int) -> None:
    for number in range(count):
        # Every third is refused, for models are not only those that exist.
        gateway.chat(scene.key, model="m" if number % 3 else "none")


def stored(gateway: str, requests: int) -> bool:
    ingest()
    return rows(gateway) == counted(gateway) == requests


def test_a_redis_that_is_killed_under_traffic_loses_and_doubles_nothing(
    fed: Scene,
) -> None:
    gateways = {gateway.id: gateway for gateway in fed.gateways}
    threads = [
        threading.Thread(target=chats, args=(fed, gateway, 150))
        for gateway in gateways.values()
    ]
    for thread in threads:
        thread.start()
    fed.until(lambda: ingest() and OutcomeRecord.objects.count() > 20, within_s=30)
    fed.control.valkey.kill()
    chats(fed, fed.gateways[0], 9)
    fed.control.valkey.start()
    for thread in threads:
        thread.join(60)
    ids = list(gateways)
    fed.until(lambda: stored(ids[0], 159) and stored(ids[1], 150), within_s=30)
    assert not TelemetrySource.objects.filter(lost__gt=0).exists()
    assert UsageHour.objects.aggregate(n=Sum("requests"))["n"] == 309
    logged = {o.request_id for g in gateways.values() for o in g.outcomes()}
    assert {row.hex for row in OutcomeRecord.objects.values_list("pk", flat=True)} >= (
        logged
    )


def test_an_emptied_redis_loses_and_doubles_nothing(fed: Scene) -> None:
    gateway = fed.gateways[0]
    chats(fed, gateway, 30)
    fed.until(lambda: stored(gateway.id, 30), within_s=30)
    chats(fed, gateway, 30)
    fed.control.client.flushall()
    fed.control.mark_complete()
    chats(fed, gateway, 6)
    fed.until(lambda: stored(gateway.id, 66), within_s=30)
    source = TelemetrySource.objects.get(pk=gateway.id)
    assert (source.last_outcome, source.lost) == (66, 0)


def test_a_killed_gateway_leaves_books_that_can_be_closed(fed: Scene) -> None:
    """What it had numbered when it was heard of last is there or counted as lost, and
    its open request is named."""
    gateway = fed.gateways[1]
    gateway_id = gateway.id
    chats(fed, gateway, 20)
    for engine in fed.engines:
        engine.set(delay_headers_ms=30_000)
    with gateway.raw_chat(fed.key):
        fed.until(
            lambda: b'"in_flight":1' in (_record(fed, gateway_id) or b""),
            within_s=30,
        )
        ingest()
        gateway.signal(signal.SIGKILL)
        fed.until(lambda: not _record(fed, gateway_id), within_s=30)
        ingest()
        fed.until(lambda: gateway_id in sources_close(close_after_s=0), within_s=30)
    source = TelemetrySource.objects.get(pk=gateway_id)
    assert source.last_outcome + source.lost == 20
    assert rows(gateway_id) == source.last_outcome
    assert source.unfinished == 1


def _record(scene: Scene, gateway_id: str) -> bytes | None:
    found = scene.control.client.get(f"sluice:gateway:{gateway_id}")
    assert found is None or isinstance(found, bytes)
    return found
