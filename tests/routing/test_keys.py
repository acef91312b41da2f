"""Keys: what they may be given, and how the gateways learn of every change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.db.models import F
from django.utils import timezone

from cluster import feed, live
from cluster.actor import SYSTEM, Actor
from cluster.errors import Refused
from cluster.models import AuditRecord
from cluster.services import model_create, model_delete
from routing.contracts.keys import KeyEntry, key_decode
from routing.models import ApiKey, Team
from routing.services import (
    key_entries,
    key_issue,
    key_revoke,
    key_update,
    keys_restore,
    team_create,
    team_enabled_set,
)
from routing.services.key_entries import keys_push, keys_push_unsent
from routing.services.reconcile import routing_reconcile

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]

NAMES = feed.feed_names(feed.KEYS)


@pytest.fixture
def team(actor: Actor) -> Team:
    return team_create(slug="search", actor=actor)


@pytest.fixture
def key(team: Team, actor: Actor) -> ApiKey:
    return key_issue(team=team, name="bot", actor=actor)[0]


def entry(key: ApiKey) -> KeyEntry:
    """The key as the gateways read it."""
    body = live.redis_client().get(NAMES.entry(key.id))
    assert isinstance(body, bytes)
    return key_decode(body)


def unsent() -> int:
    return ApiKey.objects.filter(sent__lt=F("change")).count()


def first_write_meets(
    monkeypatch: pytest.MonkeyPatch, event: Callable[[], object]
) -> None:
    """Let something happen between the first reading of keys and their writing."""
    write, events = key_entries._write, [event]

    def met(rows: Sequence[ApiKey]) -> None:
        if events:
            events.pop()()
        write(rows)

    monkeypatch.setattr(key_entries, "_write", met)


# What a key may be given ---------------------------------------------------------


def test_a_key_of_which_nothing_was_said_expires_in_90_days(key: ApiKey) -> None:
    assert key.expires_at is not None
    left = key.expires_at - timezone.now()
    assert timedelta(89.9) < left <= timedelta(90)
    assert (key.owner, key.tags, key.model_names, key.scopes) == ("", [], None, [])


def test_owner_and_tags_are_kept_in_one_spelling_and_on_record(
    team: Team, actor: Actor
) -> None:
    tags = [" night ", "batch", "night"]
    key, _text = key_issue(
        team=team, name="x", owner=" ada ", tags=tags, expires_at=None, actor=actor
    )
    assert (key.owner, key.tags, key.expires_at) == ("ada", ["batch", "night"], None)
    after = AuditRecord.objects.get(action="key.issue").after
    assert after == {
        "name": "x",
        "owner": "ada",
        "tags": ["batch", "night"],
        "models": None,
        "scopes": [],
        "expires_at": None,
    }


@pytest.mark.parametrize(
    ("values", "field", "code"),
    [
        ({"name": ""}, "name", "required"),
        ({"name": "x" * 101}, "name", "too_long"),
        ({"name": "a\0b"}, "name", "invalid"),
        ({"owner": "x" * 101}, "owner", "too_long"),
        ({"owner": "a\nb"}, "owner", "invalid"),
        ({"tags": [str(number) for number in range(21)]}, "tags", "too_many"),
        ({"tags": ["x" * 41]}, "tags", "too_long"),
        ({"tags": [""]}, "tags", "invalid"),
        ({"tags": ["a,b"]}, "tags", "invalid"),
        ({"tags": ["a\u2028b"]}, "tags", "invalid"),
        ({"models": ["none"]}, "models", "unknown_model"),
        ({"scopes": ["root"]}, "scopes", "unknown_scope"),
        ({"expires_at": timezone.now()}, "expires_at", "in_the_past"),
    ],
)
def test_a_wrong_value_is_refused_when_issued_and_when_changed(
    team: Team, key: ApiKey, actor: Actor, values: Any, field: str, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        key_issue(team=team, actor=actor, **({"name": "x"} | values))
    assert (refused.value.field, refused.value.code) == (field, code)
    with pytest.raises(Refused) as refused:
        key_update(key=key, actor=actor, **values)
    assert (refused.value.field, refused.value.code) == (field, code)
    assert ApiKey.objects.get().name == "bot"


def test_a_change_is_live_at_once_and_on_record_with_what_was_before(
    key: ApiKey, actor: Actor
) -> None:
    model_create(name="qwen", actor=actor)
    key_update(key=key, models=["qwen"], owner="ada", expires_at=None, actor=actor)
    assert (entry(key).models, entry(key).expires_at) == (("qwen",), 0.0)
    record = AuditRecord.objects.get(action="key.update")
    assert set(record.before) == set(record.after) == {"models", "owner", "expires_at"}
    assert (record.before["models"], record.after["models"]) == (None, ["qwen"])
    assert (record.before["owner"], record.after["owner"]) == ("", "ada")
    assert unsent() == 0


def test_a_change_of_nothing_is_no_change(key: ApiKey, actor: Actor) -> None:
    key_update(key=key, name=key.name, tags=[], actor=actor)
    assert not AuditRecord.objects.filter(action="key.update").exists()
    assert ApiKey.objects.get().change == 1


def test_an_expired_key_may_be_renamed_and_given_another_term(
    key: ApiKey, actor: Actor
) -> None:
    past = timezone.now() - timedelta(days=1)
    ApiKey.objects.update(expires_at=past)
    key.refresh_from_db()
    key_update(key=key, name="renamed", expires_at=past, actor=actor)
    assert entry(key).expires_at == past.timestamp()
    key_update(key=key, expires_at=past + timedelta(days=9), actor=actor)
    assert entry(key).expires_at > timezone.now().timestamp()


def test_a_model_that_was_deleted_since_may_stay_in_the_list(
    key: ApiKey, actor: Actor
) -> None:
    model = model_create(name="old", actor=actor)
    key_update(key=key, models=["old"], actor=actor)
    model_delete(model=model, actor=actor)
    model_create(name="new", actor=actor)
    key_update(key=key, models=["new", "old"], actor=actor)
    assert entry(key).models == ("new", "old")


def test_a_revoked_key_cannot_be_changed(key: ApiKey, actor: Actor) -> None:
    key_revoke(key=key, actor=actor)
    with pytest.raises(Refused):
        key_update(key=key, name="again", actor=actor)
    assert not entry(key).active


# How the gateways learn of it ------------------------------------------------------


def test_what_redis_missed_is_sent_by_the_reconcile_though_its_data_is_whole(
    key: ApiKey, actor: Actor, tmp_path: Any
) -> None:
    routing_reconcile(actor=SYSTEM)
    url = django_settings.REDIS_URL
    django_settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    live.redis_client.cache_clear()
    try:
        key_revoke(key=key, actor=actor)
    finally:
        django_settings.REDIS_URL = url
        live.redis_client.cache_clear()
    assert entry(key).active and unsent() == 1
    routing_reconcile(actor=SYSTEM)
    assert not entry(key).active and unsent() == 0


def test_a_change_whose_writer_died_before_it_was_sent_is_not_lost(
    key: ApiKey,
) -> None:
    ApiKey.objects.update(revoked_at=timezone.now(), change=F("change") + 1)
    assert keys_push_unsent() == 1
    assert not entry(key).active
    assert keys_push_unsent() == 0


def test_a_slow_writer_does_not_bring_a_revoked_key_back(
    key: ApiKey, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_write_meets(monkeypatch, lambda: key_revoke(key=key, actor=actor))
    keys_push([key.id])
    assert not entry(key).active and unsent() == 0


def test_a_restore_does_not_bring_a_revoked_key_back(
    key: ApiKey, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_write_meets(monkeypatch, lambda: key_revoke(key=key, actor=actor))
    assert keys_restore() == 1
    assert not entry(key).active and unsent() == 0


def test_an_emptied_redis_is_complete_only_after_the_last_key(
    team: Team, actor: Actor, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        key_issue(team=team, name=f"k{number}", actor=actor)
    monkeypatch.setattr(key_entries, "BATCH", 2)
    assert keys_restore() == 5
    assert valkey.exists(NAMES.complete)
    assert keys_restore() == 0
    valkey.flushall()
    marks: list[int] = []
    write = key_entries._write

    def watched(rows: Sequence[ApiKey]) -> None:
        marks.append(int(valkey.exists(NAMES.complete)))
        write(rows)

    monkeypatch.setattr(key_entries, "_write", watched)
    assert keys_restore() == 5
    assert marks == [0, 0, 0]
    assert valkey.exists(NAMES.complete) and not valkey.exists(NAMES.restoring)


def test_a_redis_emptied_during_a_restore_is_not_called_complete(
    team: Team, actor: Actor, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key_issue(team=team, name=f"k{n}", actor=actor)[0] for n in range(5)]
    monkeypatch.setattr(key_entries, "BATCH", 2)
    first_write_meets(monkeypatch, valkey.flushall)
    keys_restore()
    assert not valkey.exists(NAMES.complete)
    keys_restore()
    assert valkey.exists(NAMES.complete)
    assert all(entry(key).active for key in keys)


def test_a_restore_that_died_is_done_again_from_the_beginning(
    key: ApiKey, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies() -> None:
        raise KeyboardInterrupt

    valkey.flushall()
    first_write_meets(monkeypatch, dies)
    with pytest.raises(KeyboardInterrupt):
        keys_restore()
    assert not valkey.exists(NAMES.complete)
    assert keys_restore() == 1
    assert entry(key).active and valkey.exists(NAMES.complete)


def test_a_redis_that_started_anew_is_checked_against_the_database(
    key: ApiKey, actor: Actor, valkey: redis.Redis
) -> None:
    """It may have lost its last second, and with it a revocation."""
    keys_restore()
    before = valkey.get(NAMES.entry(key.id))
    assert isinstance(before, bytes)
    key_revoke(key=key, actor=actor)
    valkey.set(NAMES.entry(key.id), before)
    valkey.set(NAMES.complete, "the run before")
    assert keys_restore() == 1
    assert not entry(key).active


def test_a_change_number_never_climbs_to_one_from_before_a_loss(
    team: Team, actor: Actor, valkey: redis.Redis
) -> None:
    for number in range(3):
        key_issue(team=team, name=f"k{number}", actor=actor)
    before = int(valkey.get(NAMES.number) or 0)
    valkey.flushall()
    keys_restore()
    keys = [key_issue(team=team, name=f"n{number}", actor=actor)[0] for number in "ab"]
    after = int(valkey.get(NAMES.number) or 0)
    assert 2**52 < after < before < 2**53
    assert valkey.zscore(NAMES.changes, keys[-1].id) == after


def test_a_disabled_team_moves_only_the_keys_that_could_be_used(
    team: Team, key: ApiKey, actor: Actor, valkey: redis.Redis
) -> None:
    revoked, _text = key_issue(team=team, name="revoked", actor=actor)
    key_revoke(key=revoked, actor=actor)
    expired, _text = key_issue(team=team, name="expired", actor=actor)
    ApiKey.objects.filter(pk=expired.pk).update(
        expires_at=timezone.now() - timedelta(days=2)
    )
    number = int(valkey.get(NAMES.number) or 0)
    team_enabled_set(team=team, enabled=False, actor=actor)
    assert int(valkey.get(NAMES.number) or 0) == number + 1
    assert not entry(key).active
    team_enabled_set(team=team, enabled=True, actor=actor)
    assert entry(key).active and not entry(revoked).active
    # A new term for the expired one takes the team's state with it.
    team_enabled_set(team=team, enabled=False, actor=actor)
    expired.refresh_from_db()
    later = timezone.now() + timedelta(days=9)
    key_update(key=expired, expires_at=later, actor=actor)
    assert not entry(expired).active
