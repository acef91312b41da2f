"""From samples to a table: medians with their spread, ratios within rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tests.bench import telemetry
from tests.bench.candidates import BASELINE, DIRECT
from tests.bench.machine import Machine
from tests.bench.measure import GAP_MS, STREAM_TOKENS, STREAMS, Sample

# A load average above this means that the cores were shared.
_IDLE_LOAD = 0.5
# The report in the documentation stands between these.
BEGIN = "<!-- results: written by python -m tests.bench --write -->"
END = "<!-- end of results -->"


class Spread(NamedTuple):
    """The median of the rounds, and the lowest and highest of them."""

    median: float
    low: float
    high: float


class Results(NamedTuple):
    """All samples of one run, by candidate, one per round, and how it was made.

    ``telemetry`` is what accounting for a request costs, one per round."""

    command: str
    machine: Machine
    load: str
    pinned: bool
    left_out: Mapping[str, str]
    samples: Mapping[str, Sequence[Sample]]
    telemetry: Sequence[telemetry.Round] = ()

    @property
    def failed(self) -> int:
        return sum(s.failed for rounds in self.samples.values() for s in rounds)


class Column(NamedTuple):
    """``of`` reads a sample; ``better`` says which way is good."""

    title: str
    unit: str
    digits: int
    of: Callable[[Sample], float]
    better: str
    direct: bool = True


COLUMNS = (
    Column("requests/s", "", 0, lambda s: s.requests_per_s, "higher"),
    Column("per CPU second", "", 0, lambda s: s.requests_per_cpu_s, "higher"),
    Column("added p50", "ms", 2, lambda s: s.added_p50_ms, "lower", direct=False),
    Column("added p99", "ms", 2, lambda s: s.added_p99_ms, "lower", direct=False),
    Column("CPU per chunk", "µs", 1, lambda s: s.cpu_us_per_chunk, "lower"),
)


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratio(
    ours: Sequence[Sample], base: Sequence[Sample], of: Callable[[Sample], float]
) -> Spread | None:
    """Our figure by the baseline's, round by round: what drifts over a run drops out.

    None where the baseline is not above zero, as added latency may come out.
    """
    pairs = [(of(one), of(other)) for one, other in zip(ours, base, strict=True)]
    if any(below <= 0 for _, below in pairs):
        return None
    return spread([above / below for above, below in pairs])


def table(results: Results) -> str:
    """The results as a Markdown table, readable in a terminal too."""
    base = results.samples.get(BASELINE)
    rows = [["", *(_titled(column) for column in COLUMNS)]]
    for name, samples in results.samples.items():
        title = f"{name}, direct" if name == DIRECT else name
        rows.append([title, *(_cell(column, name, samples) for column in COLUMNS)])
    for name, samples in results.samples.items():
        if base is not None and name not in (BASELINE, DIRECT):
            cells = (_ratio_cell(column, samples, base) for column in COLUMNS)
            rows.append([f"**{name} ÷ {BASELINE}**", *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _titled(column: Column) -> str:
    unit = f" ({column.unit})" if column.unit else ""
    return f"{column.title}{unit}, {column.better} is better"


def _cell(column: Column, name: str, samples: Sequence[Sample]) -> str:
    if name == DIRECT and not column.direct:
        return "–"
    found = spread([column.of(sample) for sample in samples])
    median, low, high = (f"{value:,.{column.digits}f}" for value in found)
    return f"{median} ({low} to {high})" if len(samples) > 1 else median


def _ratio_cell(
    column: Column, samples: Sequence[Sample], base: Sequence[Sample]
) -> str:
    found = ratio(samples, base, column.of)
    if found is None:
        return "–"
    text = f"**{found.median:.2f} ×**"
    if len(samples) > 1:
        text += f" ({found.low:.2f} to {found.high:.2f})"
    return text


def notes(results: Results) -> list[str]:
    """What a reader must know to judge the table, and what went wrong."""
    rounds = max(map(len, results.samples.values()))
    where = "proxy on one core, load and mock on another" if results.pinned else ""
    found = [
        f"Command: `{results.command}`; {rounds} round(s); requests/s by "
        f"{results.load}; {where or 'nothing pinned to cores'}.",
        f"Machine: {results.machine}.",
    ]
    for name, samples in results.samples.items():
        rate = statistics.median(sample.paced_per_s for sample in samples)
        busy = statistics.median(sample.busy for sample in samples)
        pace = statistics.median(sample.chunks_per_s for sample in samples)
        p50 = statistics.median(sample.p50_ms for sample in samples)
        p99 = statistics.median(sample.p99_ms for sample in samples)
        found.append(
            f"{name}: {busy:.0%} of a core at full speed; latency at {rate:,.0f} "
            f"requests/s p50 {p50:.2f} ms, p99 {p99:.2f} ms; {pace:,.0f} chunks/s "
            f"of {STREAMS * 1000 / GAP_MS:,.0f} in {STREAMS} streams of "
            f"{STREAM_TOKENS} chunks."
        )
    found += [f"{name} was left out: {why}." for name, why in results.left_out.items()]
    if results.machine.load_before > _IDLE_LOAD:
        found.append(
            "Others were at work on the machine: requests per CPU second and CPU per "
            "chunk suffer less from that than requests per second and latencies."
        )
    if BASELINE not in results.samples:
        found.append(f"Without {BASELINE} there are no ratios.")
    if results.failed:
        found.append(f"**{results.failed} requests failed: the figures do not count.**")
    return found


def text(results: Results) -> str:
    parts = []
    if results.samples:
        lines = "\n".join(f"- {note}" for note in notes(results))
        parts.append(f"{table(results)}\n\n{lines}\n")
    if results.telemetry:
        parts.append(telemetry.table(list(results.telemetry)))
    return "\n".join(parts)


def as_json(results: Results) -> bytes:
    base = results.samples.get(BASELINE)
    ratios: dict[str, Any] = {
        name: {column.title: ratio(samples, base, column.of) for column in COLUMNS}
        for name, samples in results.samples.items()
        if base is not None and name not in (BASELINE, DIRECT)
    }
    value = {
        **results._asdict(),
        "machine": results.machine._asdict(),
        "telemetry": [one._asdict() for one in results.telemetry],
        "failed": results.failed,
        f"ratios_to_{BASELINE}": {
            name: {title: found and found._asdict() for title, found in columns.items()}
            for name, columns in ratios.items()
        },
    }
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def document_update(document: str, results: Results) -> str:
    """The document with the results between its marks; ``ValueError`` without them."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("The document has no place marked for results.")
    return f"{before}{BEGIN}\n\n{text(results)}\n{END}{after}"
