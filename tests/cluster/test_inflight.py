"""What gateways publish of their open requests, and what is made of it."""

from __future__ import annotations

from cluster.health import inflight
from cluster.health.inflight import OpenRequest, inflight_decode, inflight_fields
from routing.contracts import names


def as_read(fields: dict[str, bytes]) -> dict[bytes, bytes]:
    return {name.encode(): value for name, value in fields.items()}


def test_the_names_are_those_that_gateways_write() -> None:
    assert inflight.GATEWAYS == names.GATEWAYS
    assert inflight.gateway_record_name("a") == names.gateway("a")
    assert inflight.inflight_name("a").startswith(names.gateway("a"))


def test_what_is_written_is_what_is_read() -> None:
    open_ = [OpenRequest("r1", "demo", 1.5, True, 7)]
    fields = inflight_fields({"m-v1-1": open_})
    assert fields["m-v1-1"] == b'[["r1","demo",1.5,true,7]]'
    assert inflight_decode(as_read(fields)) == {"m-v1-1": open_}


def test_a_gateway_that_has_none_says_so_and_silence_is_unknown() -> None:
    assert inflight_decode(as_read(inflight_fields({}))) == {}
    assert inflight_decode({}) is None
    assert inflight_decode({b"#": b"[]", b"m-v1-1": b"[["}) is None
