"""Models and versions through the API."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from cluster.models import AuditRecord, Model, Version
from routing.models import Revision
from tests.console.api import Api, read, refusal

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def api() -> Api:
    return Api()


def test_a_model_is_made_shown_listed_and_deleted(api: Api) -> None:
    made = api.post("/models", {"name": "qwen", "description": "For the desk"})
    assert made.status_code == 201
    assert made["Location"] == "/api/v1/models/qwen"
    shown = api.get("/models/qwen")
    assert shown == read(made)
    assert shown["kind"] == "chat"
    assert shown["created_at"].endswith("Z")
    assert api.get("/models") == {"items": [shown], "next": None}
    assert api.delete("/models/qwen").status_code == 204
    assert api.call("get", "/models/qwen").status_code == 404


def test_what_was_done_is_on_record_with_the_token_and_its_address(api: Api) -> None:
    api.model(versions=())
    record = AuditRecord.objects.get(action="model.create")
    assert (record.actor_kind, record.actor_name) == ("token", "ci")
    assert record.actor_address == "127.0.0.1"


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({}, "name", "required"),
        ({"name": ""}, "name", "required"),
        ({"name": "a b"}, "name", "bad_name"),
        ({"name": "ä"}, "name", "bad_name"),
        ({"name": "x" * 101}, "name", "too_long"),
        ({"name": "QWEN"}, "name", "duplicate"),
        ({"name": 7}, "name", "wrong_type"),
        ({"name": "x", "kind": "image"}, "kind", "bad_choice"),
        ({"name": "x", "description": "y" * 501}, "description", "too_long"),
        ({"name": "x", "nmae": "y"}, "nmae", "unknown_field"),
        ([], "", "wrong_type"),
        (None, "", "required"),
    ],
)
def test_a_wrong_model_is_refused_beside_its_field(
    api: Api, body: Any, field: str, code: str
) -> None:
    api.model(versions=())
    status, _code, fields = refusal(api.post("/models", body))
    assert status == 422
    assert fields == [(field, code)]
    assert Model.objects.count() == 1


def test_two_wrong_fields_are_both_named(api: Api) -> None:
    status, code, fields = refusal(api.post("/models", {"kind": 1, "x": 2}))
    assert (status, code) == (422, "invalid")
    assert sorted(fields) == [
        ("kind", "wrong_type"),
        ("name", "required"),
        ("x", "unknown_field"),
    ]


def test_a_change_needs_the_etag_that_was_read(api: Api) -> None:
    api.model(versions=())
    etag = api.call("get", "/models/qwen")["ETag"]
    change = {"description": "new"}
    assert refusal(api.patch("/models/qwen", change))[:2] == (
        428,
        "precondition_required",
    )
    changed = api.patch("/models/qwen", change, if_match=etag)
    assert read(changed)["description"] == "new"
    assert changed["ETag"] == api.call("get", "/models/qwen")["ETag"] != etag
    stale = api.patch("/models/qwen", {"description": "other"}, if_match=etag)
    assert refusal(stale)[:2] == (409, "conflict")
    assert f'"{read(stale)["current"]}"' == changed["ETag"]
    assert api.get("/models/qwen")["description"] == "new"
    too_long = {"description": "x" * 501}
    refused = api.patch("/models/qwen", too_long, if_match=changed["ETag"])
    assert refusal(refused)[2] == [("description", "too_long")]
    renamed = api.patch("/models/qwen", {"name": "q"}, if_match=changed["ETag"])
    assert refusal(renamed)[2] == [("name", "unknown_field")]


def test_an_etag_that_is_sent_counts_for_a_delete_too(api: Api) -> None:
    api.model()
    assert api.delete("/models/qwen", if_match='"old"').status_code == 409
    etag = api.call("get", "/models/qwen")["ETag"]
    assert api.delete("/models/qwen", if_match=f"W/{etag}").status_code == 204
    assert not Version.objects.exists()


def test_a_model_that_had_replicas_is_not_deleted(api: Api) -> None:
    api.model()
    replica = api.replica("http://127.0.0.1:9001")
    assert refusal(api.delete("/models/qwen"))[:2] == (422, "in_use")
    api.delete(f"/replicas/{replica}")
    assert refusal(api.delete("/models/qwen"))[:2] == (422, "in_use")


def test_the_first_version_gets_all_traffic_and_is_published(api: Api) -> None:
    before = Revision.objects.count()
    api.model()
    assert Revision.objects.count() > before
    versions = api.get("/models/qwen/versions")["items"]
    assert [version["name"] for version in versions] == ["v1", "v2"]
    assert api.get("/models/qwen/weights")["wanted"] == {"v1": 10_000, "v2": 0}


def test_a_version_keeps_what_it_was_given(api: Api) -> None:
    api.model(versions=())
    body = {
        "name": "v1",
        "engine": "llamacpp",
        "served_name": "qwen",
        "artifact": "/models/qwen.gguf",
        "artifact_sha256": "A" * 64,
        "params": {"ctx-size": 2048, "flash-attn": True, "temp": 0.5},
        "description": "first",
    }
    made = api.post("/models/qwen/versions", body)
    assert made["Location"] == "/api/v1/models/qwen/versions/v1"
    shown = api.get("/models/qwen/versions/v1")
    assert shown == read(made)
    expected = body | {"artifact_sha256": "a" * 64, "model": "qwen", "used_at": None}
    assert {name: shown[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"name": "v0"}, "name", "duplicate"),
        ({"engine": "cuda"}, "engine", "bad_choice"),
        ({"served_name": ""}, "served_name", "required"),
        ({"artifact_sha256": "abc"}, "artifact_sha256", "bad_checksum"),
        ({"artifact": "x" * 501}, "artifact", "too_long"),
        ({"params": {"--ctx": 1}}, "params", "bad_param"),
        ({"params": {"a": {"b": 1}}}, "params", "bad_param"),
        ({"params": {"a": "x" * 20_000}}, "params", "too_long"),
        ({"params": [1]}, "params", "wrong_type"),
        ({"weight": 1}, "weight", "unknown_field"),
    ],
)
def test_a_wrong_version_is_refused_beside_its_field(
    api: Api, change: dict[str, Any], field: str, code: str
) -> None:
    api.model(versions=("v0",))
    body = {"name": "v1", "engine": "generic", "served_name": "q"} | change
    response = api.post("/models/qwen/versions", body)
    assert (response.status_code, refusal(response)[2]) == (422, [(field, code)])
    assert Version.objects.count() == 1


@pytest.mark.parametrize(
    "path",
    [
        "/models/none",
        "/models/none/versions",
        "/models/none/versions/v1",
        "/models/qwen/versions/none",
        "/models/none/route",
        "/models/none/weights",
        "/models/none/weights/history",
        "/models/%00",
        "/models/qwen/versions/%00",
        "/models/%00/weights",
        "/replicas/none",
        "/replicas/%00",
        "/nodes/none",
        "/nodes/%00",
        "/revisions/999999",
        "/revisions/99999999999999999999999",
        "/revisions/one",
        "/teams/none",
        "/teams/%00",
        "/teams/none/keys",
        "/keys/none",
        "/keys/%00",
    ],
)
def test_what_does_not_exist_is_not_found(api: Api, path: str) -> None:
    api.model()
    assert refusal(api.call("get", path))[:2] == (404, "not_found")


def test_pages_stay_right_while_models_come_and_go(api: Api) -> None:
    for name in ("b", "d", "f", "h", "j"):
        Model.objects.create(name=name)
    first = api.get("/models?limit=2")
    assert [row["name"] for row in first["items"]] == ["b", "d"]
    Model.objects.create(name="a")  # before the cursor: not shown twice nor shifting
    Model.objects.create(name="e")  # after it: shown
    Model.objects.filter(name="d").delete()  # the cursor's own row is gone
    second = api.get(f"/models?limit=3&cursor={first['next']}")
    assert [row["name"] for row in second["items"]] == ["e", "f", "h"]
    third = api.get(f"/models?limit=3&cursor={second['next']}")
    assert [row["name"] for row in third["items"]] == ["j"]
    assert third["next"] is None


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=", "cursor"),
        ("page=2", "page"),
        ("limt=2", "limt"),
    ],
)
def test_a_wrong_query_is_refused(api: Api, query: str, field: str) -> None:
    status, _code, fields = refusal(api.call("get", f"/models?{query}"))
    assert status == 422
    assert [name for name, _code in fields] == [field]


def test_a_cursor_of_another_list_is_refused(api: Api) -> None:
    api.model()
    cursor = api.get("/models/qwen/versions?limit=1")["next"]
    response = api.call("get", f"/models?cursor={cursor}")
    assert refusal(response)[2] == [("cursor", "bad_cursor")]


@pytest.mark.parametrize("path", ["/models", "/models/qwen/versions"])
def test_a_list_costs_the_same_queries_for_one_row_and_for_fifty(
    api: Api, path: str
) -> None:
    def cost() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            api.get(path)
        return len(queries)

    api.model(versions=("v1",))
    one = cost()
    model = Model.objects.get()
    for n in range(50):
        Model.objects.create(name=f"m{n}")
        Version.objects.create(model=model, name=f"w{n}", engine="generic")
    assert cost() == one <= 3
