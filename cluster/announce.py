"""The project's one signal: the fleet changed in a way that traffic may care about.

``inventory_changed`` is sent after commit, never inside a transaction, with the
keyword ``reason`` (a short text for the revision list) and ``actor``. It has one
receiver, ``routing.services.inventory_follow``, connected in ``routing/apps.py``:
the signal exists because cluster must not import routing. A lost signal is made
up for by the reconcile every 15 s.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Literal, TypedDict

from django.db import transaction
from django.dispatch import Signal

from cluster.actor import Actor

log = logging.getLogger(__name__)

inventory_changed = Signal()


class ReplicaChanged(TypedDict):
    type: Literal["replica.changed"]
    id: str


LiveMessage = ReplicaChanged


def announce_inventory(*, reason: str, actor: Actor) -> None:
    """Send the signal once the current transaction has committed."""
    transaction.on_commit(
        partial(inventory_changed.send, sender=None, reason=reason, actor=actor)
    )


def live_announce(message: LiveMessage) -> None:
    """Say what changed once the current transaction has committed. It may be lost:
    whoever shows it looks by itself every few seconds."""
    transaction.on_commit(partial(log.debug, "changed: %s", message))
