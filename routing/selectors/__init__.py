"""Reads of traffic policy and of what the gateways say they apply."""

from __future__ import annotations

from routing.selectors.gateways import Applied, applied_state, gateway_list
from routing.selectors.keys import (
    KeyFind,
    KeyPage,
    KeyState,
    Position,
    key_count_live,
    key_get,
    key_list_valid,
    key_page,
)
from routing.selectors.revisions import (
    revision_acks,
    revision_get,
    revision_list,
    revisions_acknowledged,
)
from routing.selectors.routes import (
    RouteView,
    generation_list,
    route_get,
    route_view,
)
from routing.selectors.teams import team_get, team_list_counted
from routing.selectors.telemetry import Alarm, Telemetry, telemetry_state

__all__ = [
    "Alarm",
    "Applied",
    "KeyFind",
    "KeyPage",
    "KeyState",
    "Position",
    "RouteView",
    "Telemetry",
    "applied_state",
    "gateway_list",
    "generation_list",
    "key_count_live",
    "key_get",
    "key_list_valid",
    "key_page",
    "revision_acks",
    "revision_get",
    "revision_list",
    "revisions_acknowledged",
    "route_get",
    "route_view",
    "team_get",
    "team_list_counted",
    "telemetry_state",
]
