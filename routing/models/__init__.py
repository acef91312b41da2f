"""Traffic policy (teams and keys, routes, generations, revisions) and what came of it
(outcomes, counts)."""

from __future__ import annotations

from routing.models.counts import (
    GenerationServed,
    TrafficMinute,
    UsageDay,
    UsageHour,
)
from routing.models.outcome import OutcomeRecord, TelemetryCursor, TelemetrySource
from routing.models.revision import Revision
from routing.models.route import Generation, GenerationWeight, Route
from routing.models.team import ApiKey, Team

__all__ = [
    "ApiKey",
    "Generation",
    "GenerationServed",
    "GenerationWeight",
    "OutcomeRecord",
    "Revision",
    "Route",
    "Team",
    "TelemetryCursor",
    "TelemetrySource",
    "TrafficMinute",
    "UsageDay",
    "UsageHour",
]
