"""The small parts that every page is made of."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django import template
from django.template.context import Context
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, pgettext

from console.accounts.grants import Scope, grant_of
from console.bidi import isolated
from console.guide import chapter_shown
from console.help import TOPICS
from console.history import percent as percent_text
from console.measured import Whisker, interval_text
from console.outcome_words import duration_text
from console.shares import Slice
from console.status import Mark
from console.time_range import moment_text, zone_of
from routing.selectors.measured import VersionShare

register = template.Library()


@register.filter
def percent(weight_bp: int) -> str:
    return percent_text(weight_bp)


@register.filter
def number(value: int | None) -> str:
    """A whole number with its thousands apart; a dash for what nobody knows."""
    return "–" if value is None else f"{value:,}"


@register.filter(name="isolated")
def isolated_filter(text: str) -> str:
    return isolated(text)


@register.filter
def ms(value: float | None) -> str:
    """Milliseconds as a person reads them."""
    return duration_text(value)


@register.filter
def share(value: float) -> str:
    """A part of one in percent, to one decimal."""
    return f"{value * 100:.1f}\u00a0%"


@register.filter
def actor_name(text: str) -> str:
    """An actor on record, ``user:ada``, as a person reads it: people by their name
    alone, everything else with its kind."""
    kind, separator, name = text.partition(":")
    if not separator or kind == "user":
        return name or text
    return f"{name} ({actor_kind(kind)})"


@register.filter
def actor_kind(kind: str) -> str:
    words = {
        "command": pgettext("actor", "command"),
        "task": pgettext("actor", "task"),
        "token": pgettext("actor", "token"),
        "visitor": pgettext("actor", "not logged in"),
    }
    return words.get(kind, kind)


@register.simple_tag
@functools.cache
def icon(name: str) -> SafeString:
    """A 16 px icon that takes the colour of its text; never without words beside it."""
    return format_html(
        '<svg class="icon" width="16" height="16" aria-hidden="true">'
        '<use href="{}#{}"/></svg>',
        static("icons.svg"),
        name,
    )


@register.simple_tag
def mark(value: Mark) -> SafeString:
    """Shape, word and colour of a state."""
    return format_html(
        '<span class="mark mark-{}">{}<span>{}</span></span>',
        value.token,
        icon(f"state-{value.token}"),
        value.word,
    )


@register.simple_tag
def help_link(chapter: str, section: str = "") -> SafeString:
    """A link to the chapter of the guide that explains a page, and to a section of it
    by its anchor."""
    return format_html(
        '<a class="button small quiet" href="{}{}">{}{}</a>',
        reverse("help-chapter", args=[chapter]),
        f"#{section}" if section else "",
        icon("help"),
        _("Help: %(title)s") % {"title": chapter_shown(chapter).title},
    )


@register.simple_tag(takes_context=True)
def blocked(context: Context, scope: str, team: str = "") -> str:
    """Why this person may not do what needs the scope, or nothing: the button stays
    where it is, ``aria-disabled``, with the reason beside it."""
    return grant_of(context["request"]).refusal(Scope(scope), team=team)


@register.simple_tag(takes_context=True)
def when(context: Context, value: datetime | float | None) -> SafeString | str:
    """An instant in the zone of who looks, which it names, with its age. Unix seconds
    or a datetime; 0 is unknown.

    In an answer to a poll the age is left to the browser: so equal states give
    equal text, and nothing is swapped.
    """
    if not value:
        return "–"
    if isinstance(value, int | float):
        value = datetime.fromtimestamp(value, UTC)
    value = value.astimezone(UTC)
    request = context.get("request")
    zone = zone_of(getattr(request, "user", None))
    polled = bool(request is not None and getattr(request, "htmx", False))
    return format_html(
        '<time datetime="{}"><span class="at">{}</span>'
        '<span class="age" data-age>{}</span></time>',
        value.strftime("%Y-%m-%dT%H:%M:%SZ"),
        moment_text(value, zone),
        "" if polled else age_text((timezone.now() - value).total_seconds()),
    )


_AGES = (
    (86_400, gettext_noop("%(n)d d ago"), gettext_noop("in %(n)d d")),
    (3600, gettext_noop("%(n)d h ago"), gettext_noop("in %(n)d h")),
    (60, gettext_noop("%(n)d min ago"), gettext_noop("in %(n)d min")),
    (1, gettext_noop("%(n)d s ago"), gettext_noop("in %(n)d s")),
)


def age_text(seconds: float) -> str:
    """How long ago (or, when negative, in how long), in its largest unit."""
    size = abs(seconds)
    for unit_s, ago, ahead in _AGES:
        if size >= unit_s:
            return _(ago if seconds > 0 else ahead) % {"n": size // unit_s}
    return _("now")


@register.simple_tag
def figure(
    values: dict[str, float | None], name: str, digits: int = 0, none: str = ""
) -> SafeString:
    """A live number, patched in place by ``figures.js`` in the same notation; ``none``
    is what to say where there is none."""
    value = values.get(name)
    return format_html(
        '<span data-figure="{}" data-digits="{}"{} class="{}">{}</span>',
        name,
        digits,
        format_html(' data-none="{}"', none) if none else "",
        "is-none" if value is None else "",
        (none or _("not collected")) if value is None else f"{value:,.{digits}f}",
    )


@register.inclusion_tag("components/bar.html")
def share_bar(
    slices: list[Slice], label: str, name: str = "", whiskers: Sequence[Whisker] = ()
) -> dict[str, Any]:
    """Shares of 100 % as one bar; ``label`` is its text for those who cannot see it.

    ``name`` makes it a bar that a script may redraw; ``whiskers`` mark how far the
    borders between the slices may lie off.
    """
    return {"slices": slices, "label": label, "name": name, "whiskers": whiskers}


@register.filter
def interval(share: VersionShare) -> str:
    return interval_text(share)


@register.filter
def thousands(number: int) -> str:
    return f"{number:,}"


@register.inclusion_tag("components/mini_bar.html")
def mini_bar(slices: list[Slice]) -> dict[str, Any]:
    return {
        "slices": slices,
        "label": ", ".join(f"{part.name} {part.percent}" for part in slices if part.bp),
    }


@register.inclusion_tag("components/help.html")
def help_on(name: str) -> dict[str, Any]:
    """A button that explains a number; outside of what is swapped while one reads."""
    return {"name": name, "topic": TOPICS[name]}


@register.inclusion_tag("components/copyable.html")
def copyable(text: str, name: str) -> dict[str, str]:
    """A text to take along, with its button; ``name`` is its own on the page."""
    return {"text": text, "name": name}


@register.inclusion_tag("components/field.html")
def field(bound: Any) -> dict[str, Any]:
    """A form field with its label, help and errors, tied together for readers."""
    described = []
    if bound.help_text:
        described.append(f"{bound.id_for_label}-help")
    if bound.errors:
        described.append(f"{bound.id_for_label}-error")
    attrs: dict[str, str] = {}
    if bound.widget_type in ("text", "textarea"):
        # Names and descriptions may be written in either direction.
        attrs["dir"] = "auto"
    if described:
        attrs["aria-describedby"] = " ".join(described)
    if bound.errors:
        attrs["aria-invalid"] = "true"
    return {"field": bound, "control": bound.as_widget(attrs=attrs)}
