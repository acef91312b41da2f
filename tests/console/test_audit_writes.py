"""Every service that changes something leaves one record, with both sides of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cluster.actor import Actor
from cluster.health import Admin
from cluster.models import AuditRecord
from cluster.services import (
    model_create,
    model_delete,
    model_update,
    node_register,
    replica_admin_set,
    replica_create,
    replica_remove,
    replica_restart,
    replica_running_set,
    version_create,
)
from console.accounts.attempts import attempt_begin
from console.accounts.models import SignIn, User
from console.accounts.services import token_issue, token_revoke
from console.accounts.sessions import session_revoke, sessions_revoke
from console.accounts.users import (
    user_active_set,
    user_add,
    user_grant,
    user_password_reset,
    user_unlock,
)
from routing.selectors import route_get
from routing.services import (
    generation_restore,
    key_issue,
    key_revoke,
    key_update,
    route_settings_set,
    team_create,
    team_enabled_set,
    weights_set,
)
from tests import fleet

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
ADA = Actor("user", "ada", "127.0.0.1")


@contextmanager
def one_record(action: str) -> Iterator[list[AuditRecord]]:
    """Exactly one record of this action, and none of another."""
    last = AuditRecord.objects.order_by("-id").values_list("id", flat=True).first()
    found: list[AuditRecord] = []
    yield found
    found += AuditRecord.objects.filter(id__gt=last or 0).order_by("id")
    assert [record.action for record in found] == [action]
    (record,) = found
    assert (record.actor_kind, record.actor_name) == ("user", "ada")
    assert record.actor_address == "127.0.0.1" and record.target
    ends = action.rpartition(".")[2]
    assert (record.before is None) == (ends in ("create", "issue")), record.before
    assert (record.after is None) == (ends == "delete"), record.after


def test_what_is_done_to_models_versions_and_nodes_is_on_record() -> None:
    with one_record("model.create") as found:
        model = model_create(name="m", description="first", actor=ADA)
    assert found[0].after == {"kind": "chat", "description": "first"}
    with one_record("model.update"):
        model_update(model=model, description="second", actor=ADA)
    with one_record("model.delete") as found:
        model_delete(model=model, actor=ADA)
    gone = {"kind": "chat", "description": "second", "versions": []}
    assert found[0].before == gone
    model = model_create(name="n", actor=ADA)
    with one_record("version.create") as found:
        version_create(
            model=model, name="v1", engine="vllm", served_name="n", actor=ADA
        )
    assert found[0].after["artifact_sha256"] == ""
    with one_record("node.create"):
        node_register(name="gpu-a", host="10.0.0.7", actor=ADA)
    with one_record("node.update") as found:
        node_register(name="gpu-a", host="10.0.0.8", actor=ADA)
    assert found[0].before == {"host": "10.0.0.7"}


def test_what_is_done_to_replicas_is_on_record() -> None:
    model = fleet.model_add("m", "v1")
    node = node_register(name="gpu-a", actor=ADA)
    version = model.versions.get()
    with one_record("replica.create"):
        replica = replica_create(
            version=version, driver="process", node=node, actor=ADA
        )
    with one_record("replica.stop") as found:
        replica_running_set(replica=replica, running=False, force=True, actor=ADA)
    assert found[0].before == {"running": True}
    assert found[0].after["running"] is False
    with one_record("replica.start") as found:
        replica_running_set(replica=replica, running=True, actor=ADA)
    assert found[0].after == {"running": True}
    with one_record("replica.restart") as found:
        replica_restart(replica=replica, actor=ADA)
    assert (found[0].before["start"], found[0].after["start"]) == (1, 2)
    for state, action in (
        (Admin.DRAINING, "replica.drain"),
        (Admin.DISABLED, "replica.disable"),
        (Admin.ENABLED, "replica.enable"),
    ):
        with one_record(action) as found:
            replica_admin_set(replica=replica, state=state, actor=ADA)
        assert found[0].after == {"state": state}
    with one_record("replica.remove") as found:
        replica_remove(replica=replica, actor=ADA)
    assert found[0].before["node"] == "gpu-a"


@pytest.mark.django_db(transaction=True)
def test_what_is_done_to_routes_is_on_record_with_weights_and_settings() -> None:
    fleet.model_add("m", "v1", "v2")
    route = route_get(model="m")
    seen = route.generation
    with one_record("weights.set") as found:
        weights_set(
            route=route, weights={"v1": 9000, "v2": 1000}, generation=seen, actor=ADA
        )
    assert found[0].after["weights"] == {"v1": 9000, "v2": 1000}
    with one_record("route.set") as found:
        route_settings_set(
            route=route, settings={"retries": 3}, generation=seen + 1, actor=ADA
        )
    assert found[0].after["settings"]["retries"] == 3
    with one_record("route.restore") as found:
        generation_restore(route=route, number=seen, generation=seen + 2, actor=ADA)
    assert found[0].before["generation"] == seen + 2


def test_what_is_done_to_teams_and_keys_is_on_record_without_a_secret() -> None:
    with one_record("team.create") as found:
        team = team_create(slug="t", actor=ADA)
    assert found[0].after == {"name": "t"}
    with one_record("team.disable") as found:
        team_enabled_set(team=team, enabled=False, actor=ADA)
    assert (found[0].before, found[0].after) == ({"enabled": True}, {"enabled": False})
    with one_record("team.enable"):
        team_enabled_set(team=team, enabled=True, actor=ADA)
    with one_record("key.issue"):
        key, text = key_issue(team=team, name="k", actor=ADA)
    with one_record("key.update") as found:
        key_update(key=key, name="l", actor=ADA)
    assert (found[0].before, found[0].after) == ({"name": "k"}, {"name": "l"})
    with one_record("key.revoke"):
        key_revoke(key=key, actor=ADA)
    kept = json.dumps(list(AuditRecord.objects.values("target", "before", "after")))
    assert text not in kept and text.partition("-")[2][12:] not in kept
    assert key.secret_sha256 not in kept


def test_what_is_done_to_people_is_on_record_without_a_password_or_a_token() -> None:
    with one_record("user.create") as found:
        user, password = user_add(username="eve", role="viewer", actor=ADA)
    assert found[0].after == {"role": "viewer", "leads": []}
    with one_record("user.role") as found:
        user_grant(username="eve", role="operator", leads=(), actor=ADA)
    assert found[0].before["role"] == "viewer"
    with one_record("token.issue") as found:
        token, text = token_issue(
            user=User.objects.get(username="eve"), name="ci", actor=ADA, scopes=["read"]
        )
    assert found[0].after == {"scopes": ["read"], "expires_at": None}
    with one_record("token.revoke") as found:
        token_revoke(token=token, actor=ADA)
    assert found[0].before == {"scopes": ["read"], "expires_at": None}
    with one_record("user.password"):
        user, second = user_password_reset(username="eve", actor=ADA)
    with one_record("user.deactivate") as found:
        user_active_set(username="eve", active=False, actor=ADA)
    assert (found[0].before, found[0].after) == ({"active": True}, {"active": False})
    with one_record("user.activate"):
        user_active_set(username="eve", active=True, actor=ADA)
    attempt_begin(username="eve", address="10.0.0.1")
    with one_record("user.unlock") as found:
        user_unlock(username="eve", actor=ADA)
    assert found[0].before == {"failed_logins": 1}
    kept = json.dumps(list(AuditRecord.objects.values("target", "before", "after")))
    assert not [one for one in (password, second, text) if one in kept]
    assert user.password not in kept and token.secret_sha256 not in kept


def test_ended_sessions_are_on_record_with_how_many_remain() -> None:
    user, _password = user_add(username="eve", role="viewer", actor=ADA)
    rows = [
        SignIn.objects.create(user=user, session_key=f"k{n}", address="10.0.0.1")
        for n in range(4)
    ]
    with one_record("session.revoke") as found:
        session_revoke(sign_in=rows[0], actor=ADA)
    assert found[0].before == {"address": "10.0.0.1", "agent": ""}
    with one_record("session.revoke") as found:
        assert sessions_revoke(user=user, actor=ADA, but="k1") == 2
    assert (found[0].before, found[0].after) == ({"sessions": 3}, {"sessions": 1})


def test_what_changes_nothing_leaves_no_record() -> None:
    team = team_create(slug="t", actor=ADA)
    model = fleet.model_add("m", "v1")
    replica = fleet.replica_add(model, "v1", 8001, probe=None)
    node_register(name="gpu-a", actor=ADA)
    key, _text = key_issue(team=team, name="k", actor=ADA)
    count = AuditRecord.objects.count()
    same: list[Callable[[], object]] = [
        lambda: team_enabled_set(team=team, enabled=True, actor=ADA),
        lambda: model_update(model=model, description="", actor=ADA),
        lambda: replica_admin_set(replica=replica, state=Admin.ENABLED, actor=ADA),
        lambda: node_register(name="gpu-a", actor=ADA),
        lambda: key_update(key=key, name="k", actor=ADA),
    ]
    for call in same:
        call()
    assert AuditRecord.objects.count() == count
