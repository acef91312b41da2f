"""Who is believed about where a request comes from."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from pytest_django.fixtures import Settings

from console.checks import trusted_proxies_are_networks
from console.client_address import (
    client_address,
    forwarded_headers_guard,
    networks,
)


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", " 1.2.3.4 ", "1.2.3.4"),
        # What the client itself wrote stands in front, and is not believed.
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.2", "1.2.3.4"),
        # Nothing but proxies: the first of them.
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "1.2.3.4, junk", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4:80", "10.0.0.1"),
        ("10.0.0.1", "fe80::1%" + "x" * 500, "10.0.0.1"),
        ("9.9.9.9", "1.2.3.4", "9.9.9.9"),
        ("2001:db8::1", "1.2.3.4", "1.2.3.4"),
        ("::ffff:10.0.0.1", "::ffff:1.2.3.4", "1.2.3.4"),
        ("::ffff:9.9.9.9", "1.2.3.4", "9.9.9.9"),
        ("", "1.2.3.4", ""),
    ],
)
def test_only_trusted_proxies_are_believed(
    settings: Settings, peer: str, forwarded: str, expected: str
) -> None:
    settings.TRUSTED_PROXIES = ["10.0.0.0/24", "2001:db8::1"]
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    request = RequestFactory().get("/", REMOTE_ADDR=peer, headers=headers)
    assert client_address(request) == expected


def test_without_trusted_proxies_the_header_says_nothing(
    settings: Settings,
) -> None:
    settings.TRUSTED_PROXIES = []
    request = RequestFactory().get("/", headers={"X-Forwarded-For": "1.2.3.4"})
    assert client_address(request) == "127.0.0.1"


def test_a_wrong_proxy_is_told_by_its_text_and_at_the_start(
    settings: Settings,
) -> None:
    assert trusted_proxies_are_networks() == []
    settings.TRUSTED_PROXIES = ["proxy.example"]
    assert [error.id for error in trusted_proxies_are_networks()] == ["console.E002"]
    with pytest.raises(ImproperlyConfigured, match=r"10\.0\.0\.1/24"):
        networks(("10.0.0.1/24",))


@pytest.mark.parametrize(("peer", "secure"), [("10.0.0.1", True), ("9.9.9.9", False)])
def test_only_a_trusted_proxy_makes_a_request_secure(
    settings: Settings, peer: str, secure: bool
) -> None:
    settings.TRUSTED_PROXIES = ["10.0.0.0/24"]
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    seen: list[bool] = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.append(request.is_secure())
        return HttpResponse()

    headers = {"X-Forwarded-Proto": "https"}
    request = RequestFactory().get("/", REMOTE_ADDR=peer, headers=headers)
    forwarded_headers_guard(view)(request)
    assert seen == [secure]
