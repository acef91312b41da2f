"""Where clients find the gateway, as far as the console can know."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest


def base_url(request: HttpRequest) -> str:
    """The base URL of an OpenAI client. A gateway that listens on every address is
    named by the one under which the console was reached."""
    host, port = settings.GATEWAY_BIND
    if host in ("0.0.0.0", "::"):
        host = request.get_host().rpartition(":")[0] or request.get_host()
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{host}:{port}/v1"
