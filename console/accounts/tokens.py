"""Access tokens of the management API: made, hashed, recognised.

The hash is a plain SHA-256: 32 random bytes leave a slow hash nothing to slow.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import timedelta

from django.utils import timezone

from console.accounts.models import AccessToken

USED_EVERY = timedelta(minutes=1)


def token_generate() -> str:
    return f"sluice_{secrets.token_urlsafe(32)}"


def token_hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def token_find(text: str) -> AccessToken | None:
    """The token in force with this text and its user, else None.

    The look-up is by hash, so its timing tells nothing about a secret; the
    comparison takes the same time for every wrong one.
    """
    digest = token_hash(text)
    token = (
        AccessToken.objects.select_related("user")
        .filter(secret_sha256=digest, revoked_at__isnull=True, user__is_active=True)
        .first()
    )
    if (
        token is None
        or token_expired(token)
        or not hmac.compare_digest(token.secret_sha256, digest)
    ):
        return None
    return token


def token_used(*, token: AccessToken, address: str) -> None:
    """Note when and from where a token was used, at most once a minute."""
    now = timezone.now()
    last = token.last_used_at
    if last is None or now - last > USED_EVERY or token.last_used_from != address:
        AccessToken.objects.filter(pk=token.pk).update(
            last_used_at=now, last_used_from=address
        )


def token_expired(token: AccessToken) -> bool:
    return token.expires_at is not None and token.expires_at <= timezone.now()
