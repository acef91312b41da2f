"""A pooled connection that ends: closed by its replica, or cut off with it."""

from __future__ import annotations

import errno

import pytest

from routing.gateway.clock import Clock
from routing.gateway.upstream import Answer, Pool, UpstreamConnection


class Owner:
    def __init__(self) -> None:
        self.lost: list[tuple[str, bool]] = []

    def upstream_data(self, answer: Answer, data: bytes, complete: bool) -> None:
        raise AssertionError("nothing was answered")

    def upstream_lost(self, detail: str, untouched: bool) -> None:
        self.lost.append((detail, untouched))


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        # The replica closed it just as the request went out: ask it again.
        (None, ("connection closed", True)),
        (ConnectionResetError(), ("connection reset", True)),
        # The network is cut: asking the same replica again would wait again.
        (OSError(errno.EHOSTUNREACH, ""), ("out of reach", False)),
        (TimeoutError(errno.ETIMEDOUT, ""), ("out of reach", False)),
    ],
)
def test_only_a_connection_that_was_closed_is_opened_again(
    error: Exception | None, lost: tuple[str, bool]
) -> None:
    connection = UpstreamConnection(Pool(Clock()), "http://127.0.0.1:1")
    owner = Owner()
    # As it stands when its second request has been sent.
    connection.used, connection._owner = 2, owner
    connection.connection_lost(error)
    assert owner.lost == [lost]
