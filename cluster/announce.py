"""What leaves the services: the project's one signal, and news for open pages.

``inventory_changed`` (the fleet changed in a way that traffic may care about) is sent
after commit, never inside a transaction, with the keyword ``reason`` (a short text for
the revision list) and ``actor``. It has one receiver,
``routing.services.inventory_follow``, connected in ``routing/apps.py``: the signal
exists because cluster must not import routing. A lost signal is made up for by the
reconcile every 15 s.

``live_announce`` tells the open pages of every console process that they should look
again. It may be lost: pages look by themselves every few seconds.
"""

from __future__ import annotations

import contextlib
import hashlib
from functools import partial
from typing import Literal, TypedDict

import redis
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from django.dispatch import Signal

from cluster.actor import Actor

inventory_changed = Signal()


class ReplicaChanged(TypedDict):
    type: Literal["replica.changed"]
    id: str


class NodeChanged(TypedDict):
    type: Literal["node.changed"]
    name: str


LiveMessage = ReplicaChanged | NodeChanged


def announce_inventory(*, reason: str, actor: Actor) -> None:
    """Send the signal once the current transaction has committed."""
    transaction.on_commit(
        partial(inventory_changed.send, sender=None, reason=reason, actor=actor)
    )


def live_announce(message: LiveMessage) -> None:
    """Tell open pages what changed, after commit. An absent Redis loses it.

    From plain threads only, not from a coroutine.
    """
    transaction.on_commit(partial(_live_send, live_topics(message)))


def live_topics(message: LiveMessage) -> list[str]:
    """What a page watches that shows the changed thing."""
    if message["type"] == "replica.changed":
        return ["replicas", f"replica.{message['id']}"]
    return ["nodes", f"node.{message['name']}"]


def live_group(topic: str) -> str:
    """The channel layer's name of a topic: it allows fewer characters and less."""
    return f"live.{hashlib.sha256(topic.encode()).hexdigest()[:40]}"


def _live_send(topics: list[str]) -> None:
    # ValueError: no address of a Redis is known in this process.
    with contextlib.suppress(redis.RedisError, OSError, ValueError):
        async_to_sync(_live_send_all)(topics)


async def _live_send_all(topics: list[str]) -> None:
    layer = get_channel_layer()
    for topic in topics:
        news = {"type": "changed", "topic": topic}
        event = {"type": "live.message", "message": news}
        await layer.group_send(live_group(topic), event)
