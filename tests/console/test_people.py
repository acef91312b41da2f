"""People: added, demoted, locked out; sessions that end; guesses that are stopped."""

from __future__ import annotations

import threading

import pytest
from django.db import connection
from django.test import Client

from cluster.actor import Actor
from cluster.errors import Refused
from cluster.models import AuditRecord
from console.accounts.grants import Role
from console.accounts.models import SignIn, User
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
