"""Requests per second, measured by ``wrk`` where it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.bench.candidates import Target
from tests.bench.load import CONNECTIONS, PATH, WHOLE_TOKENS, Counted, body

_RATE = re.compile(r"Requests/sec:\s+([\d.]+)")
_BAD_STATUS = re.compile(r"Non-2xx or 3xx responses: (\d+)")
_BAD_SOCKETS = re.compile(
    r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)"
)


def installed() -> bool:
    return shutil.which("wrk") is not None


def counted_parse(output: str) -> Counted:
    """What ``wrk`` printed; ``ValueError`` where it holds no rate."""
    rate = _RATE.search(output)
    if rate is None:
        raise ValueError(f"wrk measured nothing:\n{output}")
    failed = 0
    for pattern in (_BAD_STATUS, _BAD_SOCKETS):
        if found := pattern.search(output):
            failed += sum(map(int, found.groups()))
    return Counted(float(rate[1]), failed)


def throughput(target: Target, *, seconds: int, folder: Path) -> Counted:
    script = folder / "chat.lua"
    # A JSON string is a Lua string too, for text without control characters.
    script.write_text(
        'wrk.method = "POST"\n'
        'wrk.headers["Content-Type"] = "application/json"\n'
        f'wrk.headers["Authorization"] = "Bearer {target.key}"\n'
        f"wrk.body = {json.dumps(body(stream=False, tokens=WHOLE_TOKENS))}\n"
    )
    url = f"http://127.0.0.1:{target.port}{PATH}"
    done = subprocess.run(
        # Without a timeout wrk takes any answer after two seconds for a failure, and a
        # shared machine may stand still that long.
        [
            *("wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "--timeout", "15s"),
            *("-s", str(script), url),
        ],
        capture_output=True,
        text=True,
        timeout=seconds + 20,
        check=False,
    )
    return counted_parse(done.stdout + done.stderr)
