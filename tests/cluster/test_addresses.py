"""Addresses of replicas: what is one, and which are refused however they are spelt."""

from __future__ import annotations

import pytest

from cluster.errors import Refused
from cluster.services.addresses import address_clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("http://10.0.0.5:8000", "http://10.0.0.5:8000"),
        (" http://127.0.0.1:8000/ ", "http://127.0.0.1:8000"),
        ("HTTPS://GPU-7.Example", "https://gpu-7.example:443"),
        ("http://node_a.", "http://node_a:80"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://[0:0::0:1]", "http://[::1]:80"),
        ("http://127.1:8000", "http://127.0.0.1:8000"),
        ("http://xn--mnchen-3ya.example", "http://xn--mnchen-3ya.example:80"),
        ("http://[::ffff:10.0.0.5]:1", "http://[::ffff:a00:5]:1"),
    ],
)
def test_an_address_has_one_spelling(text: str, clean: str) -> None:
    assert address_clean(text) == clean
    assert address_clean(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "x:80", "//x:80", "ftp://x", "http://", "http://:80"),
        *("http://x:0", "http://x:99999", "http://x:+80", "http://x:８０"),
        *("http://x/v1", "http://x?a=1", "http://x#a", "http://u:p@x", "http://@x"),
        *("http://[::1", "http://[1]x", "http://a b", "http://a\\b", "http://a..b"),
        *("http://a%2fb", "http://a<b>", 'http://a"b', "http://-a", "http://a.-b"),
        *("http://münchen.example", "http://１２７.0.0.1", "http://①27.0.0.1"),
        *("http://" + "a" * 64, "http://" + "a." * 150 + "a"),
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_beside_its_field(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        address_clean(text)
    assert (refusal.value.code, refusal.value.field) == ("bad_address", "address")


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "169.254.0.1", "169.254.169.254."),
        *("2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376"),
        *("169.254.43518", "169.16689662", "16\t9.254.169.254"),
        *("[fe80::1]", "[fe80::1%25eth0]", "[FEBF::1]", "[fd00:ec2::254]"),
        *("[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::169.254.169.254]"),
        *("[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]", "[::ffff:100.100.100.200]"),
        *("100.100.100.200", "metadata", "METADATA.google.internal."),
    ],
)
def test_metadata_addresses_are_refused_however_they_are_spelt(host: str) -> None:
    with pytest.raises(Refused) as refusal:
        address_clean(f"http://{host}:80")
    assert refusal.value.code == "address_refused"
