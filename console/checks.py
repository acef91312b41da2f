"""System checks for settings that would break at three in the morning."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from console.client_address import networks


@register()
def bind_is_reachable_by_its_hosts(**_: Any) -> list[CheckMessage]:
    """A console that listens on every address needs to know its own names."""
    host = settings.CONSOLE_BIND[0]
    if host in ("0.0.0.0", "::") and set(settings.ALLOWED_HOSTS) <= {
        "localhost",
        "127.0.0.1",
        "[::1]",
    }:
        return [
            Warning(
                "The console listens on every address but answers only to localhost.",
                hint="Set SLUICE_ALLOWED_HOSTS to the names that browsers use.",
                id="console.W001",
            )
        ]
    return []


@register()
def ports_differ(**_: Any) -> list[CheckMessage]:
    if settings.CONSOLE_BIND == settings.GATEWAY_BIND:
        return [
            Error(
                "Console and gateway are bound to the same address and port.",
                hint="Change SLUICE_CONSOLE_BIND or SLUICE_GATEWAY_BIND.",
                id="console.E001",
            )
        ]
    return []


@register()
def trusted_proxies_are_networks(**_: Any) -> list[CheckMessage]:
    """Told at the start, not by the first request that a proxy forwards."""
    try:
        networks(tuple(settings.TRUSTED_PROXIES))
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="Like 10.0.0.0/8, 192.0.2.7", id="console.E002")]
    return []
