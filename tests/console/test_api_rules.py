"""What holds for the whole API: who gets in, how failures look, what is described."""

from __future__ import annotations

import json
import logging
import re
from typing import Any, cast

import pytest
from django.db import OperationalError
from django.http import HttpResponse
from django.test import Client
from pytest_django.fixtures import Settings

from cluster.actor import SYSTEM
from cluster.models import AuditRecord, Model
from console.accounts.models import User
from console.accounts.services import token_revoke
from console.api.docs import schema_build
from routing.contracts.route import RouteSettings
from tests.console.api import Api, body_shape, common_rules, read, refusal

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def browser() -> Client:
    """A logged-in session; unlike Django's own test client it enforces CSRF."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_user("ada", role="admin"))
    return client


# Who gets in ---------------------------------------------------------------


@pytest.mark.parametrize("path", ["/models", "/openapi.json"])
@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer wrong",
        "Bearer sluice_" + "x" * 43,
        "Basic YTpi",
        "Bearer é",
    ],
)
def test_without_a_good_token_nobody_gets_in(
    api: Api, path: str, authorization: str
) -> None:
    response = api.call("get", path, authorization=authorization)
    assert refusal(response)[:2] == (401, "not_authenticated")
    assert response["WWW-Authenticate"] == "Bearer"


def test_without_anything_nobody_gets_in() -> None:
    for method in ("get", "post", "delete"):
        response = getattr(Client(), method)("/api/v1/models")
        common_rules(response)
        assert response.status_code in (401, 405)


def test_a_revoked_token_is_refused_at_once(api: Api) -> None:
    api.get("/models")
    token_revoke(token=api.token, actor=SYSTEM)
    assert api.call("get", "/models").status_code == 401


def test_the_token_of_a_deactivated_user_is_refused(api: Api) -> None:
    User.objects.update(is_active=False)
    assert api.call("get", "/models").status_code == 401


def test_a_wrong_token_never_falls_back_to_the_session(browser: Client) -> None:
    response = browser.get("/api/v1/models", headers={"Authorization": "Bearer no"})
    assert response.status_code == 401
    assert browser.get("/api/v1/models").status_code == 200


def test_a_session_writes_only_with_its_csrf_token(browser: Client) -> None:
    def post(**headers: str) -> HttpResponse:
        response = browser.post(
            "/api/v1/models",
            '{"name": "qwen"}',
            content_type="application/json",
            headers=headers,
        )
        answer = cast("HttpResponse", response)
        common_rules(answer)
        return answer

    refused = post()
    assert refusal(refused)[:2] == (403, "csrf")
    browser.cookies["sluice_csrf"] = "a" * 32
    assert refusal(post())[:2] == (403, "csrf")
    assert refusal(post(**{"X-CSRFToken": "b" * 32}))[:2] == (403, "csrf")
    foreign = {"X-CSRFToken": "a" * 32, "Origin": "http://evil.example"}
    assert refusal(post(**foreign))[:2] == (403, "csrf")
    assert not Model.objects.exists()
    assert post(**{"X-CSRFToken": "a" * 32}).status_code == 201
    record = AuditRecord.objects.get(action="model.create")
    assert (record.actor_kind, record.actor_name) == ("user", "ada")


def test_a_token_needs_no_csrf(api: Api) -> None:
    api.client = Client(enforce_csrf_checks=True)
    assert api.post("/models", {"name": "qwen"}).status_code == 201


def test_the_address_on_record_is_the_one_behind_a_trusted_proxy(
    api: Api, settings: Settings
) -> None:
    settings.TRUSTED_PROXIES = ["127.0.0.1"]
    api.post("/models", {"name": "qwen"}, x_forwarded_for="203.0.113.9")
    record = AuditRecord.objects.get(action="model.create")
    assert record.actor_address == "203.0.113.9"


# How failures look ---------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["", "/", "/none", "/models/", "/models/qwen/", "/models/a/b/c", "/v2"]
)
def test_an_unknown_path_is_a_problem_too(api: Api, path: str) -> None:
    for method in ("get", "post"):
        assert refusal(api.call(method, path))[:2] == (404, "not_found")


@pytest.mark.parametrize("path", ["/api/", "/api/v2/models"])
def test_beside_the_version_there_is_nothing(path: str) -> None:
    response = cast("HttpResponse", Client().get(path))
    common_rules(response)
    assert response.status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("delete", "/models", {"GET", "POST"}),
        ("post", "/models/qwen", {"GET", "PATCH", "DELETE"}),
        ("get", "/keys/x/revoke", {"POST"}),
        ("options", "/gateways", {"GET"}),
        ("post", "/openapi.json", {"GET"}),
    ],
)
def test_a_wrong_method_says_which_are_right(
    api: Api, method: str, path: str, allowed: set[str]
) -> None:
    response = api.call(method, path)
    assert refusal(response)[:2] == (405, "method_not_allowed")
    assert set(response["Allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"name=qwen",
        b"\xff\xfe",
        b'{"name": NaN}',
        b'{"name": Infinity}',
        b'{"name": "x", "params": 1e999}',
        b'{"name": "a", "name": "b"}',
        b'{"name": "a\\u0000"}',
        b'{"name": "a\\ud800"}',
        b'{"name": "a", "x": ["\\u0000"]}',
        b'{"a\\u0000": 1}',
        b'{"x": ' + b"1" * 5000 + b"}",
        b"[" * 100_000,
        b'{"name": "x"} trailing',
    ],
)
def test_what_is_no_plain_json_is_a_bad_request(api: Api, body: bytes) -> None:
    assert refusal(api.post("/models", body))[:2] == (400, "bad_json")
    assert not Model.objects.exists()


def test_a_body_over_the_limit_is_refused_unread(api: Api) -> None:
    body = b'{"name": "' + b"x" * 3_000_000 + b'"}'
    assert refusal(api.post("/models", body))[:2] == (413, "too_large")


def test_a_body_of_unstated_length_is_refused(api: Api) -> None:
    response = api.post("/models", {"name": "x"}, transfer_encoding="chunked")
    assert refusal(response)[:2] == (411, "length_required")


def test_an_unexpected_failure_tells_nothing_but_its_id(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr("cluster.services.model_create", fail)
    with caplog.at_level(logging.ERROR):
        response = api.post("/models", {"name": "x"})
    assert refusal(response)[:2] == (500, "internal")
    assert b"secret inside" not in response.content
    assert read(response)["request_id"] == response["X-Request-Id"]
    record = next(r for r in caplog.records if r.name == "console.api.problems")
    assert vars(record)["data"]["request_id"] == response["X-Request-Id"]
    assert record.exc_info


def test_an_absent_database_is_said_so(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_text: str) -> None:
        raise OperationalError("could not connect to 10.0.0.1")

    monkeypatch.setattr("console.api.auth.token_find", away)
    response = api.call("get", "/models")
    assert refusal(response)[:2] == (503, "database_unavailable")
    assert b"10.0.0.1" not in response.content


def test_messages_come_in_the_language_of_the_caller(api: Api) -> None:
    """Codes never change with it."""
    response = api.post("/models", {}, accept_language="zh-hans")
    assert refusal(response)[2] == [("name", "required")]


# What is described ---------------------------------------------------------


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in schema_build()["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_operation_is_described_whole() -> None:
    ids = [operation["operationId"] for _method, _path, operation in operations()]
    assert len(ids) == len(set(ids)) > 30
    for method, path, operation in operations():
        assert operation["tags"] and operation["description"], path
        assert operation["security"] == [{"BearerToken": []}, {"Session": []}]
        answers = operation["responses"]
        expected = {"401", "500", "503"}
        expected |= {"404"} if "{" in path else set()
        expected |= set() if method == "get" else {"403"}
        expected |= {"400", "413", "422"} if "requestBody" in operation else set()
        expected |= {"428", "409"} if method in ("put", "patch") else set()
        assert expected <= set(answers), (method, path)
        for status, answer in answers.items():
            if int(status) >= 400:
                assert set(answer["content"]) == {"application/problem+json"}
        named = re.findall(r"{(\w+)}", path)
        shown = [p["name"] for p in operation["parameters"] if p["in"] == "path"]
        assert sorted(named) == sorted(shown), path


def test_every_reference_in_the_schema_leads_somewhere() -> None:
    text = json.dumps(schema_build())
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert names <= set(schema_build()["components"]["schemas"])
    assert set(re.findall(r'"\$ref": "([^"]+)"', text)) == {
        f"#/components/schemas/{name}" for name in names
    }
    assert schema_build()["openapi"].startswith("3.")


def test_the_settings_of_a_route_are_described_by_the_value_that_checks_them() -> None:
    schemas = schema_build()["components"]["schemas"]
    fields = set(RouteSettings.__struct_fields__)
    assert set(schemas["RoutePut"]["properties"]) == fields | {"generation"}
    assert schemas["Timeouts"]["properties"]["connect_s"]["minimum"] == 0.1


def test_every_example_of_a_body_fits_its_own_schema(api: Api) -> None:
    """The curl examples of the page are real: sent as they are, none is unfit."""
    sent = 0
    for method, path, operation in operations():
        content = operation.get("requestBody", {}).get("content", {})
        for kind in content.values():
            (example,) = body_shape(kind)["examples"]
            local = re.sub(r"{\w+}", "qwen", path.removeprefix("/api/v1"))
            answer = read(api.call(method, local, example))
            # Only a service may refuse it: this is an empty cluster.
            assert answer.get("code") != "invalid", (path, answer)
            sent += 1
    assert sent == 13


def test_the_schema_is_for_those_who_are_let_in(api: Api, browser: Client) -> None:
    assert api.get("/openapi.json") == schema_build()
    assert browser.get("/api/v1/openapi.json").json() == schema_build()


def test_the_page_shows_every_operation_under_the_strict_policy(
    browser: Client, settings: Settings
) -> None:
    settings.LOGIN_URL = "/login/"
    anonymous = Client().get("/api/v1/docs")
    assert anonymous.status_code == 302
    assert anonymous["Location"].startswith("/login/")
    response = browser.get("/api/v1/docs")
    assert response.status_code == 200
    assert "script-src 'self'" in response["Content-Security-Policy"]
    html = response.content.decode()
    for _method, path, operation in operations():
        assert f'id="{operation["operationId"]}"' in html
        assert f"<code>{path}</code>" in html
    assert "<script" not in html and "style=" not in html and "<style" not in html
    assert not re.search(r"""(src|href)=["'](https?:)?//""", html)
