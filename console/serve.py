"""``python -m console.serve``: the console's web process.

uvicorn with our logging and our trusted proxies; compose files and units may as
well call ``uvicorn console.asgi:application`` themselves.
"""

from __future__ import annotations

import os

import uvicorn


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from django.conf import settings

    host, port = settings.CONSOLE_BIND
    uvicorn.run(
        "console.asgi:application",
        host=host,
        port=port,
        # Django's own configuration is in force: JSON lines.
        log_config=None,
        # Which address a client has is decided in one place, client_address.
        proxy_headers=False,
        server_header=False,
        lifespan="off",
        # Pages send a few names at most, and what they get is small.
        ws="websockets-sansio",
        ws_max_size=16_384,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()
