"""The settings of a route: how long, how often and where its requests are tried."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from cluster.errors import Conflict, Refused
from console.conflict import Difference, differences
from console.pages import actor_of, generation_seen, refusal_add
from console.pages.undo import settings_undo_offer
from routing.contracts.route import HashOn, RouteSettings, Strategy, settings_decode
from routing.selectors.routes import RouteView, route_view
from routing.services import route_settings_set

STRATEGIES: dict[Strategy, Promise] = {
    Strategy.POWER_OF_TWO: gettext_lazy("power of two: the less busy of two drawn"),
    Strategy.LEAST_INFLIGHT: gettext_lazy("least in flight: the least busy of all"),
    Strategy.ROUND_ROBIN: gettext_lazy("round robin: one after the other"),
    Strategy.CONSISTENT_HASH: gettext_lazy(
        "consistent hash: what belongs together stays together"
    ),
    Strategy.PREFIX_AFFINITY: gettext_lazy(
        "prefix affinity: where the prompt's beginning has been before"
    ),
    Strategy.QUEUE_AWARE: gettext_lazy(
        "queue aware: by the queue and the KV cache of the engine"
    ),
}
HASHED: dict[HashOn, Promise] = {
    HashOn.KEY: gettext_lazy("the API key"),
    HashOn.USER: gettext_lazy("the field user of the request"),
    HashOn.CONVERSATION: gettext_lazy("the beginning of the conversation"),
    HashOn.HEADER: gettext_lazy("a header"),
}
_DEFAULT = RouteSettings()


def _seconds(label: Promise, default: float, what: Promise) -> forms.DecimalField:
    return forms.DecimalField(
        label=format_lazy("{} (s)", label),
        min_value=Decimal("0.1"),
        max_value=Decimal(86_400),
        decimal_places=3,
        help_text=format_lazy(
            "{} {}",
            what,
            format_lazy(
                gettext_lazy("By default {seconds} s."), seconds=f"{default:g}"
            ),
        ),
    )


class RouteForm(forms.Form):
    """The fields carry the names of ``RouteSettings``, with dots for what is nested."""

    strategy = forms.ChoiceField(
        label=gettext_lazy("Choice of the replica"),
        choices=[(name.value, words) for name, words in STRATEGIES.items()],
        help_text=gettext_lazy("Among the replicas of the version that was drawn."),
    )
    hash_on = forms.ChoiceField(
        label=gettext_lazy("What belongs together"),
        choices=[(name.value, words) for name, words in HASHED.items()],
        help_text=gettext_lazy(
            "For the consistent hash alone. A request without it goes by its API key."
        ),
    )
    hash_header = forms.RegexField(
        label=gettext_lazy("Name of the header"),
        regex=r"\A[A-Za-z0-9-]*\Z",
        max_length=64,
        required=False,
        help_text=gettext_lazy("Where a header says what belongs together."),
        error_messages={"invalid": gettext_lazy("Use letters, digits and hyphens.")},
    )
    retries = forms.IntegerField(
        label=gettext_lazy("Retries"),
        min_value=0,
        max_value=3,
        help_text=format_lazy(
            gettext_lazy(
                "Further replicas that are tried before any content was sent. "
                "By default {n}."
            ),
            n=_DEFAULT.retries,
        ),
    )

    max_tokens = forms.IntegerField(
        label=gettext_lazy("Most tokens of an answer"),
        min_value=0,
        max_value=10_000_000,
        help_text=gettext_lazy(
            "A request that asks for more, or does not say, gets this. 0 sets no limit."
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        times = _DEFAULT.timeouts
        self.fields |= {
            "timeouts.connect_s": _seconds(
                gettext_lazy("Connect"),
                times.connect_s,
                gettext_lazy("Until the engine takes the connection."),
            ),
            "timeouts.first_content_s": _seconds(
                gettext_lazy("First content"),
                times.first_content_s,
                gettext_lazy("Until the first token, or the answer in one piece."),
            ),
            "timeouts.idle_s": _seconds(
                gettext_lazy("Idle"),
                times.idle_s,
                gettext_lazy("Between two pieces of an answer."),
            ),
            "timeouts.total_s": _seconds(
                gettext_lazy("Total"),
                times.total_s,
                gettext_lazy("The whole request, with its retries."),
            ),
        }

    def clean(self) -> None:
        """A part may not outlast the whole: it would never be the one that ends it."""
        by_header = self.cleaned_data.get("hash_on") == HashOn.HEADER
        if by_header and not self.cleaned_data.get("hash_header", "-"):
            self.add_error("hash_header", _("Which header is it?"))
        total = self.cleaned_data.get("timeouts.total_s")
        for name in ("connect_s", "first_content_s", "idle_s"):
            value = self.cleaned_data.get(f"timeouts.{name}")
            if total is not None and value is not None and value > total:
                self.add_error(
                    f"timeouts.{name}", _("It is longer than the total time.")
                )

    def settings(self) -> dict[str, Any]:
        """What was sent, as the service takes it."""
        nested: dict[str, Any] = {}
        for name, value in self.cleaned_data.items():
            outer, dot, inner = name.partition(".")
            plain = float(value) if isinstance(value, Decimal) else value
            if dot:
                nested.setdefault(outer, {})[inner] = plain
            else:
                nested[name] = plain
        return nested


def settings_flat(settings: RouteSettings) -> dict[str, str]:
    """The values of the form, as a person types them."""
    flat: dict[str, str] = {}
    for name, value in msgspec.to_builtins(settings).items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for inner, one in parts:
            text = f"{one:g}" if isinstance(one, float) else str(one)
            flat[f"{name}.{inner}" if inner else name] = text
    return flat


@require_http_methods(["GET", "HEAD", "POST"])
def route_settings(request: HttpRequest, model: str) -> HttpResponse:
    """Save the settings if the route still is as it was when the form was opened."""
    view = route_view(model=model)
    if request.method != "POST":
        return _page(request, view, RouteForm(settings_flat(view.settings)))
    form = RouteForm(request.POST)
    if not form.is_valid():
        return _page(request, view, form, status=422)
    seen = generation_seen(request)
    try:
        generation = route_settings_set(
            route=view.route,
            settings=form.settings(),
            generation=seen,
            actor=actor_of(request),
        )
    except Conflict:
        return _page(request, route_view(model=model), form, status=409)
    except Refused as refusal:
        refusal_add(form, refusal)
        return _page(request, view, form, status=422)
    if generation.number == seen:
        messages.success(request, _("No change: these settings are in force."))
    else:
        settings_undo_offer(request, model=model, generation=generation)
    return redirect("route-settings", model=model)


def _theirs(form: RouteForm, settings: RouteSettings) -> list[Difference]:
    mine = settings_flat(settings_decode(form.settings()))
    return differences(form, mine, settings_flat(settings))


def _page(
    request: HttpRequest, view: RouteView, form: RouteForm, *, status: int = 200
) -> HttpResponse:
    context = {
        "view": view,
        "form": form,
        "model": view.route.model,
        "theirs": _theirs(form, view.settings) if status == 409 else [],
        "conflict": status == 409,
    }
    return render(request, "models/route_settings.html", context, status=status)
