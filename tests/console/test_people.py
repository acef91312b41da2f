"""People: added, demoted, locked out; sessions that end; guesses that are stopped."""

from __future__ import annotations

import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from cluster.actor import Actor
from cluster.errors import Refused
from cluster.models import AuditRecord
from console.accounts.attempts import (
    ADDRESS_MOST,
    LOCKED_FOR,
    PAIR_MOST,
    attempt_begin,
)
from console.accounts.grants import Role
from console.accounts.models import LoginAttempt, SignIn, User
from console.accounts.tasks import sessions_prune_task
from console.accounts.users import user_add, user_grant
from tests.console.api import Api, read

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


def _log_in(name: str, password: str) -> Client:
    client = Client()
    client.post("/login", {"username": name, "password": password})
    return client


def test_five_wrong_passwords_lock_the_name_until_an_admin_unlocks_it(
    page: Client, user: User
) -> None:
    guesser = Client()
    wrong = {"username": "ada", "password": "wrong"}
    codes = [guesser.post("/login", wrong).status_code for _ in range(6)]
    assert codes == [200] * 5 + [429]
    right = {"username": "ada", "password": "correct horse"}
    locked = guesser.post("/login", right)
    assert locked.status_code == 429 and b"5 minutes" in locked.content
    assert b'value="ada"' in locked.content
    assert AuditRecord.objects.filter(action="session.refused").count() == 5
    page.post("/users/ada/unlock")
    assert guesser.post("/login", right).status_code == 302


def test_a_session_that_is_revoked_is_logged_out(user: User) -> None:
    here, there = (_log_in("ada", "correct horse") for _ in range(2))
    assert SignIn.objects.count() == 2
    here.post("/profile/end-other-sessions")
    assert there.get("/profile").status_code == 302
    assert here.get("/profile").status_code == 200


def test_a_new_password_ends_every_other_session_and_its_row(user: User) -> None:
    here, there = (_log_in("ada", "correct horse") for _ in range(2))
    new = {"new_password1": "battery staple", "new_password2": "battery staple"}
    sent = here.post("/profile/password", {"old_password": "correct horse"} | new)
    assert sent.status_code == 302
    assert here.get("/profile").status_code == 200
    assert there.get("/profile").status_code == 302
    assert SignIn.objects.count() == 1


def test_logging_out_takes_the_row_of_the_session(user: User) -> None:
    _log_in("ada", "correct horse").post("/logout")
    assert not SignIn.objects.exists()


@pytest.mark.parametrize(
    "name", ["a" * 5000, "<script>", "\u202eada", "👩", "", "..", "a b", "a/b", "a\0"]
)
def test_no_hostile_name_becomes_a_user(page: Client, name: str) -> None:
    page.get("/new/user")
    once = page.session["forms_once"][-1]
    body = {"username": name, "role": "viewer", "once": once}
    sent = page.post("/new/user", body)
    assert sent.status_code == 422 and b"<script>a" not in sent.content
    assert User.objects.count() == 1


def test_a_deactivated_person_is_out_at_once_and_the_last_admin_stays(
    page: Client, actor: Actor
) -> None:
    _user, password = user_add(username="eve", role="viewer", actor=actor)
    eve = _log_in("eve", password)
    assert eve.get("/").status_code == 200
    page.post("/users/eve/deactivate")
    assert eve.get("/").status_code == 302
    with pytest.raises(Refused, match="last admin"):
        user_grant(username="ada", role="viewer", leads=(), actor=actor)


def test_what_is_refused_is_on_record_once_a_minute(actor: Actor) -> None:
    user, _password = user_add(username="eve", role="viewer", actor=actor)
    eve = Client()
    eve.force_login(user)
    for _ in range(3):
        assert eve.post("/new/team", {"slug": "t"}).status_code == 403
        assert eve.get("/users").status_code == 403
    rows = AuditRecord.objects.filter(action="access.refused")
    assert {row.target for row in rows} == {"/new/team", "/users"} and len(rows) == 2


def test_a_viewer_sees_every_button_with_the_reason(actor: Actor) -> None:
    user, _password = user_add(username="eve", role="viewer", actor=actor)
    eve = Client()
    eve.force_login(user)
    for address in ("/models", "/replicas", "/teams", "/new/model"):
        text = eve.get(address).content.decode()
        assert 'aria-disabled="true"' in text and "Needs the role" in text, address
    assert "read only" in text and 'href="/users"' not in text


def test_the_api_adds_a_person_and_issues_a_token_of_no_more_than_its_own() -> None:
    api = Api()
    made = api.post("/users", {"username": "eve", "role": "operator"})
    assert made.status_code == 201 and read(made)["password"]
    issued = api.post("/tokens", {"name": "x", "scopes": ["read"]})
    assert issued.status_code == 201
    row = next(one for one in api.get("/tokens")["items"] if one["name"] == "x")
    assert api.post(f"/tokens/{row['id']}/revoke").status_code == 200
    api.token.scopes = ["read", "accounts"]
    api.token.save()
    more = api.post("/tokens", {"name": "y", "scopes": ["fleet"]})
    assert more.status_code == 403


@pytest.mark.django_db(transaction=True)
def test_two_admins_who_demote_each_other_leave_one() -> None:
    names = ("ada", "eve")
    for name in names:
        User.objects.create_user(name, role="admin")
    gate = threading.Barrier(2)

    def demote(mine: str, other: str) -> None:
        try:
            gate.wait(10)
            user_grant(
                username=other, role="viewer", leads=(), actor=Actor("user", mine)
            )
        except Refused:
            pass
        finally:
            connection.close()

    pairs = (names, names[::-1])
    threads = [threading.Thread(target=demote, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert User.objects.filter(role=Role.ADMIN.value).count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_many_guesses_at_once_no_more_are_let_through_than_one_by_one() -> None:
    User.objects.create_user("ada", password="correct horse")
    gate = threading.Barrier(12)
    let_in: list[bool] = []

    def guess() -> None:
        try:
            gate.wait(10)
            begun = attempt_begin(username="ada", address="10.0.0.9")
            let_in.append(isinstance(begun, LoginAttempt))
        finally:
            connection.close()

    threads = [threading.Thread(target=guess) for _n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (let_in.count(True), let_in.count(False)) == (PAIR_MOST, 12 - PAIR_MOST)
    assert LoginAttempt.objects.count() == PAIR_MOST


def test_an_address_that_tries_many_names_is_stopped() -> None:
    guesser = Client()
    codes = [
        guesser.post("/login", {"username": f"n{n}", "password": "x"}).status_code
        for n in range(ADDRESS_MOST + 1)
    ]
    assert codes == [200] * ADDRESS_MOST + [429]


def test_sessions_and_guesses_that_mean_nothing_any_more_are_forgotten(
    user: User,
) -> None:
    live, dead = (_log_in("ada", "correct horse") for _n in range(2))
    gone = Session.objects.get(session_key=dead.session.session_key)
    Session.objects.filter(pk=gone.pk).update(expire_date=timezone.now() - timedelta(1))
    LoginAttempt.objects.create(name_sha256="a" * 64, address="10.0.0.1")
    LoginAttempt.objects.create(name_sha256="b" * 64, address="10.0.0.1")
    LoginAttempt.objects.filter(name_sha256="a" * 64).update(
        at=timezone.now() - 3 * LOCKED_FOR
    )
    sessions_prune_task()
    kept = SignIn.objects.values_list("session_key", flat=True)
    assert list(kept) == [live.session.session_key]
    assert LoginAttempt.objects.get().name_sha256 == "b" * 64
    assert live.get("/profile").status_code == 200


def test_the_command_adds_a_person_who_can_log_in() -> None:
    out = StringIO()
    call_command("user_add", "eve", "--role", "operator", stdout=out)
    head, password = out.getvalue().strip().split(": ")
    assert head == "eve (operator)"
    assert _log_in("eve", password).get("/profile").status_code == 200
    with pytest.raises(CommandError, match="already exists"):
        call_command("user_add", "eve", stdout=out)
    record = AuditRecord.objects.get(action="user.create", target="eve")
    assert record.actor_kind == "command" and password not in str(record.after)
