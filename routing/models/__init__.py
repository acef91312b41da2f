"""Traffic policy: teams and keys, routes and their generations, revisions."""

from __future__ import annotations

from routing.models.revision import Revision
from routing.models.route import Generation, GenerationWeight, Route
from routing.models.team import ApiKey, Team

__all__ = ["ApiKey", "Generation", "GenerationWeight", "Revision", "Route", "Team"]
