"""Writes to traffic policy, each audited, and the intake of what came of it;
keyword-only, ``<entity>_<verb>``."""

from __future__ import annotations

from routing.services.ingest import outcomes_ingest
from routing.services.ingest_counts import counts_ingest
from routing.services.key_entries import keys_restore
from routing.services.keys import key_issue, key_revoke, key_update
from routing.services.publish import snapshot_publish
from routing.services.retention import telemetry_prune
from routing.services.routes import (
    generation_restore,
    route_settings_set,
    weights_set,
)
from routing.services.sources import sources_close
from routing.services.teams import team_create, team_enabled_set
from routing.services.turns import turn

__all__ = [
    "counts_ingest",
    "generation_restore",
    "key_issue",
    "key_revoke",
    "key_update",
    "keys_restore",
    "outcomes_ingest",
    "route_settings_set",
    "snapshot_publish",
    "sources_close",
    "team_create",
    "team_enabled_set",
    "telemetry_prune",
    "turn",
    "weights_set",
]
