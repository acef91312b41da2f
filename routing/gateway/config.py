"""The gateway's settings, from the environment. Wrong values end the start.

``console/env.py`` reads the same variables for the Django processes; the gateway
never loads Django, so it has its own short reader.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

import msgspec

PROJECT_ROOT = Path(__file__).resolve().parent.parent.parent
MIB = 1024 * 1024
MULTIPART_BODY_BYTES = 100 * MIB

Network = IPv4Network | IPv6Network


class ConfigError(ValueError):
    """One sentence that names the variable and what it must be."""


class GatewayConfig(msgspec.Struct, frozen=True):
    """Sizes are bytes, times seconds. An empty ``redis_url`` means no Redis at all:
    the gateway then serves by its last snapshot and the keys it has on file."""

    host: str = "127.0.0.1"
    port: int = 8080
    data_dir: Path = PROJECT_ROOT / "var"
    redis_url: str = ""
    max_body_bytes: int = 32 * MIB
    max_multipart_bytes: int = MULTIPART_BODY_BYTES
    key_grace_s: float = 600.0
    drain_s: float = 30.0
    # How long the status line is held for the first content, and the pause
    # between comments after that.
    hold_s: float = 15.0
    # The bound of the stream of outcomes, over all gateways.
    outcomes_bytes: int = 64 * MIB
    trusted_proxies: tuple[Network, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> GatewayConfig:
        """Raises ``ConfigError`` for the first variable that is wrong."""
        env = os.environ if env is None else env
        host, port = _bind(env, "SLUICE_GATEWAY_BIND", "127.0.0.1:8080")
        body_mib = _whole(env, "SLUICE_MAX_BODY_MB", 32, least=1)
        return cls(
            host=host,
            port=port,
            data_dir=Path(_text(env, "SLUICE_DATA_DIR") or PROJECT_ROOT / "var"),
            redis_url=_redis_url(_secret(env, "REDIS_URL")),
            max_body_bytes=body_mib * MIB,
            max_multipart_bytes=max(MULTIPART_BODY_BYTES, body_mib * MIB),
            key_grace_s=_whole(env, "SLUICE_KEY_GRACE_S", 600, least=0),
            drain_s=_whole(env, "SLUICE_DRAIN_S", 30, least=0),
            outcomes_bytes=_whole(env, "SLUICE_OUTCOMES_MB", 64, least=1) * MIB,
            trusted_proxies=_networks(env, "SLUICE_TRUSTED_PROXIES"),
        )


def _text(env: Mapping[str, str], name: str) -> str:
    return env.get(name, "").strip()


def _whole(env: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    raw = _text(env, name)
    if not raw:
        return default
    if not (raw.isascii() and raw.isdigit() and len(raw) < 10) or int(raw) < least:
        raise ConfigError(
            f"{name} must be a whole number of at least {least}, not {raw!r}."
        )
    return int(raw)


def _bind(env: Mapping[str, str], name: str, default: str) -> tuple[str, int]:
    raw = _text(env, name) or default
    host, _, port = raw.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{name} must be host:port, not {raw!r}.")
    return host, int(port)


def _secret(env: Mapping[str, str], name: str) -> str:
    path = _text(env, f"{name}_FILE")
    if not path:
        return _text(env, name)
    if _text(env, name):
        raise ConfigError(f"Set {name} or {name}_FILE, not both.")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(
            f"{name}_FILE names {path}, which cannot be read: {error.strerror}."
        ) from error


def _redis_url(url: str) -> str:
    if url and not url.startswith(("unix://", "redis://", "rediss://")):
        raise ConfigError(
            "REDIS_URL must start with unix://, redis:// or rediss://, "
            f"not {url.partition(':')[0]!r}."
        )
    return url


def _networks(env: Mapping[str, str], name: str) -> tuple[Network, ...]:
    parts = [part.strip() for part in _text(env, name).split(",")]
    try:
        return tuple(ip_network(part) for part in parts if part)
    except ValueError as error:
        raise ConfigError(
            f"{name} must list addresses or networks like 10.0.0.0/8: {error}."
        ) from error


def client_address(peer: str, forwarded_for: str, trusted: tuple[Network, ...]) -> str:
    """The address of the client, as far as the proxies in front may be believed.

    Read from the right: each trusted hop vouches for the one before it.
    """
    address = peer
    hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()]
    while hops and _within(address, trusted):
        hop = hops.pop().strip("[]")
        if not _parses(hop):
            break
        address = hop
    return address


def _parses(address: str) -> bool:
    try:
        ip_address(address)
    except ValueError:
        return False
    return True


def _within(address: str, networks: tuple[Network, ...]) -> bool:
    if not networks or not _parses(address):
        return False
    parsed = ip_address(address)
    return any(parsed in network for network in networks)
