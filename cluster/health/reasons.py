"""Why a process is not running: stable codes, translated where they are shown.

They stand in ``ProcessAxis.reason``, beside the evidence in ``detail``.
"""

from __future__ import annotations

import enum


class ProcessReason(enum.StrEnum):
    # Of a start that waits.
    VERIFYING = "verifying"
    # Of a start that was not made.
    NO_ARTIFACT = "no_artifact"
    ARTIFACT_MISSING = "artifact_missing"
    CHECKSUM_MISMATCH = "checksum_mismatch"
    NO_COMMAND = "no_command"
    BAD_COMMAND = "bad_command"
    BAD_PARAM = "bad_param"
    ENGINE_MISSING = "engine_missing"
    PORT_TAKEN = "port_taken"
    LIMIT_UNENFORCEABLE = "limit_unenforceable"
    SPAWN_FAILED = "spawn_failed"
    DISK_FULL = "disk_full"
    NODE_ERROR = "node_error"
    # Of a process that ended.
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    MEMORY_LIMIT = "memory_limit"
    UNKNOWN = "unknown"
