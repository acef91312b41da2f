"""Writes to accounts: the first start, the admin's password, access tokens."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from cluster.actor import Actor
from cluster.errors import Missing, Refused
from cluster.services.audit import audit_write
from console.accounts.attempts import attempts_clear
from console.accounts.grants import Role, Scope
from console.accounts.models import AccessToken, User
from console.accounts.secret_files import (
    SecretKind,
    secret_file_ensure,
    secret_file_replace,
    secret_file_stage,
    secret_files_lock,
)
from console.accounts.sessions import password_audit
from console.accounts.tokens import token_generate, token_hash

ADMIN = "admin"
# Names the admin's own token in the audit record.
ADMIN_TOKEN = "admin-token"
# Without letters and digits that are mistaken for each other; 20 of 31 characters
# carry 99 bits.
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def password_generate() -> str:
    """A password that can be copied by hand: four groups of five characters."""
    groups = ("".join(secrets.choice(_ALPHABET) for _ in range(5)) for _ in range(4))
    return "-".join(groups)


PASSWORD_FILE = SecretKind(
    filename="admin-password",
    generate=password_generate,
    pattern=re.compile(rf"([{_ALPHABET}]{{5}}-){{3}}[{_ALPHABET}]{{5}}"),
)
TOKEN_FILE = SecretKind(
    filename="admin-token",
    generate=token_generate,
    pattern=re.compile(r"sluice_[A-Za-z0-9_-]{43}"),
)


@dataclass(frozen=True)
class FirstStart:
    """``made`` is false when there were users already; ``lost`` names the files
    that are not there although what they held may still be in force."""

    made: bool
    password_file: Path
    token_file: Path
    lost: tuple[Path, ...] = ()


def first_start(*, data_dir: Path, actor: Actor) -> FirstStart:
    """Make the user admin and a token of theirs, unless there is any user.

    The secrets are in their files before the database knows them. A start that
    dies in between leaves files that the next one takes up, and of two starts at
    once one wins: a file that then opens nothing is taken away again.
    """
    made = not User.objects.exists() and _admin_make(data_dir, actor)
    files = (data_dir / PASSWORD_FILE.filename, data_dir / TOKEN_FILE.filename)
    lost = tuple(path for path in files if not path.exists())
    return FirstStart(made, *files, lost=lost)


def _admin_make(data_dir: Path, actor: Actor) -> bool:
    with secret_files_lock(data_dir):
        password = secret_file_ensure(data_dir, PASSWORD_FILE)
        token = secret_file_ensure(data_dir, TOKEN_FILE)
        try:
            made = _admin_create(password=password, token=token, actor=actor)
        except IntegrityError:
            made = False
        if not made:
            _useless_remove(data_dir, password=password, token=token)
    return made


@transaction.atomic
def _admin_create(*, password: str, token: str, actor: Actor) -> bool:
    if User.objects.exists():
        return False
    user = User.objects.create_superuser(
        ADMIN, password=password, role=Role.ADMIN.value
    )
    after = {"role": user.role, "leads": []}
    audit_write(actor=actor, action="user.create", target=ADMIN, after=after)
    _token_create(user=user, name=ADMIN_TOKEN, secret=token, actor=actor)
    return True


def _useless_remove(data_dir: Path, *, password: str, token: str) -> None:
    user = User.objects.filter(username=ADMIN).first()
    if user is None or not user.check_password(password):
        (data_dir / PASSWORD_FILE.filename).unlink(missing_ok=True)
    if not AccessToken.objects.filter(secret_sha256=token_hash(token)).exists():
        (data_dir / TOKEN_FILE.filename).unlink(missing_ok=True)


def admin_password_reset(
    *, data_dir: Path, username: str = ADMIN, actor: Actor
) -> Path:
    """Give a user a fresh password, log them out everywhere, and let them in again."""
    password = password_generate()
    with _secret_replaced(data_dir, PASSWORD_FILE, password), transaction.atomic():
        user = _user_locked(username)
        user.set_password(password)
        user.is_active = True
        user.save(update_fields=["password", "is_active"])
        attempts_clear(username=username)
        password_audit(user=user, actor=actor)
    return data_dir / PASSWORD_FILE.filename


def admin_token_reset(*, data_dir: Path, username: str = ADMIN, actor: Actor) -> Path:
    """Replace the token of the first start by a fresh one; the old one is revoked."""
    secret = token_generate()
    with _secret_replaced(data_dir, TOKEN_FILE, secret), transaction.atomic():
        user = _user_locked(username)
        for token in user.tokens.filter(name=ADMIN_TOKEN, revoked_at__isnull=True):
            token_revoke(token=token, actor=actor)
        _token_create(user=user, name=ADMIN_TOKEN, secret=secret, actor=actor)
    return data_dir / TOKEN_FILE.filename


@contextmanager
def _secret_replaced(data_dir: Path, kind: SecretKind, secret: str) -> Iterator[None]:
    """The secret is on disk, in a draft, before the body brings it into force, and
    in its file after. Whoever dies in between has only to run the command again."""
    with secret_files_lock(data_dir):
        draft = secret_file_stage(data_dir, secret)
        try:
            yield
        except BaseException:
            draft.unlink()
            raise
        secret_file_replace(draft, kind.filename)


def _user_locked(username: str) -> User:
    user = User.objects.select_for_update().filter(username=username).first()
    if user is None:
        raise Missing(_("There is no user %(name)s.") % {"name": username})
    return user


@transaction.atomic
def token_issue(
    *,
    user: User,
    name: str,
    actor: Actor,
    scopes: Collection[str] | None = None,
    expires_at: datetime | None = None,
) -> tuple[AccessToken, str]:
    """A new token that acts as its user, and its text, which nobody can see again.

    ``scopes`` of None is all that its user may, now and later.
    """
    name = name.strip()
    if not name or len(name) > 100 or "\0" in name:
        raise Refused(
            _("Give a name of at most 100 characters."), code="required", field="name"
        )
    _scopes_check(user, scopes)
    if expires_at is not None and expires_at <= timezone.now():
        raise Refused(_("The expiry lies in the past."), field="expires_at")
    secret = token_generate()
    token = _token_create(
        user=user,
        name=name,
        secret=secret,
        actor=actor,
        scopes=None if scopes is None else sorted(set(scopes)),
        expires_at=expires_at,
    )
    return token, secret


def _scopes_check(user: User, scopes: Collection[str] | None) -> None:
    if scopes is None:
        return
    own = {scope.value for scope in user.grant.scopes}
    if user.grant.leads:
        own.add(Scope.KEYS.value)
    if not scopes:
        raise Refused(_("Choose one scope at least."), field="scopes")
    if foreign := sorted(set(scopes) - own):
        raise Refused(
            _("The role does not have these scopes: %(names)s.")
            % {"names": ", ".join(foreign)},
            field="scopes",
        )


def _token_create(
    *,
    user: User,
    name: str,
    secret: str,
    actor: Actor,
    scopes: list[str] | None = None,
    expires_at: datetime | None = None,
) -> AccessToken:
    token = AccessToken.objects.create(
        user=user,
        name=name,
        secret_sha256=token_hash(secret),
        scopes=scopes,
        expires_at=expires_at,
    )
    audit_write(
        actor=actor,
        action="token.issue",
        target=_token_target(token),
        after=_token_state(token),
    )
    return token


def _token_state(token: AccessToken) -> dict[str, Any]:
    """``scopes`` of None are all that its user may."""
    ends = token.expires_at.isoformat() if token.expires_at else None
    return {"scopes": token.scopes, "expires_at": ends}


def _token_target(token: AccessToken) -> str:
    """As much of it as the audit record's column holds."""
    return f"{token.user.username}/{token.name}"[:200]


@transaction.atomic
def token_revoke(*, token: AccessToken, actor: Actor) -> AccessToken:
    """Refuse the token from now on."""
    changed = AccessToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(
        revoked_at=timezone.now()
    )
    if changed:
        token.refresh_from_db()
        audit_write(
            actor=actor,
            action="token.revoke",
            target=_token_target(token),
            before=_token_state(token),
            after={"revoked": True},
        )
    return token
