"""The process's own log: JSON lines on standard error.

The same fields as the Django processes write (``console/logs.py``), without Django.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, and what ``extra={"data": …}`` adds."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        data = getattr(record, "data", None)
        if isinstance(data, dict):
            entry |= data
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry, enc_hook=str).decode()


def logs_configure() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # Its messages speak of its own life, which ours tells better.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
