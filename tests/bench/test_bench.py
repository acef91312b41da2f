"""The bench: figures that are what they say, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
import uvloop

from routing.contracts.outcome import outcome_decode
from tests.bench import __main__ as bench
from tests.bench import load, processes, report, telemetry, wrk
from tests.bench.candidates import CANDIDATES, Target
from tests.bench.machine import Machine, cores_choose, cpu_seconds, pinned
from tests.bench.measure import Plan, Sample
from tests.bench.processes import StartFailed, free_port, served
from tests.fakes.engine import ROOT, MockEngine

MACHINE = Machine("A processor", 2, "Linux", "3.11", 0.0)


def sample(**fields: float) -> Sample:
    values = dict.fromkeys(Sample.__struct_fields__, 1.0)
    return msgspec.convert({**values, "failed": 0, **fields}, Sample)


def results(**samples: list[Sample]) -> report.Results:
    return report.Results("bench", MACHINE, "wrk", True, {}, samples)


@pytest.fixture
def engine() -> Iterator[MockEngine]:
    with MockEngine(model="bench") as engine:
        yield engine


def target(engine: MockEngine) -> Target:
    return Target(port=engine.port, pid=engine.pid)


def test_ratios_are_taken_round_by_round() -> None:
    """A machine that halves its speed after the first round changes no ratio."""
    ours = [sample(requests_per_s=50), sample(requests_per_s=25)]
    base = [sample(requests_per_s=100), sample(requests_per_s=50)]
    assert report.ratio(ours, base, lambda s: s.requests_per_s) == (0.5, 0.5, 0.5)
    below = [sample(added_p50_ms=-0.1), sample(added_p50_ms=0.1)]
    assert report.ratio(ours, below, lambda s: s.added_p50_ms) is None


def test_the_table_has_medians_spreads_and_ratios_to_nginx() -> None:
    rates = (900, 1000, 1300)
    made = results(
        mock=[sample()] * 3,
        nginx=[sample(requests_per_s=2000)] * 3,
        sluice=[sample(requests_per_s=rate) for rate in rates],
    )
    rows = {row.split("|")[1].strip(): row for row in report.table(made).splitlines()}
    assert "1,000 (900 to 1,300)" in rows["sluice"]
    assert "**0.50 ×** (0.45 to 0.65)" in rows["**sluice ÷ nginx**"]
    assert "–" in rows["mock, direct"]


def test_what_spoils_the_figures_is_said() -> None:
    made = results(mock=[sample()], sluice=[sample(failed=3)])
    made = made._replace(
        left_out={"nginx": "nginx is not installed"},
        machine=MACHINE._replace(load_before=2.0),
    )
    text = report.text(made)
    assert "Others were at work on the machine" in text
    assert "Others were at work" not in report.text(results(mock=[sample()]))
    assert "3 requests failed: the figures do not count" in text
    assert "nginx was left out: nginx is not installed." in text
    assert "Without nginx there are no ratios." in text


def test_the_json_holds_samples_and_ratios() -> None:
    made = results(nginx=[sample()], sluice=[sample(requests_per_s=3)])
    value = json.loads(report.as_json(made))
    assert value["samples"]["sluice"][0]["requests_per_s"] == 3
    ratio = value["ratios_to_nginx"]["sluice"]["requests/s"]
    assert ratio == {"median": 3, "low": 3, "high": 3}


def test_the_cost_of_accounting_is_scaled_by_work_that_is_always_the_same() -> None:
    """Where the fixed work costs half as much again, so does what is measured."""
    crowded = telemetry.Round(request_us=15, work_us=12, work_alone_us=8)
    assert crowded.quiet_us == 10
    quiet = telemetry.Round(request_us=9, work_us=7.9, work_alone_us=8)
    assert quiet.quiet_us == 9
    made = results()._replace(telemetry=[crowded, quiet])
    assert "9.5 (9.0 to 10.0)" in report.text(made)
    assert len(json.loads(report.as_json(made))["telemetry"]) == 2


@pytest.mark.processes
def test_accounting_is_measured_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    (found,) = telemetry.rounds(tmp_path, count=1, requests=1000)
    assert 1 < found.request_us < 500 and found.work_alone_us > 1
    lines = (tmp_path / "access.jsonl").read_bytes().splitlines()
    assert len(lines) == 1250
    assert outcome_decode(lines[-1]).completion_tokens == 90


def test_the_document_keeps_everything_around_the_results() -> None:
    made = results(mock=[sample()])
    document = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    once = report.document_update(document, made)
    assert once.startswith("before\n") and once.endswith("\nafter\n")
    assert "old" not in once and "mock, direct" in once
    assert report.document_update(once, made) == once
    with pytest.raises(ValueError, match="no place"):
        report.document_update("nothing", made)


def test_the_document_in_this_tree_has_a_place_for_results() -> None:
    made = results(mock=[sample()])
    assert report.document_update(bench.DOCUMENT.read_text(encoding="utf-8"), made)


def test_what_wrk_prints_is_read_with_its_failures() -> None:
    output = (
        "  Socket errors: connect 1, read 2, write 0, timeout 3\n"
        "  Non-2xx or 3xx responses: 40\nRequests/sec:   1234.50\n"
    )
    assert wrk.counted_parse(output) == (1234.5, 46)
    assert wrk.counted_parse("Requests/sec: 7.00") == (7, 0)
    with pytest.raises(ValueError, match="unable to connect"):
        wrk.counted_parse("unable to connect to 127.0.0.1")


@pytest.mark.processes
def test_the_own_client_counts_what_the_engine_completed(engine: MockEngine) -> None:
    counted = uvloop.run(load.closed_loop(target(engine), 0.3))
    counters = engine.counters_when(lambda c: c.running == 0)
    assert counted.failed == 0
    answered = counted.requests_per_s * 0.3
    assert counters.completed >= answered * 0.9 > 100
    assert counters.requests - counters.completed <= load.CONNECTIONS
    assert counters.max_running <= load.CONNECTIONS


@pytest.mark.processes
def test_answers_have_about_600_bytes(engine: MockEngine) -> None:
    sent = json.loads(load.body(stream=False, tokens=load.WHOLE_TOKENS))
    answer = engine.request("POST", load.PATH, sent)
    assert 580 <= len(json.dumps(answer, separators=(",", ":"))) <= 620


@pytest.mark.processes
def test_paced_load_keeps_its_rate_and_counts_failures(engine: MockEngine) -> None:
    engine.set(delay_headers_ms=30)
    good = uvloop.run(load.paced(target(engine), 400, 0.5))
    # One after the other there would be 16; a busy machine may miss some.
    assert 50 < len(good.values_ms) <= 200
    assert good.failed == 0
    assert min(good.values_ms) >= 29
    engine.set(status=500)
    bad = uvloop.run(load.paced(target(engine), 100, 0.2))
    assert bad.failed == len(bad.values_ms) > 0


@pytest.mark.processes
def test_streams_go_on_and_broken_ones_are_counted(engine: MockEngine) -> None:
    async def window() -> load.Streams:
        streams = load.Streams(target(engine), tokens=5)
        await streams.open(20, over_s=0.05)
        await asyncio.sleep(0.3)
        await streams.close()
        return streams

    engine.set(gap_ms=10)
    streams = uvloop.run(window())
    counters = engine.counters_when(lambda c: c.running == 0)
    assert streams.failed == 0
    assert 40 <= streams.completed <= counters.completed
    assert counters.max_running == 20
    engine.set(cut_after=2)
    assert uvloop.run(window()).failed == 20


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cannot be pinned")
def test_this_process_gets_its_cores_back() -> None:
    cores = cores_choose()
    before = os.sched_getaffinity(0)
    with pinned(cores.proxy):
        if cores.proxy:
            assert os.sched_getaffinity(0) == cores.proxy
            assert cores.proxy.isdisjoint(cores.load)
    assert os.sched_getaffinity(0) == before


@pytest.mark.processes
def test_cpu_time_covers_children() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)"
    code = (
        "import subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-c', {burn + '; input()'!r}], "
        "stdin=subprocess.PIPE)\ninput()\np.communicate()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert cpu_seconds(process.pid) >= 0.3
        process.communicate(b"\n", timeout=10)


@pytest.mark.processes
def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    with (
        pytest.raises(StartFailed, match="no such thing"),
        served(command, port=free_port(), log=log, cores=frozenset()),
    ):
        pytest.fail("it cannot have started")


@pytest.mark.processes
def test_a_server_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_STOP_S", 0.2)
    port = free_port()
    code = (
        "import signal, socket, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"s = socket.create_server(('127.0.0.1', {port}))\nsignal.pause()"
    )
    with served(
        [sys.executable, "-c", code],
        port=port,
        log=tmp_path / "log",
        cores=frozenset(),
    ) as pid:
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_a_start_to_be_over(number: signal.Signals) -> None:
    before = signal.signal(number, signal.default_int_handler)
    reached = False
    try:
        with pytest.raises(KeyboardInterrupt), processes.interrupts_held():
            signal.raise_signal(number)
            reached = True
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    assert reached


@pytest.mark.processes
def test_a_run_measures_every_candidate_and_leaves_no_process() -> None:
    children = set(psutil.Process().children(recursive=True))
    plan = Plan(rounds=1, warm_up_s=1, throughput_s=1, paced_s=0.3, streams_s=0.5)
    names = [candidate.name for candidate in CANDIDATES]
    made = bench.run(names, plan, "bench")
    assert made.failed == 0
    assert {*made.samples, *made.left_out} == set(names)
    for samples in made.samples.values():
        assert samples[0].requests_per_s > 100
        assert samples[0].cpu_us_per_chunk > 0
        assert samples[0].chunks_per_s > 5000
    assert set(psutil.Process().children(recursive=True)) <= children


@pytest.mark.processes
@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, b"mock serves"), (signal.SIGTERM, b"round 1")],
)
def test_a_signal_stops_all_that_was_started(
    number: signal.Signals, moment: bytes
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench", "--quick"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        while moment not in process.stderr.readline():
            assert process.poll() is None
        started = psutil.Process(process.pid).children(recursive=True)
        assert started
        process.send_signal(number)
        told = process.stderr.read()
        assert process.wait(timeout=15) == 130
    assert b"Traceback" not in told
    deadline = time.monotonic() + 5
    while any(child.is_running() for child in started):
        assert time.monotonic() < deadline
        time.sleep(0.01)
