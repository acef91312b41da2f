"""The gateway's figures: plain numbers while serving, Prometheus text on demand.

Each worker counts for itself and labels every series with its id. It publishes its
figures to Redis every two seconds under its lease, and whichever worker is asked
answers with its own and the others' last ones: right with any number of workers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from routing.contracts.outcome import Ending, Outcome

# Seconds. Tokens come within tens of milliseconds, whole answers within minutes.
DURATION_BOUNDS_S = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)

_BOUNDS_MS = tuple(bound * 1000 for bound in DURATION_BOUNDS_S)

Labels = tuple[tuple[str, str], ...]


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One line of the text: a name with its suffix, labels and value."""

    name: str
    labels: Labels
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True):
    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


class Gauges(msgspec.Struct, frozen=True):
    """What is read at the moment of asking."""

    snapshot_revision: int = 0
    snapshot_epoch: int = 0
    redis_up: bool = False
    log_dropped: int = 0
    outcomes_dropped: int = 0
    outcomes_waiting: int = 0
    cells_waiting: int = 0
    unacknowledged_s: float = 0.0
    snapshots_ignored: int = 0
    # Replica id → the word for its state.
    replica_states: dict[str, str] = {}


# Figures without labels of their own: the field of ``Gauges``, name, kind and help.
_SINGLE = (
    (
        "outcomes_dropped",
        "sluice_outcomes_dropped_total",
        "counter",
        "Outcomes that were not sent because too many waited.",
    ),
    (
        "log_dropped",
        "sluice_access_log_dropped_total",
        "counter",
        "Lines that did not fit into the access log's buffer.",
    ),
    (
        "outcomes_waiting",
        "sluice_outcomes_waiting",
        "gauge",
        "Outcomes that are not in the stream yet.",
    ),
    (
        "cells_waiting",
        "sluice_count_cells_waiting",
        "gauge",
        "Counts that the database does not hold as they are now.",
    ),
    (
        "unacknowledged_s",
        "sluice_unacknowledged_seconds",
        "gauge",
        "Since when nothing was stored of outcomes and counts that wait.",
    ),
    (
        "snapshots_ignored",
        "sluice_snapshots_ignored_total",
        "counter",
        "Published snapshots that could not be read.",
    ),
    (
        "snapshot_revision",
        "sluice_snapshot_revision",
        "gauge",
        "The revision this gateway serves by, 0 for none.",
    ),
    (
        "snapshot_epoch",
        "sluice_snapshot_epoch",
        "gauge",
        "The epoch of that revision.",
    ),
    (
        "redis_up",
        "sluice_redis_up",
        "gauge",
        "Whether Redis answered the last poll.",
    ),
)


class Histogram:
    """Counts per bound; cumulative only when shown."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(DURATION_BOUNDS_S) + 1)
        self.sum_ms = 0.0

    def observe(self, value_ms: float) -> None:
        self.counts[bisect_left(_BOUNDS_MS, value_ms)] += 1
        self.sum_ms += value_ms

    def samples(self, name: str, labels: Labels) -> Iterable[Sample]:
        total = 0
        bounds = [*(f"{bound:g}" for bound in DURATION_BOUNDS_S), "+Inf"]
        for bound, count in zip(bounds, self.counts, strict=True):
            total += count
            yield Sample(f"{name}_bucket", (*labels, ("le", bound)), total)
        yield Sample(f"{name}_sum", labels, self.sum_ms / 1000)
        yield Sample(f"{name}_count", labels, total)


class Metrics:
    """The figures of one process."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._durations: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._first_tokens: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._retries: Counter[str] = Counter()
        self.retries_refused: Counter[str] = Counter()
        self._disconnects = 0
        self.in_flight: Counter[str] = Counter()

    def count(self, outcome: Outcome) -> None:
        model = outcome.model
        self._requests[model, outcome.version, outcome.status] += 1
        self._durations[model].observe(outcome.duration_ms)
        if outcome.first_content_ms is not None:
            self._first_tokens[model].observe(outcome.first_content_ms)
        if outcome.ending is Ending.CLIENT_LEFT:
            self._disconnects += 1

    def retried(self, reason: str) -> None:
        self._retries[reason] += 1

    def families(self, gateway_id: str, gauges: Gauges) -> list[Family]:
        """Every figure of this process, labelled with its id."""
        own: Labels = (("gateway", gateway_id),)
        requests = (
            (*own, ("model", model), ("version", version), ("code", str(code)))
            for model, version, code in self._requests
        )
        return [
            _family(
                "sluice_requests_total",
                "counter",
                "Requests by the status they ended with.",
                zip(requests, self._requests.values(), strict=True),
            ),
            _histogram_family(
                "sluice_request_duration_seconds",
                "From the arrival of a request to its end.",
                own,
                self._durations,
            ),
            _histogram_family(
                "sluice_ttft_seconds",
                "From the arrival of a request to its first content.",
                own,
                self._first_tokens,
            ),
            _family(
                "sluice_in_flight",
                "gauge",
                "Requests that a replica works for.",
                (
                    ((*own, ("model", model)), count)
                    for model, count in self.in_flight.items()
                ),
            ),
            _family(
                "sluice_replica_state",
                "gauge",
                "1 for the state that this gateway sees a replica in.",
                (
                    ((*own, ("replica", replica), ("state", state)), 1)
                    for replica, state in gauges.replica_states.items()
                ),
            ),
            _family(
                "sluice_retries_total",
                "counter",
                "Further attempts on another replica, by what went wrong before.",
                (
                    ((*own, ("reason", reason)), count)
                    for reason, count in self._retries.items()
                ),
            ),
            _family(
                "sluice_retries_refused_total",
                "counter",
                "Further attempts that were not made: too many were made just before.",
                (
                    ((*own, ("model", model)), count)
                    for model, count in self.retries_refused.items()
                ),
            ),
            _family(
                "sluice_client_disconnects_total",
                "counter",
                "Clients that left before their answer was whole.",
                [(own, self._disconnects)],
            ),
            *(
                _family(name, kind, text, [(own, float(getattr(gauges, field)))])
                for field, name, kind, text in _SINGLE
            ),
        ]


def _family(
    name: str, kind: str, text: str, values: Iterable[tuple[Labels, float]]
) -> Family:
    samples = tuple(Sample(name, labels, value) for labels, value in values)
    return Family(name, kind, text, samples)


def _histogram_family(
    name: str, text: str, own: Labels, histograms: dict[str, Histogram]
) -> Family:
    samples = tuple(
        sample
        for model, histogram in histograms.items()
        for sample in histogram.samples(name, (*own, ("model", model)))
    )
    return Family(name, "histogram", text, samples)


def families_encode(families: list[Family]) -> bytes:
    return msgspec.msgpack.encode(families)


def families_decode(body: bytes) -> list[Family]:
    """Raises ``msgspec.DecodeError`` for what another release may have written."""
    return msgspec.msgpack.decode(body, type=list[Family])


def render(workers: Iterable[list[Family]]) -> bytes:
    """The Prometheus text over all workers, each family once."""
    merged: dict[str, Family] = {}
    for families in workers:
        for family in families:
            found = merged.get(family.name)
            samples = (
                family.samples if found is None else found.samples + family.samples
            )
            merged[family.name] = msgspec.structs.replace(family, samples=samples)
    lines: list[str] = []
    for family in merged.values():
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines.extend(map(_line, family.samples))
    return "\n".join([*lines, ""]).encode()


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{_escape(value)}"' for name, value in sample.labels)
    value = sample.value
    shown = str(int(value)) if float(value).is_integer() else repr(value)
    return f"{sample.name}{{{labels}}} {shown}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
