"""Whether the console lives, whether it can do its job, and its numbers.

Open to whoever reaches the port, as probes and scrapers expect, so none of it
names a team, a key or an address. Replicas are named, as in the gateways' figures:
an alert must say which one it is about.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import redis
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from cluster.health import Label
from cluster.live import redis_client
from cluster.models import Model
from cluster.selectors import replica_list, replica_views
from console.measured import share_warnings
from console.notices import notices
from routing.models import Revision, Team
from routing.selectors import Alarm, applied_state, key_list_valid, telemetry_state
from routing.selectors.measured import check_list, split_list


class Reason(NamedTuple):
    code: str
    detail: str


@require_safe
@login_not_required
def livez(request: HttpRequest) -> HttpResponse:
    """The process is up; nothing else is asked."""
    return _plain({"status": "ok"})


@require_safe
@login_not_required
def readyz(request: HttpRequest) -> HttpResponse:
    """503 with reasons while the console cannot do its job.

    Without a gateway it can: that is a warning. An absent gateway serves nobody,
    but taking the console away too would help nobody to mend it.
    """
    reasons = [*_database_reasons(), *_redis_reasons()]
    warnings: list[Reason] = []
    if not reasons:
        warnings = [*_gateway_warnings(), *_share_warnings(), *_notice_warnings()]
    body = {
        "status": "not ready" if reasons else "ready",
        "reasons": [reason._asdict() for reason in reasons],
        "warnings": [warning._asdict() for warning in warnings],
    }
    return _plain(body, status=503 if reasons else 200)


def _plain(body: Mapping[str, object], *, status: int = 200) -> HttpResponse:
    response = JsonResponse(body, status=status)
    response["Cache-Control"] = "no-store"
    return response


def _database_reasons() -> list[Reason]:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        _migrations_check()
    except _Unmigrated:
        return [Reason("migrations", "The database lacks migrations.")]
    except DatabaseError:
        return [Reason("database", "The database does not answer.")]
    return []


class _Unmigrated(Exception):
    pass


@functools.cache
def _migrations_check() -> None:
    """Asked until they are applied: then they stay so while the process lives."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise _Unmigrated


def _redis_reasons() -> list[Reason]:
    try:
        redis_client().ping()
    except (redis.RedisError, ValueError):
        return [Reason("redis", "Redis does not answer.")]
    return []


def _gateway_warnings() -> list[Reason]:
    try:
        applied = applied_state()
    except (redis.RedisError, DatabaseError):
        return [Reason("gateways", "The gateways cannot be asked for.")]
    if not applied.of:
        return [Reason("gateways", "No gateway is alive.")]
    if not applied.complete:
        text = f"{applied.gateways} of {applied.of} gateways apply the last revision."
        return [Reason("revision", text)]
    return []


def _share_warnings() -> list[Reason]:
    try:
        return [Reason(*warning) for warning in share_warnings()]
    except DatabaseError:
        return [Reason("share_check", "The shares cannot be checked.")]


def _notice_warnings() -> list[Reason]:
    """What the pages say too, without what only people who are logged in may know."""
    return [Reason(notice.code, notice.title) for notice in notices()]


class Metric(NamedTuple):
    """One Prometheus gauge; samples are pairs of labels, as text, and a value."""

    name: str
    help: str
    samples: Iterable[tuple[str, int]]


@require_safe
@login_not_required
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text. What cannot be read now is left out, and ``_up`` says so."""
    version = f'{{version="{settings.VERSION}"}}'
    found = [Metric("build_info", "The release that runs.", [(version, 1)])]
    for source, read in (("database", _policy_metrics), ("redis", _live_metrics)):
        part: list[Metric] = []
        with contextlib.suppress(DatabaseError, redis.RedisError, ValueError):
            part = read()
        up = [("", int(bool(part)))]
        found += [Metric(f"{source}_up", f"Whether the {source} answers.", up), *part]
    found += _outcome_metrics()
    lines: list[str] = []
    for metric in found:
        name = f"sluice_{metric.name}"
        lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels} {value}" for labels, value in metric.samples]
    return HttpResponse(
        "\n".join(lines) + "\n", content_type="text/plain; version=0.0.4; charset=utf-8"
    )


def _policy_metrics() -> list[Metric]:
    newest = Revision.objects.only("number").first()
    teams = Team.objects.filter(disabled_at__isnull=True).count()
    return [
        Metric(
            "revision", "The newest revision.", [("", newest.number if newest else 0)]
        ),
        Metric("models", "Models.", [("", Model.objects.count())]),
        Metric("teams", "Teams that are not disabled.", [("", teams)]),
        Metric("keys", "Keys in force.", [("", key_list_valid().count())]),
    ]


def _live_metrics() -> list[Metric]:
    applied = applied_state()
    views = replica_views(replica_list())
    counts = Counter(view.state.label for view in views if view.state)
    states = [(f'{{state="{label.value}"}}', counts[label]) for label in Label]
    each = [
        (f'{{replica="{view.replica.id}",state="{view.state.label.value}"}}', 1)
        for view in views
        if view.state
    ]
    shares = [(f'{{model="{c.model}"}}', c) for c in check_list(split_list()).values()]
    return [
        Metric(
            "share_check",
            "1 while every gateway draws versions by the weights of the route, else 0.",
            [(labels, int(not check.fails)) for labels, check in shares],
        ),
        Metric(
            "share_check_draws",
            "How many draws that rests on.",
            [(labels, check.together.n) for labels, check in shares],
        ),
        Metric("gateways", "Live gateway processes.", [("", applied.of)]),
        Metric(
            "gateways_applied",
            "Live gateway processes that apply the newest revision.",
            [("", applied.gateways)],
        ),
        Metric("replicas", "Replicas by the state that the router sees.", states),
        Metric("replica_state", "1 for the state that a replica is in.", each),
    ]


def _outcome_metrics() -> list[Metric]:
    """What is late or lost on the way from the gateways into the database."""
    state = telemetry_state()
    alarms = [
        (f'{{alarm="{alarm.value}"}}', int(alarm in state.alarms)) for alarm in Alarm
    ]
    found = [Metric("outcomes_alarm", "1 for what somebody should look at.", alarms)]
    figures: dict[str, tuple[str, float | None]] = {
        "lag_seconds": ("The age of the oldest outcome that waits.", state.lag_s),
        "stream_bytes": ("The size of what waits in Redis.", state.stream_bytes),
    }
    if state.readable:
        figures |= {
            "lost": (
                "Outcomes lost by gateways that lost one in the last 24 h.",
                state.lost,
            ),
            "unfinished": (
                "Requests left open by gateways that ended in the last 24 h.",
                state.unfinished,
            ),
            "foreign": ("Entries and lines that no gateway wrote.", state.foreign),
        }
    return found + [
        Metric(f"outcomes_{name}", text, [("", round(value))])
        for name, (text, value) in figures.items()
        if value is not None
    ]
