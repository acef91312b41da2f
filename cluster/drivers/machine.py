"""The machine that this node is: its size, its use, its versions."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

import psutil

from cluster.drivers.gpus import gpus_read
from cluster.drivers.identity import boot_id
from cluster.health.node import Disk, NodeFacts, disk_level

_MIB = 1024 * 1024


def facts_read(
    *, host: str, data_dir: Path, sluice_version: str, clock_offset_s: float
) -> NodeFacts:
    """All that a heartbeat tells; touches no network and writes nothing."""
    memory, disk = psutil.virtual_memory(), psutil.disk_usage(str(data_dir))
    gpus = gpus_read()
    versions = {
        "sluice": sluice_version,
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
    if gpus.driver:
        versions["driver"] = gpus.driver
    return NodeFacts(
        host=host,
        hostname=socket.gethostname(),
        boot_id=boot_id(),
        pid=os.getpid(),
        versions=versions,
        clock_offset_s=round(clock_offset_s, 3),
        cpu_count=os.cpu_count() or 1,
        load_1m=round(os.getloadavg()[0], 2),
        memory_total_mb=memory.total // _MIB,
        memory_available_mb=memory.available // _MIB,
        disk_total_mb=disk.total // _MIB,
        disk_free_mb=disk.free // _MIB,
        gpus=gpus.cards,
        gpus_absent=gpus.absent,
    )


def disk_is_scarce(data_dir: Path) -> bool:
    disk = psutil.disk_usage(str(data_dir))
    return disk_level(disk.free / _MIB, disk.total / _MIB) is not Disk.OK
