"""When each replica last served content, as the gateways publish it.

One sorted set, ``SERVED``: replica id by the Unix time, on Redis's clock, of the
last good content that any gateway had from it. Gateways write every second and only
ever forward (``ZADD GT``); the prober reads it, because a replica that serves needs
no further proof that it can.
"""

from __future__ import annotations

SERVED = "sluice:replicas#served"
# Whatever is older says nothing that its absence would not say.
SERVED_KEPT_S = 86_400
