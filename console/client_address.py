"""Where a request came from, as the audit record names it."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.response import HttpResponseBase

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_address(request: HttpRequest) -> str:
    """The client's IP address; empty when it came over a unix socket.

    ``X-Forwarded-For`` counts only as far as trusted proxies wrote it: it is read
    from its end, and the first address that is no trusted proxy's is the client.
    """
    address = _parse(request.META.get("REMOTE_ADDR", ""))
    if address is None:
        return ""
    hops = request.headers.get("X-Forwarded-For", "").split(",")
    while hops and _is_trusted(address):
        earlier = _parse(hops.pop())
        if earlier is None:
            break
        address = earlier
    return str(address)


def forwarded_headers_guard(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware that takes away ``X-Forwarded-Proto`` unless a trusted proxy sent
    it: with it alone a request counts as having come over TLS."""

    def guard(request: HttpRequest) -> HttpResponseBase:
        peer = _parse(request.META.get("REMOTE_ADDR", ""))
        if peer is None or not _is_trusted(peer):
            request.META.pop("HTTP_X_FORWARDED_PROTO", None)
        return get_response(request)

    return guard


def _parse(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            return None
        return address.ipv4_mapped or address
    return address


def _is_trusted(address: _Address) -> bool:
    return any(
        address in network for network in networks(tuple(settings.TRUSTED_PROXIES))
    )


@functools.lru_cache(maxsize=8)
def networks(texts: tuple[str, ...]) -> tuple[_Network, ...]:
    """The networks of ``SLUICE_TRUSTED_PROXIES``; a wrong one is told by its text."""
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise ImproperlyConfigured(
            f"SLUICE_TRUSTED_PROXIES must list addresses or networks: {error}."
        ) from error
