"""What the replicas of a version were at some time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cluster.models import Model, Replica, ReplicaTransition
from cluster.selectors.past import replicas_at
from tests import fleet

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def replica(version: str, port: int, created_at: datetime) -> Replica:
    row = fleet.replica_add(Model.objects.get(name="qwen"), version, port)
    Replica.objects.filter(pk=row.pk).update(created_at=created_at)
    return row


def into(row: Replica, at: datetime, label: str) -> None:
    ReplicaTransition.objects.create(replica=row, at=at, label=label, cause="x")


def at(moment: datetime) -> dict[str, str]:
    found = replicas_at(model="qwen", version="v1", at=moment)
    return {id_: state.label if state else "" for id_, state in found}


def test_each_replica_has_the_state_that_it_had_come_into_last() -> None:
    fleet.model_add("qwen", "v1", "v2")
    old, young = replica("v1", 1, NOON - 9 * HOUR), replica("v1", 2, NOON - 2 * HOUR)
    other = replica("v2", 3, NOON - 9 * HOUR)
    into(old, NOON - 8 * HOUR, "healthy")
    into(old, NOON - HOUR, "ejected")
    into(old, NOON + HOUR, "healthy")
    into(other, NOON - HOUR, "down")
    assert at(NOON) == {old.pk: "ejected", young.pk: ""}
    assert at(NOON - HOUR) == {old.pk: "ejected", young.pk: ""}
    assert at(NOON - 3 * HOUR) == {old.pk: "healthy"}
    assert at(NOON + 2 * HOUR) == {old.pk: "healthy", young.pk: ""}
    assert at(NOON - 10 * HOUR) == {}


def test_a_removed_replica_is_there_until_it_was_removed() -> None:
    fleet.model_add("qwen", "v1")
    row = replica("v1", 1, NOON - 2 * HOUR)
    Replica.objects.update(removed_at=NOON)
    assert at(NOON - HOUR) == {row.pk: ""}
    assert at(NOON) == {}
    assert replicas_at(model="none", version="v1", at=NOON) == []
