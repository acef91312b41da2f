"""Who is logged in where: a row per browser, which ends with its session."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from django.contrib.auth import update_session_auth_hash
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from cluster.actor import Actor
from cluster.services.audit import audit_write
from console.accounts.models import SignIn, User

SEEN_EVERY = timedelta(minutes=1)
# In the session: a row tells of it, so it is worth noting when it was seen.
MARK = "sign_in"


@transaction.atomic
def sign_in_record(*, request: HttpRequest, user: User, actor: Actor) -> SignIn:
    """Note a browser that has just logged in."""
    request.session[MARK] = True
    request.session.save()
    row, _made = SignIn.objects.update_or_create(
        session_key=str(request.session.session_key),
        defaults={
            "user": user,
            "address": actor.address,
            "agent": request.headers.get("User-Agent", "").replace("\0", "")[:300],
        },
    )
    audit_write(
        actor=actor,
        action="session.login",
        target=user.username,
        after={"address": row.address, "agent": row.agent},
    )
    return row


def sign_in_seen(*, session_key: str, address: str) -> None:
    """Note that a browser was here, at most once in ``SEEN_EVERY``."""
    now = timezone.now()
    SignIn.objects.filter(session_key=session_key, seen_at__lt=now - SEEN_EVERY).update(
        seen_at=now, address=address
    )


def sign_in_forget(*, session_key: str) -> None:
    SignIn.objects.filter(session_key=session_key).delete()


@transaction.atomic
def session_revoke(*, sign_in: SignIn, actor: Actor) -> None:
    """End a session: its next request is sent to the login, its live pages close."""
    ended = _end(SignIn.objects.filter(pk=sign_in.pk))
    audit_write(
        actor=actor,
        action="session.revoke",
        target=sign_in.user.username,
        before={"address": sign_in.address, "agent": sign_in.agent},
        after={"ended": ended},
    )


@transaction.atomic
def sessions_revoke(*, user: User, actor: Actor, but: str = "") -> int:
    """End every session of a person, but one; says how many."""
    rows = SignIn.objects.filter(user=user).exclude(session_key=but)
    count = _end(rows)
    kept = SignIn.objects.filter(user=user).count()
    if count:
        audit_write(
            actor=actor,
            action="session.revoke",
            target=user.username,
            before={"sessions": count + kept},
            after={"sessions": kept},
        )
    return count


def _end(rows: QuerySet[SignIn]) -> int:
    keys = list(rows.values_list("session_key", flat=True))
    Session.objects.filter(session_key__in=keys).delete()
    SignIn.objects.filter(session_key__in=keys).delete()
    return len(keys)


@transaction.atomic
def password_change(*, request: HttpRequest, password: str, actor: Actor) -> None:
    """A person's new password. Every other session of theirs ends; this one goes on
    under a new key."""
    user = cast(User, request.user)
    user.set_password(password)
    user.save(update_fields=["password"])
    old_key = request.session.session_key
    update_session_auth_hash(request, user)
    request.session.save()
    SignIn.objects.filter(session_key=old_key).update(
        session_key=request.session.session_key
    )
    _end(
        SignIn.objects.filter(user=user).exclude(
            session_key=str(request.session.session_key)
        )
    )
    password_audit(user=user, actor=actor)


def password_audit(*, user: User, actor: Actor) -> None:
    """That a password was replaced; no record knows the old one or the new one."""
    audit_write(
        actor=actor,
        action="user.password",
        target=user.username,
        before={"password": "the old one"},
        after={"password": "a new one"},
    )


def sessions_prune() -> None:
    """Rows of sessions that ran out go with them."""
    SessionStore.clear_expired()
    SignIn.objects.exclude(
        session_key__in=Session.objects.values("session_key")
    ).delete()
