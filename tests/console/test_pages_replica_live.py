"""The live parts of a replica's page, as the server first shows them."""

from __future__ import annotations

import re
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import redis
from django.test import Client
from django.utils import timezone

from cluster import live
from cluster.drivers.replica_log import log_lines
from cluster.health import Passive, PassiveAxis, Process, ProcessAxis
from cluster.health.failures import failures_name, minute_of
from cluster.health.inflight import OpenRequest, inflight_fields, inflight_name
from cluster.health.load import Load
from cluster.models import AuditRecord, Replica, Sample
from cluster.services import (
    model_create,
    replica_address_set,
    replica_log_publish,
    replicas_probe,
    version_create,
)
from cluster.services.launch import launch_command
from console.live.readings import LOAD_BELIEVED_S, Reading, reading_read
from console.pages.replica_live import chart_history
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def replica() -> Replica:
    axis = ProcessAxis(Process.RUNNING, time.time() - 60)
    return fleet.process_add(fleet.model_add("qwen", "v1"), "v1", axis)


def text_of(page: Client, replica: Replica, query: str = "") -> str:
    return page.get(f"/replicas/{replica.id}{query}").content.decode()


def open_set(valkey: redis.Redis, replica: Replica, *requests: OpenRequest) -> None:
    fleet.gateway_set("g1")
    fields: Any = inflight_fields({replica.id: list(requests)})
    valkey.hset(inflight_name("g1"), mapping=fields)


def _length(valkey: redis.Redis, queue: str) -> int:
    return len(cast("list[bytes]", valkey.lrange(queue, 0, -1)))


def log_write(data_dir: Path, replica: Replica, text: str) -> Path:
    path = data_dir / "log" / f"replica-{replica.id}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_what_nobody_collects_is_said_to_be_so(page: Client, replica: Replica) -> None:
    fleet.gateway_set("silent")
    text = text_of(page, replica)
    assert text.count(">not collected<") >= 7
    assert "no gateway says what it has open here" in text
    assert "gateways do not say" in text


def test_an_old_scrape_is_no_number_of_now() -> None:
    old = Load(time.time() - LOAD_BELIEVED_S - 1, running=3)
    assert Reading(old, []).values["running"] is None
    assert Reading(Load(time.time(), running=3), []).values["running"] == 3
    failed = Load(time.time(), running=3, error="timeout")
    assert Reading(failed, []).values["running"] is None


def test_open_requests_stand_oldest_first_and_actions_name_their_number(
    page: Client, replica: Replica, valkey: redis.Redis
) -> None:
    open_set(
        valkey,
        replica,
        OpenRequest("young", "search", 1.0, False, 3),
        OpenRequest("aged", "search", 41.0, True, 900),
    )
    text = text_of(page, replica)
    assert text.index(">aged<") < text.index(">young<")
    assert "2 requests run on it, the oldest for 41 s." in text
    assert "It cuts 2 requests off." in text


def test_stop_waits_for_open_requests_and_stop_now_says_how_many_it_cut(
    page: Client, replica: Replica, valkey: redis.Redis
) -> None:
    open_set(valkey, replica, OpenRequest("r1", "search", 1.0, True, 3))
    page.post(f"/replicas/{replica.id}/stop")
    replica.refresh_from_db()
    assert (replica.wanted_running, replica.drain_then_stop) == (True, True)
    page.post(f"/replicas/{replica.id}/stop-now")
    replica.refresh_from_db()
    assert replica.wanted_running is False
    assert "1 request was cut off." in text_of(page, replica)


@pytest.mark.parametrize("verb", ["restart", "remove"])
def test_a_restart_and_a_removal_say_how_many_requests_they_cut(
    page: Client, replica: Replica, valkey: redis.Redis, verb: str
) -> None:
    fleet.open_set(valkey, replica.id, 2)
    done = page.post(f"/replicas/{replica.id}/{verb}")
    text = page.get(done["Location"]).content.decode()
    assert "2 requests were cut off." in text
    # The record of what changed says so as well.
    assert text_of(page, replica).count("2 requests were cut off.") == 1


def test_an_unknown_number_of_cut_requests_is_said_to_be_unknown(
    page: Client, replica: Replica
) -> None:
    fleet.gateway_set("silent")
    page.post(f"/replicas/{replica.id}/restart")
    assert "It is unknown how many requests were cut off" in text_of(page, replica)


def test_a_static_replica_is_removed_without_cutting_anything(
    page: Client, replica: Replica, valkey: redis.Redis
) -> None:
    static = fleet.replica_add(replica.version.model, "v1", 8001)
    fleet.open_set(valkey, static.id, 3)
    removal = actions_of(page, static)["verbs"]["remove"]
    assert "3 requests run on it, the oldest for 3 s." in removal["facts"]
    assert not any("cuts" in fact for fact in removal["facts"])
    done = page.post(f"/replicas/{static.id}/remove")
    assert "cut off" not in page.get(done["Location"]).content.decode()


def actions_of(page: Client, replica: Replica) -> Any:
    return page.get(f"/replicas/{replica.id}/now").json()


def test_what_can_be_done_follows_the_replica(
    page: Client, replica: Replica, valkey: redis.Redis
) -> None:
    before = actions_of(page, replica)
    assert before["facts"][0] == "v1 gets 100\u00a0% of the requests."
    assert before["verbs"]["enable"]["blocked"] == "It is enabled already."
    assert before["verbs"]["drain"]["blocked"] == ""
    page.post(f"/replicas/{replica.id}/drain")
    fleet.open_set(valkey, replica.id, 1)
    after = actions_of(page, replica)["verbs"]
    assert after["enable"]["blocked"] == ""
    assert after["drain"]["blocked"] == "It is draining already."
    assert "It cuts 1 request off." in after["stop-now"]["facts"]


def test_the_numbers_can_be_had_without_a_websocket(
    page: Client, replica: Replica, valkey: redis.Redis
) -> None:
    fleet.open_set(valkey, replica.id, 2)
    now = actions_of(page, replica)
    assert now["values"]["in_flight"] == 2 and now["values"]["kv"] is None
    assert [row["request_id"] for row in now["requests"]] == ["r1", "r0"]
    valkey.delete(inflight_name("g1"))
    now = actions_of(page, replica)
    assert (now["values"]["in_flight"], now["requests"]) == (None, [])


def test_whoever_knows_better_puts_an_ejected_replica_back(
    page: Client, replica: Replica
) -> None:
    fleet.replica_add(replica.version.model, "v1", 8001)
    record = live.records_read([replica.id])[replica.id]
    until, since = time.time() + 60, record.process_since

    def out(_record: object, now: float) -> PassiveAxis:
        return PassiveAxis(Passive.EJECTED, now, until, process_since=since)

    live.passive_change(replica.id, out)
    enable = actions_of(page, replica)["verbs"]["enable"]
    assert enable["blocked"] == "" and "put back into use" in enable["effect"]
    page.post(f"/replicas/{replica.id}/enable")
    assert actions_of(page, replica)["verbs"]["enable"]["blocked"]
    assert "put the replica" in text_of(page, replica)


def test_nothing_is_done_to_a_removed_replica(page: Client, replica: Replica) -> None:
    page.post(f"/replicas/{replica.id}/remove")
    page.post(f"/replicas/{replica.id}/drain")
    text = text_of(page, replica)
    assert "The replica was removed." in text and "is draining." not in text
    assert 'data-verb="' not in text


@pytest.mark.parametrize("engine", ["llamacpp", "generic"])
def test_the_next_probe_is_told_of_engines_with_and_without_metrics(
    page: Client, valkey: redis.Redis, engine: str
) -> None:
    model = model_create(name="m", actor=fleet.ACTOR)
    version_create(
        model=model, name="v1", engine=engine, served_name="m", actor=fleet.ACTOR
    )
    replica = fleet.replica_add(model, "v1", 9, probe=None)
    assert ">not probed now<" in text_of(page, replica)
    with socket.create_server(("127.0.0.1", 0)) as refuses:
        port = refuses.getsockname()[1]
    replica_address_set(
        replica=replica, address=f"http://127.0.0.1:{port}", actor=fleet.ACTOR
    )
    replicas_probe()
    next_probe_s = reading_read(replica.id).values["next_probe_s"]
    assert next_probe_s is not None and 0 <= next_probe_s <= 5
    assert ">not probed now<" not in text_of(page, replica)


@pytest.mark.parametrize(("deadline", "kept"), [("60", True), ("0", False)])
def test_a_drain_may_end_with_a_stop_by_a_deadline(
    page: Client, replica: Replica, deadline: str, kept: bool
) -> None:
    fields = {"then_stop": "on", "deadline_s": deadline}
    page.post(f"/replicas/{replica.id}/drain", fields)
    replica.refresh_from_db()
    assert replica.drain_then_stop is kept
    text = text_of(page, replica)
    assert ("Then it is stopped" in text) is kept
    assert ("deadline must lie within a day" in text) is not kept


def test_a_refused_scrape_gives_its_reason(page: Client, replica: Replica) -> None:
    load = Load(time.time(), error="too_long", detail="more than 4 MiB", since=1.0)
    live.load_write(replica.id, load, unlock="x")
    text = text_of(page, replica)
    assert "figures cannot be read" in text and "more than 4 MiB" in text


def test_charts_begin_with_the_minutes_on_record(replica: Replica) -> None:
    minute = timezone.now().replace(second=0, microsecond=0)
    for ago, kv in ((5, 0.5), (40, 0.9)):
        at = minute - timedelta(minutes=ago)
        Sample.objects.create(replica=replica, minute=at, scrapes=12, kv_mean=kv)
    history = chart_history(replica)
    assert [value for _at, value in history["kv"]] == [50.0]
    assert [value for _at, value in history["running"]] == [None]


def test_the_log_of_this_machine_is_shown_without_control_characters(
    page: Client, replica: Replica, data_dir: Path
) -> None:
    path = log_write(data_dir, replica, "a\n\x1b[31mred\x1b[0m\x00\n<b>\n")
    try:
        answer = page.get(f"/replicas/{replica.id}/log")
        assert answer.content.decode() == "a\nred\N{REPLACEMENT CHARACTER}\n<b>\n"
        assert answer["Content-Type"].startswith("text/plain")
        assert "&lt;b&gt;" in text_of(page, replica)
        download = page.get(f"/replicas/{replica.id}/log?download")
        assert "attachment" in download["Content-Disposition"]
    finally:
        path.unlink()


def test_a_long_log_is_cut_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"x" * 3_000_000 + b"\n" + b"\n".join(b"%d" % n for n in range(9)))
    lines = log_lines(path, most=3)
    assert lines == ["6", "7", "8"]
    assert len((log_lines(path, most=200) or [""])[0]) <= 2000
    assert log_lines(tmp_path / "none", most=3) is None


def test_the_log_of_another_machine_is_asked_for_and_comes_through_redis(
    page: Client, replica: Replica, valkey: redis.Redis, data_dir: Path
) -> None:
    assert page.get(f"/replicas/{replica.id}/log").status_code == 202
    assert replica.node is not None and _length(valkey, replica.node.queue)
    path = log_write(data_dir, replica, "there\n")
    replica_log_publish(replica=replica)
    path.unlink()
    answer = page.get(f"/replicas/{replica.id}/log")
    assert (answer.status_code, answer.content) == (200, b"there\n")
    ttl = valkey.ttl(f"sluice:log:{replica.id}")
    assert isinstance(ttl, int) and 0 < ttl <= 30
    kept = valkey.get(f"sluice:log:{replica.id}")
    assert isinstance(kept, bytes) and msgspec.json.decode(kept) == ["there"]


def test_without_redis_the_page_still_stands(
    page: Client, replica: Replica, redis_away: None
) -> None:
    text = text_of(page, replica)
    assert "Unknown" in text and "not collected" in text


def test_the_launch_command_is_exact_or_the_reason_stands_there(
    page: Client, replica: Replica, tmp_path: Path
) -> None:
    assert "names no artifact" in text_of(page, replica)
    weights = tmp_path / "two words.gguf"
    weights.touch()
    # What a version is cannot be changed by any service.
    version = replica.version
    version.artifact = str(weights)
    command = launch_command(replica).words
    assert f"--model={weights}" in command and any("2048" in part for part in command)


def test_a_removed_replica_says_so_and_by_whom(page: Client, replica: Replica) -> None:
    page.post(f"/replicas/{replica.id}/remove")
    assert AuditRecord.objects.filter(action="replica.remove").count() == 1
    text = text_of(page, replica)
    assert ">Removed<" in text and "<dt>Removed by</dt><dd>ada</dd>" in text
    assert "data-chart=" not in text


def test_memory_and_errors_of_the_last_hour_are_shown_where_they_are_known(
    page: Client, replica: Replica, valkey: redis.Redis
) -> None:
    assert text_of(page, replica).count("not collected") >= 2
    live.memory_write(replica.id, 210 * 2**20)
    minute = minute_of(time.time())
    valkey.hset(failures_name(replica.id), str(minute), 7)
    open_set(valkey, replica)
    values = reading_read(replica.id).values
    assert (values["memory_mib"], values["errors_hour"]) == (210, 7)
    text = text_of(page, replica)
    assert re.search(r'data-figure="memory_mib"[^>]*>210<', text)
    assert re.search(r'data-figure="errors_hour"[^>]*>7<', text)
