"""A cluster of the size that pages are measured with: 200 replicas, 50 models, seven
days of requests with their counts, a long audit log."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import Model as Table
from django.utils import timezone

from cluster import live, presence
from cluster.health import Probe, ProbeAxis, Process, ProcessAxis
from cluster.health.engine_facts import EngineFacts
from cluster.health.load import Load
from cluster.models import (
    AuditRecord,
    Model,
    Replica,
    ReplicaTransition,
    Sample,
    Version,
)
from cluster.services import node_register, replica_address_set, replica_create
from console.accounts.models import User
from routing.contracts.outcome import Ending, Outcome
from routing.models import (
    ApiKey,
    GenerationServed,
    Team,
    TelemetryCursor,
)
from routing.services import key_issue, team_create
from tests import fleet, outcomes
from tests.cluster.heartbeats import FACTS
from tests.looks import Cast
from tests.minutes import minutes_count

MODELS, REPLICAS, NODES, TEAMS, USERS = 50, 200, 8, 40, 25
_DAYS = 7
_HOUR_S = 3600
_ENDINGS = (
    (0.96, Ending.COMPLETED, 200, ""),
    (0.98, Ending.REFUSED, 429, "rate_limited"),
    (0.99, Ending.UPSTREAM_FAILED, 502, "upstream_error"),
    (1.0, Ending.CLIENT_LEFT, 499, "client_left"),
)


class Amounts(NamedTuple):
    """Of what grows without end."""

    outcomes: int = 100_000
    audits: int = 200_000
    keys: int = 2_000


def fill(amounts: Amounts) -> Cast:
    """The same at every run; the names of some of what there is."""
    dice = random.Random(7)
    replicas = _fleet()
    _live(replicas, dice)
    keys = _access(amounts.keys)
    _history(replicas, dice)
    newest = _outcomes(amounts.outcomes, replicas, keys, dice)
    _audits(amounts.audits, dice)
    for number in range(USERS):
        User.objects.create_user(f"user-{number}", role="viewer")
    fleet.gateway_set("gw-1")
    fleet.gateway_set("gw-2")
    run = next(one for one in replicas if one.node is not None)
    other = next(one for one in replicas if one.node is None)
    return Cast(
        *("model-0", "v1", run.pk, other.pk, "node-0", "team-0", keys[0].pk),
        *(newest, "user-0"),
    )


def _bulk(rows: Iterable[Table]) -> None:
    found = list(rows)
    if found:
        type(found[0])._default_manager.bulk_create(found, batch_size=2_000)


# The fleet ---------------------------------------------------------------------------


def _fleet() -> list[Replica]:
    """Two or three versions a model, of which the first has most of the replicas;
    every fifth replica stands at a fixed address."""
    for number in range(NODES):
        node_register(name=f"node-{number}", actor=fleet.ACTOR)
        presence.presence_beat(f"node-{number}", holder="h", facts=FACTS)
    for number in range(MODELS):
        versions = ["v1", "v2", "v3"][: 2 + number % 2]
        fleet.model_add(f"model-{number}", *versions, description="For the bench")
    replicas = [_replica(number) for number in range(REPLICAS)]
    for number in range(MODELS):
        for weight in (500, 1_000, 2_000):
            weights = {"v1": 10_000 - weight, "v2": weight}
            fleet.weights_give(f"model-{number}", weights, "a little more")
    return replicas


def _replica(number: int) -> Replica:
    model = Model.objects.get(name=f"model-{number % MODELS}")
    name = "v2" if number // MODELS == 3 else "v1"
    version = Version.objects.get(model=model, name=name)
    if number % 5 == 0:
        return fleet.replica_add(model, name, 8_000 + number, probe=None)
    node = node_register(name=f"node-{number % NODES}", actor=fleet.ACTOR)
    replica = replica_create(
        version=version, driver="process", node=node, actor=fleet.ACTOR
    )
    replica_address_set(
        replica=replica,
        address=f"http://127.0.0.1:{20_000 + number}",
        actor=fleet.ACTOR,
    )
    return replica


def _live(replicas: list[Replica], dice: random.Random) -> None:
    """What node, prober and scrapes write: a few are ill."""
    now = time.time()
    for replica in replicas:
        since = now - 86_400 * dice.random()
        if replica.node is not None:
            live.axis_write(replica.id, ProcessAxis(Process.RUNNING, since))
            live.memory_write(replica.id, 2**31)
        probe = Probe.DOWN if dice.random() < 0.03 else Probe.UP
        started = since if replica.node is not None else 0.0
        axis = ProbeAxis(probe, since + 9, process_since=started)
        live.axis_write(replica.id, axis)
        load = Load(now, 4, 1, 0.4, 9e6, 8e6, 400, 2_000, 0.9, 0.1, 800, 230)
        live.load_write(replica.id, load, unlock="none")
    live.engine_facts_write(
        {
            one.id: EngineFacts(now, one.version_id, 0.0, "b6000", (one.id,), 1, True)
            for one in replicas
        }
    )


def _history(replicas: list[Replica], dice: random.Random) -> None:
    """Samples of half an hour and a week of transitions."""
    minute = timezone.now().replace(second=0, microsecond=0)
    _bulk(
        Sample(
            replica=one,
            minute=minute - timedelta(minutes=ago),
            scrapes=12,
            running_mean=4 * dice.random(),
            tokens_per_s_mean=900 * dice.random(),
        )
        for one in replicas
        for ago in range(1, 31)
    )
    _bulk(
        ReplicaTransition(
            replica=one,
            at=minute - timedelta(hours=12 * ago),
            label=("healthy", "down")[ago % 2],
            cause=("probe_up", "probe_down")[ago % 2],
            said_by="prober",
        )
        for ago in range(14, 0, -1)
        for one in replicas
    )


# Teams and keys ----------------------------------------------------------------------


def _access(count: int) -> list[ApiKey]:
    """Some keys of each team through the services, the others as rows."""
    teams = [
        team_create(slug=f"team-{number}", name=f"Team {number}", actor=fleet.ACTOR)
        for number in range(TEAMS)
    ]
    issued = [
        key_issue(team=team, name=f"key-{number}", actor=fleet.ACTOR)[0]
        for team in teams
        for number in range(5)
    ]
    _bulk(_key(number, teams[number % TEAMS]) for number in range(count - len(issued)))
    return issued


def _key(number: int, team: Team) -> ApiKey:
    """One in fifty ends within the year, one in thirty was revoked."""
    now = timezone.now()
    name = f"batch-{number}"
    return ApiKey(
        id=f"{number:012d}",
        team=team,
        name=name,
        secret_sha256=f"{number:064x}",
        last_four=f"{number % 10_000:04d}",
        expires_at=now + timedelta(days=number % 365) if number % 50 == 0 else None,
        revoked_at=now if number % 30 == 0 else None,
        created_by="user:ada",
        search_text=f"sk-{number:012d}…{number % 10_000:04d}\n{name}\n\n{team.slug}",
        sent=1,
    )


# Requests ----------------------------------------------------------------------------


def _outcomes(
    count: int, replicas: list[Replica], keys: list[ApiKey], dice: random.Random
) -> str:
    """Rows and counts, hour by hour as the ingest leaves them; the newest id."""
    at_of: dict[tuple[str, str], list[str]] = {}
    for one in replicas:
        place = (one.version.model.name, one.version.name)
        at_of.setdefault(place, []).append(one.pk)
    now = time.time() - 5
    last = int(now // _HOUR_S)
    served: Counter[tuple[str, str, str]] = Counter()
    newest = ""
    for hour in range(last - 24 * _DAYS, last + 1):
        begins = hour * _HOUR_S
        # No request ends in another hour than it began.
        room = min(_HOUR_S - 10, now - begins)
        each = count // (24 * _DAYS)
        ats = sorted(begins + room * dice.random() for _ in range(each))
        made = [_outcome(at, at_of, keys, dice) for at in ats]
        _bulk(map(outcomes.row, made))
        outcomes.count(made)
        minutes_count(made)
        served.update((one.model, one.first_version, one.version) for one in made)
        newest = made[-1].request_id if made else newest
    _bulk(
        GenerationServed(
            model=model,
            generation=4,
            gateway="gw-1",
            first_version=first,
            version=version,
            requests=requests,
        )
        for (model, first, version), requests in served.items()
    )
    TelemetryCursor.objects.update_or_create(
        pk=1, defaults={"moved_at": timezone.now()}
    )
    return newest


def _outcome(
    at: float,
    at_of: dict[tuple[str, str], list[str]],
    keys: list[ApiKey],
    dice: random.Random,
) -> Outcome:
    """Some keys and models have many requests, most have few; a key asks for three
    models."""
    place = int(dice.random() ** 2 * len(keys))
    key = keys[place]
    model = f"model-{(place * 7 + dice.choice((0, 0, 3, 11)) ** 2) % MODELS}"
    version = "v2" if dice.random() < 0.2 else "v1"
    die = dice.random()
    ending, status, code = next(rest for most, *rest in _ENDINGS if die < most)
    first_ms = 80 + 300 * dice.random()
    changes: dict[str, Any] = {
        "team": key.team.slug,
        "key": key.pk,
        "model": model,
        "generation": 4,
        "first_version": version,
        "first_probability": 0.2 if version == "v2" else 0.8,
        "version": version,
        "replica": dice.choice(at_of.get((model, version), [""])),
        "ending": ending,
        "status": status,
        "code": code,
        "first_content_ms": first_ms,
        "duration_ms": first_ms + 900 * dice.random(),
        "prompt_tokens": dice.randrange(20, 2_000),
        "completion_tokens": dice.randrange(5, 600),
    }
    return outcomes.outcome(at, **changes)


# The audit log -----------------------------------------------------------------------


def _audits(count: int, dice: random.Random) -> None:
    """Mostly changes of weights and keys; the oldest first."""
    for first in range(0, count, 10_000):
        _bulk(_audit(dice) for _ in range(min(10_000, count - first)))


def _audit(dice: random.Random) -> AuditRecord:
    if dice.random() < 0.5:
        weight = dice.randrange(10_000)
        return AuditRecord(
            actor_kind="user",
            actor_name=f"user-{dice.randrange(USERS)}",
            actor_address="10.0.0.7",
            action="weights.set",
            target=f"model-{dice.randrange(MODELS)}",
            before={"weights": {"v1": 10_000, "v2": 0}},
            after={"weights": {"v1": 10_000 - weight, "v2": weight}},
        )
    return AuditRecord(
        actor_kind="token",
        actor_name=f"user-{dice.randrange(USERS)}",
        actor_address="10.0.0.9",
        action="key.issue",
        target=f"{dice.randrange(10**12):012d}",
        after={
            "name": "nightly-report",
            "team": "team-1",
            "models": [f"model-{n}" for n in range(40)],
        },
    )
