"""The console's ASGI application: pages, the management API, and live pages."""

from __future__ import annotations

import os
from typing import Any

from channels.routing import ProtocolTypeRouter
from channels.sessions import CookieMiddleware
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
django_application = get_asgi_application()

# Only now are the applications loaded that these build on.
from console.live.access import origin_allowed  # noqa: E402
from console.live.consumers import LiveConsumer  # noqa: E402

_live = CookieMiddleware(LiveConsumer.as_asgi())


async def live_application(scope: Any, receive: Any, send: Any) -> None:
    """``/live`` for our own pages; anything else is refused before it is accepted."""
    if scope["path"] == "/live" and origin_allowed(scope):
        await _live(scope, receive, send)
    else:
        await receive()
        await send({"type": "websocket.close", "code": 4403})


application = ProtocolTypeRouter(
    {"http": django_application, "websocket": live_application}
)
