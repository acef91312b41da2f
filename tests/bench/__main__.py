"""``python -m tests.bench``: see ``--help`` and ``docs/benchmarks.md``."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from tests.bench import report, telemetry
from tests.bench.candidates import CANDIDATES, DIRECT, Site, Target
from tests.bench.machine import cores_choose, machine, pinned
from tests.bench.measure import FULL, QUICK, Bench, Plan, Sample
from tests.bench.processes import StartFailed
from tests.fakes.engine import ROOT, MockEngine

DOCUMENT = ROOT / "docs" / "benchmarks.md"
_NAMES = [*(candidate.name for candidate in CANDIDATES), telemetry.NAME]
# Rounds and requests of the measurement that needs no load from outside.
_TELEMETRY = {False: (5, 20_000), True: (3, 5_000)}


def say(line: str) -> None:
    """Progress, on standard error: standard output is for results."""
    print(line, file=sys.stderr, flush=True)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="The data plane beside its peers, as ratios from one run.",
    )
    parser.add_argument("--quick", action="store_true", help="one short round, 30 s")
    parser.add_argument("--json", action="store_true", help="print JSON, no table")
    parser.add_argument("--write", action="store_true", help="update the document")
    parser.add_argument("--only", nargs="+", choices=_NAMES, metavar="NAME")
    return parser.parse_args(argv)


def run(names: Sequence[str], plan: Plan, command: str) -> report.Results:
    """Starts everything, measures in turns, stops everything, however it ends."""
    cores = cores_choose()
    found = machine()
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-bench")))
        # What is started without a core of its own runs on the load's.
        stack.enter_context(pinned(cores.load))
        engine = stack.enter_context(MockEngine(model="bench"))
        targets: dict[str, Target] = {}
        for candidate in CANDIDATES:
            if candidate.name not in names:
                continue
            if why := candidate.missing():
                left_out[candidate.name] = why
                continue
            own = folder / candidate.name
            own.mkdir()
            site = Site(folder=own, engine=engine, cores=cores)
            targets[candidate.name] = stack.enter_context(candidate.start(site))
            say(f"{candidate.name} serves on port {targets[candidate.name].port}")
        bench = Bench(engine, plan, folder)
        samples = take_turns(bench, targets)
    return report.Results(
        command=command,
        machine=found,
        load="wrk" if bench.with_wrk else "the bench's own client (wrk is missing)",
        pinned=bool(cores.proxy),
        left_out=left_out,
        samples=samples,
    )


def run_telemetry(quick: bool, command: str) -> report.Results:
    """What accounting for a request costs, in this process, on a core of its own."""
    cores, found = cores_choose(), machine()
    count, requests = _TELEMETRY[quick]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory("-bench")))
        stack.enter_context(pinned(cores.proxy))
        made = telemetry.rounds(folder, count=count, requests=requests)
    say(f"{telemetry.NAME} measured")
    return report.Results(command, found, "", bool(cores.proxy), {}, {}, made)


def take_turns(bench: Bench, targets: dict[str, Target]) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {name: [] for name in targets}
    for target in targets.values():
        bench.warm_up(target)
    for number in range(bench.plan.rounds):
        for name, target in targets.items():
            sample = bench.sample(target, targets[DIRECT])
            samples[name].append(sample)
            say(
                f"round {number + 1} of {bench.plan.rounds}, {name}: "
                f"{sample.requests_per_s:,.0f} requests/s, "
                f"{sample.cpu_us_per_chunk:.1f} µs per chunk"
            )
    return samples


def measure(names: set[str], quick: bool, command: str) -> report.Results:
    made: report.Results | None = None
    if telemetry.NAME in names:
        made = run_telemetry(quick, command)
    served = names - {telemetry.NAME}
    if not served:
        assert made is not None, "something is always asked for"
        return made
    results = run(sorted({DIRECT, *served}), QUICK if quick else FULL, command)
    return results._replace(telemetry=made.telemetry if made is not None else ())


def _terminated(number: int, frame: FrameType | None) -> None:
    """SIGTERM as Ctrl-C, which an event loop knows how to end by."""
    signal.raise_signal(signal.SIGINT)


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    # Both ways of being told to stop unwind the stack of what was started, also
    # where a shell without job control started this with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminated)
    started = time.monotonic()
    names = set(options.only or _NAMES)
    command = " ".join(["python -m tests.bench", *argv])
    try:
        results = measure(names, options.quick, command)
    except StartFailed as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("Stopped; everything that was started is stopped too.")
        return 130
    say(f"done in {time.monotonic() - started:.0f} s")
    if options.json:
        sys.stdout.buffer.write(report.as_json(results) + b"\n")
    else:
        print(report.text(results), end="")
    if options.write:
        document = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(report.document_update(document, results), encoding="utf-8")
        say(f"wrote {DOCUMENT.relative_to(ROOT)}")
    return int(results.failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
