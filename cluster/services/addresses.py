"""Which addresses a replica may have."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from django.utils.translation import gettext as _

from cluster.errors import Refused

# Names under which clouds serve machine credentials to whoever asks.
_METADATA_HOSTS = {"metadata", "metadata.google.internal", "instance-data"}
_METADATA_ADDRESSES = {
    ipaddress.ip_address("100.100.100.200"),
    ipaddress.ip_address("fd00:ec2::254"),
}


def address_clean(text: str) -> str:
    """``scheme://host:port`` of a replica, normalised; ``Refused`` if it is none.

    Loopback and private addresses are normal here. Link-local ones are refused:
    they lead to the metadata services of clouds, never to an engine.
    """
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise _refused(_("This is not an address like http://10.0.0.5:8000.")) from None
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in ("http", "https") or not host or " " in host:
        raise _refused(_("Write the address like http://10.0.0.5:8000."))
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise _refused(_("Leave out the path: the gateway adds it."))
    if parts.username is not None or parts.password is not None:
        raise _refused(_("An address holds no user name and no password."))
    if port == 0:
        raise _refused(_("Port 0 is not an address to connect to."))
    if host in _METADATA_HOSTS or _is_metadata(host):
        raise _refused(
            _("Link-local and metadata addresses are refused."), code="address_refused"
        )
    if port is None:
        port = 443 if parts.scheme == "https" else 80
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}:{port}"


def _is_metadata(host: str) -> bool:
    """Whether the host is, or is another spelling of, a link-local IP address."""
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        address = _legacy_ipv4(host)
    if address is None:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_link_local or address in _METADATA_ADDRESSES


def _legacy_ipv4(host: str) -> ipaddress.IPv4Address | None:
    """The address behind spellings such as 2852039166 or 0xa9.0xfe.0xa9.0xfe,
    which the C library accepts wherever a dotted quad may stand."""
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeEncodeError):
        return None


def _refused(message: str, *, code: str = "bad_address") -> Refused:
    return Refused(message, code=code, field="address")
