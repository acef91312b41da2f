"""Writes to traffic policy: keyword-only, ``<entity>_<verb>``, each audited."""

from __future__ import annotations

from routing.services.key_entries import keys_restore
from routing.services.keys import key_issue, key_revoke, key_update
from routing.services.publish import snapshot_publish
from routing.services.routes import (
    generation_restore,
    route_settings_set,
    weights_set,
)
from routing.services.teams import team_create, team_enabled_set

__all__ = [
    "generation_restore",
    "key_issue",
    "key_revoke",
    "key_update",
    "keys_restore",
    "route_settings_set",
    "snapshot_publish",
    "team_create",
    "team_enabled_set",
    "weights_set",
]
