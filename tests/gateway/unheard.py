"""The gateway that soon finds it late when nobody stores its outcomes."""

from __future__ import annotations

import runpy

from routing.gateway import telemetry

if __name__ == "__main__":
    telemetry.LATE_S = 0.5
    runpy.run_module("routing.gateway", run_name="__main__")
