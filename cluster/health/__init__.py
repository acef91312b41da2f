"""The state of a replica: one live record, one merge, one answer for everybody.

Each writer owns one axis of the record (an admin, the node that runs the process,
the prober, the gateways, the watch over nodes). ``states_merge`` turns the records
of a model into the states that the router, the pages, the API and the metrics all
show. Pure: no Django, no clock of its own.
"""

from __future__ import annotations

from cluster.health.probing import Reading
from cluster.health.record import (
    Admin,
    AdminAxis,
    NodeAxis,
    NodeReach,
    Passive,
    PassiveAxis,
    Probe,
    ProbeAxis,
    Process,
    ProcessAxis,
    Record,
    record_decode,
)
from cluster.health.state import Cause, Label, State, state_merge, states_merge

__all__ = [
    "Admin",
    "AdminAxis",
    "Cause",
    "Label",
    "NodeAxis",
    "NodeReach",
    "Passive",
    "PassiveAxis",
    "Probe",
    "ProbeAxis",
    "Process",
    "ProcessAxis",
    "Reading",
    "Record",
    "State",
    "record_decode",
    "state_merge",
    "states_merge",
]
