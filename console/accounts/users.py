"""Writes to people: who they are, what they may, whether they may come in.

One admin that is active always remains: whoever takes a role or an account away
locks all admins first, so that two who demote each other meet.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from cluster.actor import Actor
from cluster.errors import Missing, Refused
from cluster.services.audit import audit_write
from console.accounts.attempts import attempts_clear
from console.accounts.grants import Role
from console.accounts.models import User
from console.accounts.services import password_generate
from console.accounts.sessions import password_audit, sessions_revoke
from routing.models import Team


def user_get(*, username: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        raise Missing(_("There is no user %(name)s.") % {"name": username})
    return user


def user_add(
    *, username: str, role: str, leads: Collection[str] = (), actor: Actor
) -> tuple[User, str]:
    """A person and their first password, which nobody can see again."""
    username = User.normalize_username(username)
    if username.strip(".") == "":
        # A browser takes such a part out of an address.
        raise Refused(_("Give a name."), code="required", field="username")
    password = password_generate()
    user = User(username=username, role=_role(role))
    user.set_password(password)
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as error:
        name = "username" if "username" in error.message_dict else "role"
        text = " ".join(error.message_dict.get(name, error.messages))
        raise Refused(text, field=name) from error
    try:
        with transaction.atomic():
            user.save()
            teams = _teams(leads)
            user.leads.set(teams)
            audit_write(
                actor=actor,
                action="user.create",
                target=username,
                after={"role": user.role, "leads": sorted(t.slug for t in teams)},
            )
    except IntegrityError as error:
        taken = _("A user of this name exists.")
        raise Refused(taken, code="duplicate", field="username") from error
    return user, password


@transaction.atomic
def user_grant(
    *, username: str, role: str, leads: Collection[str], actor: Actor
) -> User:
    """Change the role and the teams that a person leads; acts on their next request."""
    _admins_lock()
    user = _locked(username)
    if user.role == Role.ADMIN.value and _role(role) != Role.ADMIN.value:
        _others_require(user, actor)
    before = _state(user)
    user.role = _role(role)
    user.save(update_fields=["role"])
    user.leads.set(_teams(leads))
    after = _state(user)
    if after != before:
        audit_write(
            actor=actor,
            action="user.role",
            target=username,
            before=before,
            after=after,
        )
    return user


@transaction.atomic
def user_active_set(*, username: str, active: bool, actor: Actor) -> User:
    """Let a person in again, or lock them out: sessions end, tokens stop working."""
    _admins_lock()
    user = _locked(username)
    if user.is_active == active:
        return user
    if not active:
        if actor.kind == "user" and user.username == actor.name:
            raise Refused(_("Nobody deactivates themselves."), code="own_account")
        _others_require(user, actor)
    user.is_active = active
    user.save(update_fields=["is_active"])
    action = "user.activate" if active else "user.deactivate"
    audit_write(
        actor=actor,
        action=action,
        target=username,
        before={"active": not active},
        after={"active": active},
    )
    if not active:
        sessions_revoke(user=user, actor=actor)
    return user


@transaction.atomic
def user_password_reset(*, username: str, actor: Actor) -> tuple[User, str]:
    """A fresh password, which nobody can see again; every session of theirs ends."""
    user = _locked(username)
    password = password_generate()
    user.set_password(password)
    user.save(update_fields=["password"])
    attempts_clear(username=username)
    password_audit(user=user, actor=actor)
    sessions_revoke(user=user, actor=actor)
    return user, password


@transaction.atomic
def user_unlock(*, username: str, actor: Actor) -> User:
    """Forget the failed logins of a name."""
    user = _locked(username)
    if failed := attempts_clear(username=username):
        audit_write(
            actor=actor,
            action="user.unlock",
            target=username,
            before={"failed_logins": failed},
            after={"failed_logins": 0},
        )
    return user


def _admins_lock() -> None:
    admins = User.objects.select_for_update().filter(role=Role.ADMIN.value)
    list(admins.order_by("pk").values_list("pk"))


def _locked(username: str) -> User:
    user = User.objects.select_for_update().filter(username=username).first()
    if user is None:
        raise Missing(_("There is no user %(name)s.") % {"name": username})
    return user


def _others_require(user: User, actor: Actor) -> None:
    """Refused for the last admin, and for an admin's own role."""
    if user.role != Role.ADMIN.value or not user.is_active:
        return
    admins = User.objects.filter(role=Role.ADMIN.value, is_active=True)
    if not admins.exclude(pk=user.pk).exists():
        raise Refused(
            _("This is the last admin: make another person admin first."),
            code="last_admin",
            field="role",
        )
    if actor.kind == "user" and user.username == actor.name:
        raise Refused(
            _("Nobody takes the role admin from themselves: ask another admin."),
            code="own_account",
            field="role",
        )


def _role(text: str) -> str:
    try:
        return Role(text).value
    except ValueError as error:
        raise Refused(_("There is no such role."), field="role") from error


def _teams(slugs: Collection[str]) -> list[Team]:
    teams = list(Team.objects.filter(slug__in=slugs))
    if len(teams) != len(set(slugs)):
        raise Refused(_("There is no such team."), field="leads")
    return teams


def _state(user: User) -> dict[str, Any]:
    slugs = user.leads.order_by("slug").values_list("slug", flat=True)
    return {"role": user.role, "leads": list(slugs)}
