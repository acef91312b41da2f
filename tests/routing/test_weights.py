"""Weights: sums that cannot be wrong, generations that cannot be lost."""

from __future__ import annotations

import pytest
import redis
from django.db import IntegrityError, transaction

from cluster.actor import Actor
from cluster.errors import Conflict, Missing, Refused
from cluster.models import Model, Version
from cluster.services import model_create, version_create
from routing.models import Generation, GenerationWeight, Revision, Route
from routing.publish import store
from routing.selectors import route_get, route_view
from routing.services import generation_restore, snapshot_publish, weights_set

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def model(actor: Actor) -> Model:
    """A model with versions v1 (all traffic) and v2."""
    model = model_create(name="qwen", actor=actor)
    for name in ("v1", "v2"):
        version_create(
            model=model, name=name, engine="generic", served_name="q", actor=actor
        )
    return model


def shares(name: str) -> dict[str, int]:
    return {version.name: bp for version, bp in route_view(model=name).weights}


def test_the_first_version_gets_all_traffic_and_later_ones_none(model: Model) -> None:
    assert shares("qwen") == {"v1": 10_000, "v2": 0}
    assert route_get(model="qwen").generation == 1


def test_a_reason_that_is_no_text_is_refused(model: Model, actor: Actor) -> None:
    with pytest.raises(Refused) as refusal:
        weights_set(
            route=route_get(model="qwen"),
            weights={"v2": 10_000},
            generation=1,
            reason="a\0b",
            actor=actor,
        )
    assert refusal.value.code == "bad_reason"
    assert shares("qwen") == {"v1": 10_000, "v2": 0}


def test_a_change_makes_one_generation_and_one_revision(
    model: Model, actor: Actor
) -> None:
    revisions = Revision.objects.count()
    weights_set(
        route=route_get(model="qwen"),
        weights={"v1": 9000, "v2": 1000},
        generation=1,
        actor=actor,
    )
    assert shares("qwen") == {"v1": 9000, "v2": 1000}
    assert Revision.objects.count() == revisions + 1
    newest = Revision.objects.first()
    assert newest is not None
    assert store.held() == (newest.epoch, newest.number)


def test_equal_weights_make_no_generation(model: Model, actor: Actor) -> None:
    weights_set(
        route=route_get(model="qwen"), weights={"v1": 10_000}, generation=1, actor=actor
    )
    assert route_get(model="qwen").generation == 1


@pytest.mark.parametrize(
    ("weights", "code"),
    [
        ({"v1": 9000, "v2": 999}, "bad_sum"),
        ({"v1": 9000, "v2": 1001}, "bad_sum"),
        ({"v1": 11_000, "v2": -1000}, "bad_weight"),
        ({"v1": 9000, "v3": 1000}, "unknown_version"),
        ({}, "bad_weight"),
    ],
)
def test_wrong_weights_change_nothing(
    model: Model, actor: Actor, weights: dict[str, int], code: str
) -> None:
    with pytest.raises(Refused) as refusal:
        weights_set(
            route=route_get(model="qwen"), weights=weights, generation=1, actor=actor
        )
    assert refusal.value.code == code
    assert route_get(model="qwen").generation == 1
    assert Generation.objects.count() == 1


def test_a_stale_generation_is_a_conflict_that_names_the_current_one(
    model: Model, actor: Actor
) -> None:
    route = route_get(model="qwen")
    weights_set(route=route, weights={"v1": 1, "v2": 9999}, generation=1, actor=actor)
    with pytest.raises(Conflict) as conflict:
        weights_set(route=route, weights={"v1": 10_000}, generation=1, actor=actor)
    assert conflict.value.current == 2
    assert shares("qwen") == {"v1": 1, "v2": 9999}


def test_any_generation_can_be_restored_as_a_new_one(
    model: Model, actor: Actor
) -> None:
    route = route_get(model="qwen")
    weights_set(route=route, weights={"v2": 10_000}, generation=1, actor=actor)
    restored = generation_restore(route=route, number=1, generation=2, actor=actor)
    assert (restored.number, restored.restored_from) == (3, 1)
    assert shares("qwen") == {"v1": 10_000, "v2": 0}
    with pytest.raises(Missing):
        generation_restore(route=route, number=9, generation=3, actor=actor)


def test_the_database_itself_refuses_a_wrong_sum(model: Model) -> None:
    route = route_get(model="qwen")
    generation = Generation.objects.create(route=route, number=2, actor="x")
    version = Version.objects.get(name="v1")
    GenerationWeight.objects.create(
        generation=generation, version=version, weight_bp=9999
    )
    with pytest.raises(IntegrityError, match="10000"), transaction.atomic():
        Route.objects.filter(pk=route.pk).update(generation=2)


def test_publishing_unchanged_routes_makes_no_revision_but_refills_redis(
    model: Model, actor: Actor, valkey: redis.Redis
) -> None:
    before = Revision.objects.count()
    valkey.flushall()
    revision = snapshot_publish(reason="again", actor=actor)
    assert Revision.objects.count() == before
    assert store.held() == (revision.epoch, revision.number)


def test_a_restored_database_opens_a_new_epoch(model: Model, actor: Actor) -> None:
    """Redis holds a revision that this database never made."""
    newest = Revision.objects.first()
    assert newest is not None
    store.put(newest.epoch, newest.number + 40, b"{}")
    revision = snapshot_publish(reason="reconcile", actor=actor)
    assert revision.epoch == newest.epoch + 1
    assert store.held() == (revision.epoch, revision.number)


def test_redis_never_goes_back_to_an_older_revision(valkey: redis.Redis) -> None:
    assert store.put(1, 7, b"seven")
    assert not store.put(1, 6, b"six")
    assert store.put(2, 1, b"new epoch")
    assert not store.put(1, 99, b"old epoch")
    assert store.held() == (2, 1)
