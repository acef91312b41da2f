"""What the mock engine has seen, for tests to compare with what clients saw."""

from __future__ import annotations

import enum

import msgspec

_PATHS = 100


class Ending(enum.StrEnum):
    """``aborted``: the client closed first. ``cut``: the mock did, on demand."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    CUT = "cut"


class Counters(msgspec.Struct):
    """``requests`` = ``running`` + ``completed`` + ``aborted`` + ``cut``, at all times.

    All of them count requests that generate; ``paths`` counts every request but
    those to ``/mock``, for the first hundred paths that come.
    """

    requests: int = 0
    running: int = 0
    max_running: int = 0
    completed: int = 0
    aborted: int = 0
    cut: int = 0
    tokens_sent: int = 0
    paths: dict[str, int] = {}

    def begin(self) -> None:
        self.requests += 1
        self.running += 1
        if self.running > self.max_running:
            self.max_running = self.running

    def end(self, ending: Ending) -> None:
        self.running -= 1
        if ending is Ending.COMPLETED:
            self.completed += 1
        elif ending is Ending.ABORTED:
            self.aborted += 1
        else:
            self.cut += 1

    def path(self, path: str) -> None:
        seen = self.paths.get(path, 0)
        if seen or len(self.paths) < _PATHS:
            self.paths[path] = seen + 1

    def reset(self) -> None:
        """Forgets the past; requests that run go on being counted."""
        self.requests = self.max_running = self.running
        self.completed = self.aborted = self.cut = self.tokens_sent = 0
        self.paths = {}

    def exposition(self) -> bytes:
        """The counters as Prometheus text, the load also under vLLM's names."""
        rows = (
            ("mock_requests_running", "gauge", self.running),
            ("mock_requests_total", "counter", self.requests),
            ("mock_requests_completed_total", "counter", self.completed),
            ("mock_requests_aborted_total", "counter", self.aborted),
            ("mock_generation_tokens_total", "counter", self.tokens_sent),
            ("vllm:num_requests_running", "gauge", self.running),
            ("vllm:num_requests_waiting", "gauge", 0),
            ("vllm:kv_cache_usage_perc", "gauge", 0),
            ("vllm:generation_tokens_total", "counter", self.tokens_sent),
        )
        return "".join(f"# TYPE {n} {t}\n{n} {v}\n" for n, t, v in rows).encode()
