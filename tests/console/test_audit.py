"""The audit log: only grows, is searched, compared and taken away."""

from __future__ import annotations

import csv
import importlib
import json
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client

from cluster.actor import Actor
from cluster.models import AuditRecord
from cluster.selectors.audit import AuditFind, audit_find
from cluster.services.audit import audit_write
from console.accounts.models import User
from console.audit_diff import Changed, changed
from routing.services import key_issue, team_create
from tests.console.api import Api, read

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
BOB = Actor("token", "bob", "10.0.0.7")
HOSTILE = "=cmd|<script>alert(1)</script>\u202e"


def record(target: str = "t", action: str = "key.update", **fields: Any) -> None:
    audit_write(actor=BOB, action=action, target=target, **fields)


def test_the_database_refuses_to_change_or_remove_a_record() -> None:
    record()
    if connection.vendor == "sqlite":
        module = importlib.import_module("cluster.migrations.0005_audit_append_only")
        with connection.cursor() as cursor:
            cursor.execute(module.SQLITE["delete"])
    with pytest.raises(DatabaseError, match="only grows"), transaction.atomic():
        AuditRecord.objects.update(actor_name="eve")
    with pytest.raises(DatabaseError, match="only grows"), transaction.atomic():
        AuditRecord.objects.all().delete()
    assert AuditRecord.objects.get().actor_name == "bob"


def test_only_what_differs_is_shown_and_nesting_with_dots() -> None:
    before = {"a": 1, "b": {"c": True, "d": [1]}, "same": "x"}
    after = {"a": 2, "b": {"c": True, "d": [1, 2], "e": "new"}, "same": "x"}
    assert changed(before, after) == [
        Changed("a", "1", "2"),
        Changed("b.d", "[1]", "[1, 2]"),
        Changed("b.e", None, "new"),
    ]
    assert changed(None, {}) == [] and changed(None, {"n": None}) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("actor=bob", 2),
        ("actor=bo", 0),
        ("action=key", 1),
        ("action=key.update", 1),
        ("action=key.revoke", 0),
        ("target=qwen", 1),
        ("text=0.0.7", 2),
        ("text=QWE&actor=bob", 1),
        ("from=2999-01-01T00:00:00", 0),
        ("to=2999-01-01T00:00:00", 2),
        ("from=nonsense", 2),
    ],
)
def test_filters_stand_in_the_address_and_all_must_fit(
    page: Client, query: str, found: int
) -> None:
    record("qwen", "model.create")
    record("t/k")
    text = page.get(f"/audit?{query}").content.decode()
    assert text.count("<tr id=") == found
    assert ("No record fits" in text) == (found == 0)
    assert ('aria-invalid="true"' in text) == ("nonsense" in query)


def test_pages_follow_each_other_without_a_gap(page: Client) -> None:
    for n in range(120):
        record(f"t{n}")
    seen, query = [], "?actor=bob"
    while query:
        text = page.get(f"/audit{query}").content.decode()
        seen += [part.partition('"')[0] for part in text.split('<tr id="r')[1:]]
        _, found, rest = text.partition('rel="next" href="')
        query = rest.partition('"')[0].replace("&amp;", "&") if found else ""
    ids = list(
        AuditRecord.objects.filter(actor_name="bob").values_list("pk", flat=True)
    )
    assert [int(one) for one in seen] == ids and len(ids) == 120


def test_a_change_of_weights_tells_both_sides_and_links_to_its_page(
    page: Client,
) -> None:
    weights = {"v1": 10_000, "v2": 0}
    after = {"weights": {"v1": 9000, "v2": 0}}
    record("qwen", "weights.set", before={"weights": weights}, after=after)
    text = page.get("/audit?action=weights.set").content.decode()
    assert "<del>10000</del><ins>9000</ins>" in text
    assert 'href="/models/qwen/traffic"' in text


def test_hostile_words_stay_words_on_the_page_and_in_the_files(page: Client) -> None:
    record(HOSTILE, after={HOSTILE: HOSTILE})
    assert "<script>alert" not in page.get("/audit").content.decode()
    answer = page.get("/audit.csv")
    (head, row) = csv.reader(answer.content.decode().splitlines())
    found = dict(zip(head, row, strict=True))
    assert found["target"] == f"'{HOSTILE}" and found["actor_name"] == "bob"
    (line,) = page.get("/audit.jsonl").content.decode().splitlines()
    assert json.loads(line)["after"] == {HOSTILE: HOSTILE}


def test_a_file_holds_exactly_what_fits(page: Client) -> None:
    record("one")
    record("other")
    rows = page.get("/audit.csv?target=one").content.decode().splitlines()
    assert len(rows) == 2 and "one" in rows[1]
    assert page.get("/audit.csv?from=x").status_code == 422
    assert page.get("/audit.exe").status_code == 404


def test_a_viewer_is_told_who_may_see_it() -> None:
    client = Client()
    client.force_login(User.objects.create_user("eve", role="viewer"))
    answer = client.get("/audit")
    assert answer.status_code == 403
    assert b"Needs the role operator" in answer.content
    assert b'href="/audit"' not in client.get("/").content


def test_the_api_searches_and_shows_alike() -> None:
    api = Api()
    record("qwen", "model.create", after={"kind": "chat"})
    found = api.get("/audit?actor=bob")["items"]
    assert [one["target"] for one in found] == ["qwen"]
    assert api.get(f"/audit/{found[0]['id']}") == found[0]
    assert api.call("get", "/audit/999999").status_code == 404
    refused = api.call("get", "/audit?who=bob")
    assert read(refused)["errors"][0]["field"] == "who"


def test_no_secret_of_a_key_reaches_the_log(page: Client) -> None:
    team = team_create(slug="t", name="", actor=BOB)
    _key, text = key_issue(team=team, name="k", actor=BOB)
    body = page.get("/audit.jsonl").content.decode()
    assert "key.issue" in body and text not in body and text[15:] not in body


@pytest.mark.parametrize(
    "find",
    [
        AuditFind(actor="bob"),
        AuditFind(action="key.revoke"),
        AuditFind(target="t/k"),
        AuditFind(actor="bob", text="x"),
    ],
)
def test_who_what_and_which_object_are_found_by_an_index(find: AuditFind) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # So small a table is read whole for good reason.
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute("SET LOCAL enable_sort = off")
    plan = audit_find(find)[:51].explain()
    assert "INDEX" in plan.upper() and "TEMP B-TREE" not in plan
    assert "Seq Scan" not in plan and "Sort" not in plan
