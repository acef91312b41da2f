"""A gateway's side of the telemetry, without the gateway: for tests of the intake."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec

from cluster.live import redis_client
from routing.contracts import names
from routing.contracts.counts import Cell, counts_fields
from routing.contracts.gateway import GatewayRecord
from routing.contracts.outcome import (
    BATCH_APPEND,
    Attempt,
    Ending,
    Outcome,
    batch_fields,
    outcome_encode,
)

STREAM_BYTES = 64 * 1024 * 1024
MINUTE = int(time.time() // 60)


def request_id(at: float | None = None) -> str:
    ms = int((time.time() if at is None else at) * 1000)
    return f"{ms:012x}{uuid4().hex[:20]}"


def cell(**changes: Any) -> Cell:
    plain = Cell(
        minute=MINUTE,
        model="qwen",
        generation=3,
        first_version="v1",
        share_bp=9_000,
        chosen=False,
        version="v1",
        team="red",
        key="k" * 12,
        ending=Ending.COMPLETED,
    )
    return plain._replace(**changes)


def figures(requests: int, **changes: int) -> list[int]:
    """Eleven figures that tell their fields apart."""
    fixed = {"requests": requests, "prompt_tokens": 10 * requests} | changes
    order = ("requests", "retries", "prompt_tokens", "completion_tokens")
    return [*(fixed.get(name, 0) for name in order), *[0] * 7]


@dataclass
class Sender:
    """Numbers its outcomes from 1 and sends them as a gateway process does."""

    id: str = "gw-aaaaaaaaaaaa"
    sent: int = 0
    seq: int = 0
    lines: list[bytes] = field(default_factory=list)

    def outcome(self, **changes: Any) -> Outcome:
        plain: dict[str, Any] = {
            "request_id": request_id(),
            "at": time.time(),
            "gateway": self.id,
            "method": "POST",
            "path": "/v1/chat/completions",
            "status": 200,
            "ending": Ending.COMPLETED,
            "client": "192.0.2.7",
            "team": "red",
            "key": "k" * 12,
            "model": "qwen",
            "generation": 3,
            "first_version": "v1",
            "first_probability": 0.9,
            "version": "v1",
            "replica": "qwen-v1-1",
            "attempts": (Attempt(replica="qwen-v1-1", version="v1"),),
            "first_content_ms": 20.0,
            "duration_ms": 120.0,
            "prompt_tokens": 10,
            "completion_tokens": 20,
        }
        return Outcome(**plain | changes)

    def batch(self, count: int, **changes: Any) -> tuple[int, list[bytes]]:
        """The next outcomes: the number of the first, and their lines."""
        first = self.sent + 1
        self.sent += count
        return first, [outcome_encode(self.outcome(**changes)) for _ in range(count)]

    def send(self, count: int, **changes: Any) -> tuple[int, list[bytes]]:
        first, lines = self.batch(count, **changes)
        self.append(first, lines)
        return first, lines

    def append(self, first: int, lines: Sequence[bytes]) -> None:
        append(batch_fields(self.id, first, lines))

    def count(self, cells: dict[Cell, list[int]]) -> None:
        """Write absolute figures, as the next write."""
        self.seq += 1
        client = redis_client()
        client.sadd(names.COUNTS_GATEWAYS, self.id)
        fields: dict[Any, Any] = counts_fields(self.seq, cells)
        client.hset(names.counts(self.id), mapping=fields)

    def live(self, **changes: Any) -> None:
        """Renew the lease."""
        now = time.time()
        record = GatewayRecord(self.id, "here", 7, now, 1, 1, now, emitted=self.sent)
        record = msgspec.structs.replace(record, **changes)
        redis_client().set(names.gateway(self.id), msgspec.json.encode(record))
        redis_client().zadd(names.GATEWAYS, {self.id: now})

    def die(self) -> None:
        """As after its lease, when it ended without a word."""
        redis_client().delete(names.gateway(self.id))

    def leave(self) -> None:
        """As a process does that is told to stop."""
        self.die()
        redis_client().zrem(names.GATEWAYS, self.id)


def append(fields: dict[str, Any], *, most: int = STREAM_BYTES) -> int:
    """One entry of the stream; how many the bound pushed out."""
    script = redis_client().register_script(BATCH_APPEND)
    arguments = [most, *(part for pair in fields.items() for part in pair)]
    dropped = script(keys=[names.OUTCOMES, names.OUTCOMES_BYTES], args=arguments)
    return int(dropped)
