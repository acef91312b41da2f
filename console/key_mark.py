"""How a key looks to a person, and which state of it a change was meant for."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext as _

from console.api.etags import etag_of
from console.status import Mark
from routing.models import ApiKey
from routing.selectors.keys import EXPIRES_SOON


def key_mark(key: ApiKey, now: datetime) -> Mark:
    """Whether the gateways accept a key, and how long still."""
    if key.revoked_at is not None:
        return Mark("off", _("Revoked"))
    if key.expires_at is not None and key.expires_at <= now:
        return Mark("off", _("Expired"))
    if key.team.disabled_at is not None:
        return Mark("hold", _("Team disabled"))
    if key.expires_at is not None and key.expires_at <= now + EXPIRES_SOON:
        return Mark("warn", _("Expires soon"))
    return Mark("ok", _("Active"))


def key_etag(key: ApiKey) -> str:
    """A digest of what a change may touch. That a key was used is no change."""
    return etag_of(
        key.id,
        key.name,
        key.owner,
        key.tags,
        key.model_names,
        key.scopes,
        key.expires_at,
        key.revoked_at,
    )
