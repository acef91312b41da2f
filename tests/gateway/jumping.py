"""The gateway with a clock of the wall that a test moves: its offset in seconds is the
content of the file ``SLUICE_TEST_CLOCK``, read with every look at the clock."""

from __future__ import annotations

import os
import runpy
import time
from pathlib import Path

_FILE = Path(os.environ["SLUICE_TEST_CLOCK"])
_real = time.time


def _moved() -> float:
    return _real() + float(_FILE.read_text() or 0)


if __name__ == "__main__":
    time.time = _moved
    runpy.run_module("routing.gateway", run_name="__main__")
