"""Reads of traffic policy and of what the gateways say they apply."""

from __future__ import annotations

from routing.selectors.gateways import Applied, applied_state, gateway_list
from routing.selectors.routes import RouteView, route_get, route_view

__all__ = [
    "Applied",
    "RouteView",
    "applied_state",
    "gateway_list",
    "route_get",
    "route_view",
]
