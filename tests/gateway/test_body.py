"""Bodies: only what must change changes, whatever JSON they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.gateway.body import peek, rewrite
from routing.gateway.endpoints import ENDPOINTS
from routing.gateway.errors import Refusal
from routing.gateway.scan import members

MOST_TOKENS = ENDPOINTS["/v1/chat/completions"].most_tokens
KEYS = st.one_of(
    st.sampled_from(["model", "stream", "stream_options", "messages", "x"]),
    st.text(max_size=6),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=12),
        st.sampled_from(['"model"', '\\"model', "model", "}", "]", '{"model":"x"}']),
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)


def pairs_encode(
    pairs: list[tuple[str, Any]], indent: int | None, ascii_only: bool
) -> bytes:
    """A JSON object that may hold a key twice."""
    space = "\n " if indent else ""
    body = ",".join(
        f"{space}{json.dumps(key, ensure_ascii=ascii_only)}{space}:{space}"
        f"{json.dumps(value, ensure_ascii=ascii_only, indent=indent)}"
        for key, value in pairs
    )
    return f"{space}{{{body}{space}}}{space}".encode("utf-8", "surrogatepass")


@given(
    st.lists(st.tuples(KEYS, VALUES), max_size=6),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_the_scanner_finds_every_member_of_any_object(
    pairs: list[tuple[str, Any]], indent: int | None, ascii_only: bool
) -> None:
    body = pairs_encode(pairs, indent, ascii_only)
    found = [
        (key, json.loads(body[start:end].decode("utf-8", "surrogatepass")))
        for key, start, end in members(body)
    ]
    assert found == pairs


extras = st.lists(
    st.tuples(
        KEYS.filter(lambda key: key not in ("model", "stream", "stream_options")),
        VALUES,
    ),
    max_size=5,
)


@given(extras, extras, st.sampled_from([None, 2]), st.booleans(), st.booleans())
def test_rewriting_changes_the_model_and_nothing_else(
    before: list[tuple[str, Any]],
    after: list[tuple[str, Any]],
    indent: int | None,
    ascii_only: bool,
    ask_usage: bool,
) -> None:
    body = pairs_encode([*before, ("model", "old"), *after], indent, ascii_only)
    try:
        peeked = peek(body)
    except Refusal:
        # Lone surrogates are no UTF-8 and are refused before any rewriting.
        return
    rewritten = json.loads(rewrite(body, peeked, "served/name", ask_usage))
    expected = {**json.loads(body), "model": "served/name"}
    if ask_usage:
        expected["stream_options"] = {"include_usage": True}
    assert rewritten == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"a","model":"b"}',
        b'{"mod\\u0065l":"b"}',
        b'{"messages":[{"content":"say \\"model\\": \\"x\\""}],"model":"b"}',
        b'{"x":"say \\"model","mod\\u0065l":"b"}',
        b'{"x":{"model":"inner"},"model":"b"}',
        b'{"x":"model","model":"b"}',
        b' {\n "model" \n:\t "b\\\\" } ',
    ],
)
def test_every_top_level_model_is_renamed_however_it_is_spelled(body: bytes) -> None:
    before = json.loads(body, object_pairs_hook=list)
    after = json.loads(rewrite(body, peek(body), "new", False), object_pairs_hook=list)
    assert after == [(key, "new" if key == "model" else value) for key, value in before]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("null", {"include_usage": True}),
        ("{}", {"include_usage": True}),
        ('{"include_usage":false,"x":1}', {"include_usage": True, "x": 1}),
        ('{"include_usage":true,"x":1}', {"include_usage": True, "x": 1}),
    ],
)
def test_stream_options_are_merged_and_not_replaced(
    options: str, expected: dict[str, Any]
) -> None:
    body = b'{"model":"m","stream":true,"stream_options":%b}' % options.encode()
    rewritten = json.loads(rewrite(body, peek(body), "m", True))
    assert rewritten["stream_options"] == expected


def test_big_numbers_and_odd_spacing_survive_byte_for_byte() -> None:
    body = b'{"a":1e400,"b":123456789012345678901234567890,"model":"m","c":[ 1 ,2.50]}'
    assert rewrite(body, peek(body), "n", False) == body.replace(b'"m"', b'"n"')


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"[]", None),
        (b"{", None),
        (b'{"model":"m"} x', None),
        (b'{"messages":[]}', "model"),
        (b'{"model":null}', "model"),
        (b'{"model":3}', "model"),
        (b'{"model":"m","stream":"yes"}', "stream"),
        (b'{"model":"m","stream_options":7}', "stream_options"),
        (b"\xff\xfe", None),
    ],
)
def test_a_wrong_body_is_refused_by_field(body: bytes, param: str | None) -> None:
    with pytest.raises(Refusal) as refusal:
        peek(body)
    problem = refusal.value.problem
    assert (problem.status, problem.code) == (400, "invalid_request")
    assert problem.param == param
    assert problem.message.endswith(".")


@pytest.mark.parametrize(
    ("sent", "goes_on"),
    [
        ({}, {"max_tokens": 100}),
        ({"max_tokens": 20}, {"max_tokens": 20}),
        ({"max_tokens": 100}, {"max_tokens": 100}),
        ({"max_tokens": 101}, {"max_tokens": 100}),
        ({"max_tokens": None}, {"max_tokens": 100}),
        ({"max_tokens": -1}, {"max_tokens": 100}),
        ({"max_tokens": 1e30}, {"max_tokens": 100}),
        ({"max_tokens": "many"}, {"max_tokens": "many"}),
        ({"max_tokens": True}, {"max_tokens": True}),
        ({"max_completion_tokens": 500}, {"max_completion_tokens": 100}),
        (
            {"max_tokens": 5, "max_completion_tokens": 500, "n_predict": -1},
            {"max_tokens": 5, "max_completion_tokens": 100, "n_predict": 100},
        ),
    ],
)
@pytest.mark.parametrize("ask_usage", [False, True])
def test_no_answer_may_get_longer_than_the_route_allows(
    sent: dict[str, Any], goes_on: dict[str, Any], ask_usage: bool
) -> None:
    body = json.dumps({"x": {"max_tokens": 7}, "model": "m"} | sent).encode()
    after = json.loads(rewrite(body, peek(body), "n", ask_usage, 100, MOST_TOKENS))
    wanted = {"x": {"max_tokens": 7}, "model": "n"} | goes_on
    if ask_usage:
        wanted["stream_options"] = {"include_usage": True}
    assert after == wanted


def test_a_limit_that_comes_twice_is_no_way_around_it() -> None:
    body = b'{"model":"m","max_tokens":1,"max_tokens":900}'
    after = json.loads(rewrite(body, peek(body), "m", False, 100, MOST_TOKENS))
    assert after["max_tokens"] == 100


@pytest.mark.parametrize(
    "part",
    [
        b'"max_tokens":1e999',
        b'"max_tokens":%b' % (b"9" * 400),
        b'"max_tokens":"\xff"',
        b'"\xff":1',
        b'"stream_options":{"x":1e999}',
        b'"stream_options":{"\xff":1}',
        b'"stream_options":{"include_usage":false,"x":[{"include_usage":0}]}',
        b'"stream_options":null',
        b'"stream_options":{ }',
    ],
)
def test_whatever_was_read_can_be_sent_on(part: bytes) -> None:
    body = b'{"model":"m","stream":true,%b}' % part
    after = rewrite(body, peek(body), "n", True, 100, MOST_TOKENS)
    assert b'"model":"n"' in after and b'"include_usage":true' in after
    assert b'"max_tokens":100' in after
    again = peek(after)
    assert again.wants_usage and again.model == "n"
