"""Services of the fleet: what they refuse, what they change, what they leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.db import IntegrityError, transaction

from cluster import live
from cluster.actor import Actor
from cluster.errors import Refused
from cluster.health import Admin, Record
from cluster.models import AuditRecord, Model, Node, Replica, Version
from cluster.selectors import replica_list, replica_views
from cluster.services import (
    model_create,
    model_delete,
    node_register,
    replica_admin_set,
    replica_create,
    replica_remove,
    replica_restart,
    replica_running_set,
    version_create,
)
from tests import services
from tests.cluster.conftest import Fleet, record

pytestmark = pytest.mark.django_db(transaction=True)


def refused(call: Callable[[], object]) -> tuple[str, str]:
    """Code and field of the refusal; nothing may have been written."""
    audits = AuditRecord.objects.count()
    rows = (Model.objects.count(), Version.objects.count(), Replica.objects.count())
    with pytest.raises(Refused) as refusal:
        call()
    assert str(refusal.value.message)
    assert AuditRecord.objects.count() == audits
    assert rows == (
        Model.objects.count(),
        Version.objects.count(),
        Replica.objects.count(),
    )
    return refusal.value.code, refusal.value.field


def actions() -> list[str]:
    return list(AuditRecord.objects.order_by("id").values_list("action", flat=True))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "required"),
        ("a" * 101, "too_long"),
        ("a b", "bad_name"),
        ("-a", "bad_name"),
        (".", "bad_name"),
        ("a/b", "bad_name"),
        ("a\n", "bad_name"),
        ("ä", "bad_name"),
        ("SMOL", "duplicate"),
        ("smol", "duplicate"),
    ],
)
def test_a_model_name_fits_everywhere_and_is_the_only_one(
    fleet: Fleet, name: str, code: str
) -> None:
    assert refused(lambda: model_create(name=name, actor=fleet.actor)) == (code, "name")


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"name": "v 1"}, "bad_name", "name"),
        ({"name": "v1"}, "duplicate", "name"),
        ({"engine": "tensorrt"}, "bad_choice", "engine"),
        ({"served_name": ""}, "required", "served_name"),
        ({"served_name": "s" * 201}, "required", "served_name"),
        ({"artifact_sha256": "abc"}, "bad_checksum", "artifact_sha256"),
        ({"artifact_sha256": "g" * 64}, "bad_checksum", "artifact_sha256"),
        ({"params": {"--ctx-size": 1}}, "bad_param", "params"),
        ({"params": {"a b": 1}}, "bad_param", "params"),
        ({"params": {"a": [1]}}, "bad_param", "params"),
        ({"params": {"a": None}}, "bad_param", "params"),
        ({"params": {"a": "x" * 20_000}}, "too_long", "params"),
    ],
)
def test_a_version_with_a_wrong_field_is_refused_beside_it(
    fleet: Fleet, fields: dict[str, Any], code: str, field: str
) -> None:
    fleet.version("v1")
    good = {"name": "v2", "engine": "generic", "served_name": "s"}
    call = good | fields
    assert refused(
        lambda: version_create(model=fleet.model, actor=fleet.actor, **call)
    ) == (code, field)


def test_versions_of_two_models_may_share_a_name(fleet: Fleet) -> None:
    other = model_create(name="other", actor=fleet.actor)
    fleet.version("v1")
    version_create(
        model=other, name="v1", engine="vllm", served_name="o", actor=fleet.actor
    )
    assert Version.objects.filter(name="v1").count() == 2


@pytest.mark.parametrize("field", ["name", "engine", "served_name", "artifact"])
def test_the_database_keeps_a_used_version_as_it_is(fleet: Fleet, field: str) -> None:
    version = fleet.version()
    changed = Version.objects.filter(pk=version.pk)
    assert changed.update(**{field: "other"}) == 1
    fleet.static("http://10.0.0.5:1", version)
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        changed.update(**{field: "another"})
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        changed.update(params={"a": 1})
    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        changed.update(used_at=None)
    assert changed.update(description="a word more") == 1


def test_replicas_are_numbered_within_their_version(fleet: Fleet) -> None:
    v1, v2 = fleet.version("v1"), fleet.version("v2")
    ids = [
        fleet.static(f"http://10.0.0.5:{port}", version).id
        for port, version in enumerate([v1, v1, v2], start=1)
    ]
    assert ids == ["smol-v1-1", "smol-v1-2", "smol-v2-1"]


def test_the_number_of_a_removed_replica_is_not_given_again(fleet: Fleet) -> None:
    version = fleet.version()
    first = fleet.static("http://10.0.0.5:1", version)
    replica_remove(replica=first, actor=fleet.actor)
    again = fleet.static("http://10.0.0.5:1", version)
    assert again.id == "smol-v1-2"
    assert [replica.id for replica in replica_list()] == [again.id]
    assert record(first) == Record()


def test_ids_of_two_models_that_read_alike_never_collide(fleet: Fleet) -> None:
    for name in ("a.b", "a-b"):
        model = model_create(name=name, actor=fleet.actor)
        version = version_create(
            model=model, name="1", engine="generic", served_name="s", actor=fleet.actor
        )
        fleet.static("http://10.0.0.5:1", version)
    assert set(Replica.objects.values_list("id", flat=True)) == {"a-b-1-1", "a-b-1-2"}


def test_a_replica_with_a_wrong_field_is_refused_beside_it(fleet: Fleet) -> None:
    version, node, actor = fleet.version(), fleet.node, fleet.actor
    fleet.static("http://127.0.0.1:9000", version)

    def create(driver: str, address: str = "", node: Node | None = None) -> Replica:
        return replica_create(
            version=version, driver=driver, address=address, node=node, actor=actor
        )

    cases = [
        (("docker", "http://10.0.0.5:1"), "bad_choice", "driver"),
        (("static", "10.0.0.5:1"), "bad_address", "address"),
        (("static", "http://169.254.169.254"), "address_refused", "address"),
        (("static", "http://10.0.0.5:1", node), "unexpected", "node"),
        (("static", "http://127.0.0.1:9000"), "duplicate", "address"),
        (("static", "http://127.1:9000/"), "duplicate", "address"),
        (("process",), "required", "node"),
        (("process", "http://10.0.0.5:1", node), "unexpected", "address"),
    ]
    for arguments, code, field in cases:
        assert refused(lambda a=arguments: create(*a)) == (code, field)  # type: ignore[misc]


def test_two_versions_may_stand_at_one_address(fleet: Fleet) -> None:
    """One engine may serve two names."""
    fleet.static("http://10.0.0.5:1", fleet.version("v1"))
    fleet.static("http://10.0.0.5:1", fleet.version("v2"))
    assert replica_list().count() == 2


def test_draining_is_live_at_once_and_written_once(fleet: Fleet, actor: Actor) -> None:
    replica = fleet.static("http://10.0.0.5:1")
    replica_admin_set(replica=replica, state=Admin.DRAINING, actor=actor)
    replica_admin_set(replica=replica, state=Admin.DRAINING, actor=actor)
    axis = record(replica).admin
    assert axis is not None and axis.state is Admin.DRAINING
    replica.refresh_from_db()
    assert axis.since == replica.admin_since.timestamp()
    assert actions().count("replica.drain") == 1


def test_a_change_made_without_redis_is_kept(
    fleet: Fleet, actor: Actor, valkey_server: services.Valkey
) -> None:
    replica = fleet.static("http://10.0.0.5:1")
    valkey_server.kill()
    try:
        replica_admin_set(replica=replica, state=Admin.DISABLED, actor=actor)
        [view] = replica_views(replica_list())
        assert view.state is None
    finally:
        valkey_server.start()
    replica.refresh_from_db()
    assert replica.admin_state == Admin.DISABLED


def test_a_static_replica_is_not_ours_to_start(fleet: Fleet, actor: Actor) -> None:
    replica = fleet.static("http://10.0.0.5:1")
    for call in (
        lambda: replica_running_set(replica=replica, running=False, actor=actor),
        lambda: replica_restart(replica=replica, actor=actor),
    ):
        assert refused(call)[0] == "not_managed"


def test_a_removed_replica_cannot_be_brought_back(fleet: Fleet, actor: Actor) -> None:
    replica = fleet.replica()
    replica_remove(replica=replica, actor=actor)
    replica_restart(replica=replica, actor=actor)
    replica_running_set(replica=replica, running=True, actor=actor)
    replica_admin_set(replica=replica, state=Admin.DRAINING, actor=actor)
    replica_remove(replica=replica, actor=actor)
    replica.refresh_from_db()
    assert (replica.wanted_running, replica.wanted_start) == (False, 1)
    assert actions()[-1] == "replica.remove"
    assert actions().count("replica.remove") == 1


def test_a_restart_moves_the_wanted_start(fleet: Fleet, actor: Actor) -> None:
    replica = fleet.replica()
    replica_running_set(replica=replica, running=False, actor=actor)
    replica_restart(replica=replica, actor=actor)
    replica.refresh_from_db()
    assert (replica.wanted_running, replica.wanted_start) == (True, 2)
    assert actions()[-2:] == ["replica.stop", "replica.restart"]


def test_a_model_with_replicas_stays(fleet: Fleet, actor: Actor) -> None:
    fleet.static("http://10.0.0.5:1")
    assert refused(lambda: model_delete(model=fleet.model, actor=actor))[0] == "in_use"
    empty = model_create(name="empty", actor=actor)
    model_delete(model=empty, actor=actor)
    assert not Model.objects.filter(name="empty").exists()


def test_a_node_is_registered_once_and_may_move(fleet: Fleet, actor: Actor) -> None:
    first = node_register(name="gpu-1", host="10.0.0.7", actor=actor)
    again = node_register(name="gpu-1", host="10.0.0.8", actor=actor)
    node_register(name="gpu-1", host="10.0.0.8", actor=actor)
    assert (first.pk, again.host) == (again.pk, "10.0.0.8")
    assert actions()[-2:] == ["node.create", "node.update"]
    assert refused(lambda: node_register(name="a b", actor=actor))[1] == "name"


def test_an_axis_written_twice_moves_no_number(
    fleet: Fleet, valkey: redis.Redis
) -> None:
    replica = fleet.static("http://10.0.0.5:1")
    axis = record(replica).admin
    assert axis is not None
    number = valkey.get("sluice:replicas#number")
    assert not live.axis_write(replica.id, axis)
    assert valkey.get("sluice:replicas#number") == number
    live.record_delete(replica.id)
    assert valkey.get("sluice:replicas#number") != number
