"""One request as it came over the wire."""

from __future__ import annotations

import time

from routing.gateway.ids import request_id


class Request:
    """Header names are lower case; a repeated one is joined by commas.

    ``at`` is Unix seconds, ``arrived`` and ``complete_at`` monotonic ones: the
    first line's and the last body byte's (None until it comes). ``path`` is the URL
    without its query; the parser lets only ASCII through.
    """

    __slots__ = (
        "arrived",
        "at",
        "body",
        "close",
        "complete_at",
        "head_bytes",
        "head_done",
        "header_count",
        "headers",
        "http_11",
        "id",
        "limit",
        "method",
        "parts",
        "path",
        "raw_head_bytes",
        "size",
        "url",
    )

    def __init__(self) -> None:
        self.at = time.time()
        self.arrived = time.monotonic()
        self.complete_at: float | None = None
        self.id = request_id(self.at)
        self.method = ""
        self.url = b""
        self.path = ""
        self.headers: dict[bytes, bytes] = {}
        self.header_count = 0
        self.head_bytes = 0
        self.raw_head_bytes = 0
        self.head_done = False
        self.http_11 = True
        self.close = False
        self.limit = 0
        self.size = 0
        self.parts: list[bytes] = []
        self.body = b""
