"""Which addresses a replica may have."""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

from django.utils.translation import gettext as _

from cluster.errors import Refused

# Names under which clouds serve machine credentials to whoever asks.
_METADATA_HOSTS = {
    "metadata",
    "metadata.google.internal",
    "instance-data",
    "instance-data.ec2.internal",
}
_METADATA_ADDRESSES = {
    ipaddress.ip_address("100.100.100.200"),
    ipaddress.ip_address("fd00:ec2::254"),
}
# Only ASCII: resolvers turn other digits, such as full-width ones, into plain ones.
_HOST_NAME = re.compile(
    r"(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(?:\.(?!-)[a-z0-9_-]{1,63})*\Z"
)
# An IPv6 address of these networks carries an IPv4 address in its last 32 bits.
_CARRIERS = [
    ipaddress.IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "64:ff9b::/96")
]

_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


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
    address = _ip_address(host)
    if address is None and not _HOST_NAME.match(host):
        raise _refused(_("This is not a host name or an IP address."))
    if host in _METADATA_HOSTS or (address and _is_metadata(address)):
        raise _refused(
            _("Link-local and metadata addresses are refused."), code="address_refused"
        )
    if port is None:
        port = 443 if parts.scheme == "https" else 80
    shown = host if address is None else str(address)
    return f"{parts.scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}"


def _ip_address(host: str) -> _IPAddress | None:
    """The IP address that the text spells, None if it is a name.

    The C library also accepts spellings such as 2852039166 or 0xa9.0xfe.0xa9.0xfe.
    """
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeEncodeError):
        return None


def _is_metadata(address: _IPAddress) -> bool:
    """Whether it is link-local or another metadata address, or leads to one."""
    if isinstance(address, ipaddress.IPv6Address):
        carried = address.sixtofour
        if any(address in network for network in _CARRIERS):
            carried = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if carried is not None and _is_metadata(carried):
            return True
    return address.is_link_local or address in _METADATA_ADDRESSES


def _refused(message: str, *, code: str = "bad_address") -> Refused:
    return Refused(message, code=code, field="address")
