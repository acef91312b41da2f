"""Who may do what: roles, scopes, teams led, and that every door asks."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from console.accounts.grants import SCOPES_OF, Grant, Role, Scope
from console.accounts.models import User
from console.api.application import api
from console.pages.urls import urlpatterns
from routing.services import team_create
from tests.console.api import Api, refusal
from tests.fleet import ACTOR, model_add

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


def test_each_role_may_all_that_the_one_before_may() -> None:
    viewer, operator, admin = (SCOPES_OF[role] for role in Role)
    assert viewer < operator < admin == frozenset(Scope)


def test_a_refusal_names_the_least_role_that_may() -> None:
    viewer = Grant(Role.VIEWER, SCOPES_OF[Role.VIEWER])
    assert "operator" in viewer.refusal(Scope.TRAFFIC)
    assert "admin" in viewer.refusal(Scope.TEAMS)
    assert viewer.refusal(Scope.READ) == ""


def test_every_write_of_the_api_names_its_scope() -> None:
    for path, router in api._routers:
        for name, view in router.path_operations.items():
            for operation in view.operations:
                named: list[Any] = [*operation.auth_callbacks]
                writes = set(operation.methods) - {"GET", "HEAD"}
                scopes = {auth.scope for auth in named} - {Scope.READ}
                assert scopes or not writes, (path, name, operation.methods)


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_a_role_decides_over_pages_and_api_alike(role: str) -> None:
    model_add("qwen", "v1")
    user = User.objects.create_user("eve", role=role)
    page, allowed = Client(), role != "viewer"
    page.force_login(user)
    sent = page.post("/new/model", {"name": "m", "kind": "chat"})
    assert sent.status_code == (302 if allowed else 403)
    sent = page.post("/new/team", {"slug": "t"})
    assert sent.status_code == (302 if role == "admin" else 403)
    assert page.get("/new/model").status_code == 200
    api_ = Api()
    User.objects.filter(username="grace").update(role=role)
    made = api_.post("/models", {"name": "other"})
    assert made.status_code == (201 if allowed else 403)
    if not allowed:
        assert refusal(made) == (403, "not_permitted", [])


def test_whoever_leads_a_team_manages_its_keys_and_no_others() -> None:
    mine = team_create(slug="mine", name="", actor=ACTOR)
    team_create(slug="other", name="", actor=ACTOR)
    Api()
    user = User.objects.get(username="grace")
    user.role = Role.VIEWER.value
    user.save()
    user.leads.add(mine)
    api_ = Api()
    assert api_.post("/teams/mine/keys", {"name": "k"}).status_code == 201
    assert api_.post("/teams/other/keys", {"name": "k"}).status_code == 403
    assert api_.post("/models", {"name": "m"}).status_code == 403


def test_a_token_never_does_more_than_its_scopes() -> None:
    api_ = Api()
    api_.token.scopes = ["read", "fleet"]
    api_.token.save()
    assert api_.post("/models", {"name": "m"}).status_code == 201
    refused = api_.post("/teams", {"slug": "t"})
    assert refused.status_code == 403 and b"scope teams" in refused.content


def test_every_page_that_writes_names_its_scope() -> None:
    # Whose answer depends on the team of a key, and a person's own affairs.
    own = {
        "login",
        "logout",
        "language",
        "theme",
        "key",
        "key-new",
        "key-revoke",
        "undo",
    }
    own |= {name for p in urlpatterns if (name := str(p.name)).startswith("profile")}
    user = User.objects.create_user("v", role="admin")
    writing = [p for p in urlpatterns if isinstance(p, URLPattern)]
    for pattern in writing:
        needs = getattr(pattern.callback, "needs", None)
        if pattern.name in own or needs is not None:
            continue
        client = Client()
        client.force_login(user)
        arguments = dict.fromkeys(pattern.pattern.converters, "x")
        url = reverse(pattern.name or "", kwargs=arguments)
        assert client.post(url).status_code in (404, 405), pattern.name
