"""Help where a number needs one, by topic: what it is, and how it comes about."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


class Topic(NamedTuple):
    """``formula`` is the reckoning itself, where there is one."""

    title: str | Promise
    text: str | Promise
    formula: str | Promise = ""


TOPICS = {
    "measured": Topic(
        _("Measured shares"),
        _(
            "What requests really got: the gateways count every draw of a version. "
            "Wanted is what was set, applied what the gateways acknowledged."
        ),
        _("requests that drew the version ÷ all requests of the model"),
    ),
    "interval": Topic(
        _("Interval"),
        _(
            "A share of few requests is uncertain. The true share lies within the "
            "interval in at least 95 of 100 such counts; it narrows as requests come."
        ),
        _("about ± 2 × √(share × (1 − share) ÷ requests)"),
    ),
    "share_check": Topic(
        _("Share check"),
        _(
            "A standing test that every gateway draws versions by the weights. It may "
            "be looked at at any time without more false alarms."
        ),
    ),
    "first_content": Topic(
        _("Time to first token (TTFT)"),
        _(
            "From the arrival of the request at the gateway to the first content that "
            "went back to the client: queue, connection and the engine's reading of "
            "the prompt are in it."
        ),
        _("first content − arrival"),
    ),
    "phases": Topic(
        _("What the gateway adds"),
        _(
            "Receiving, checking the key, routing and queueing are the gateway's; "
            "waiting, prefill and decode are the engine's. A gap is time that no phase "
            "accounts for."
        ),
        _("total − connect − wait − prefill − decode"),
    ),
    "kv_cache": Topic(
        _("KV cache"),
        _(
            "The engine's memory for the prompts and answers it works on. Near 100 % "
            "new requests wait inside the engine, or running ones are pushed out."
        ),
        _("blocks in use ÷ all blocks, as the engine reports it"),
    ),
    "estimated": Topic(
        _("Estimated tokens (≈)"),
        _(
            "Some engines do not count. Then tokens are estimated from the length of "
            "the text: good for comparing, not for bills."
        ),
    ),
}
