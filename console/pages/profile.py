"""A person's own affairs: password, time zone, sessions, access tokens."""

from __future__ import annotations

import functools
import zoneinfo
from datetime import timedelta
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.forms import PasswordChangeForm
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from cluster.errors import Refused
from console.accounts.grants import ROLE_NAMES, Role, Scope
from console.accounts.models import User
from console.accounts.services import token_issue, token_revoke
from console.accounts.sessions import password_change, session_revoke, sessions_revoke
from console.pages import actor_of, refusal_add
from console.pages.key_forms import EXPIRIES
from console.pages.once import once_token, once_use
from console.pages.users import row_number

_TOKENS_SHOWN = 100
SCOPE_WORDS = {
    Scope.READ: gettext_lazy("read: see everything"),
    Scope.TRAFFIC: gettext_lazy("traffic: change weights and routes"),
    Scope.FLEET: gettext_lazy("fleet: change models, versions, replicas and nodes"),
    Scope.KEYS: gettext_lazy("keys: issue, change and revoke keys"),
    Scope.TEAMS: gettext_lazy("teams: add and disable teams"),
    Scope.AUDIT: gettext_lazy("audit: read the audit log"),
    Scope.ACCOUNTS: gettext_lazy("accounts: change people, their sessions and tokens"),
}


@functools.cache
def _zones() -> list[tuple[str, str]]:
    names = sorted(
        name
        for name in zoneinfo.available_timezones()
        if "/" in name and not name.startswith(("Etc/", "posix/", "right/"))
    )
    return [("", "UTC"), *((name, name) for name in names)]


class PreferencesForm(forms.Form):
    time_zone = forms.ChoiceField(
        label=gettext_lazy("Time zone"),
        required=False,
        help_text=gettext_lazy("In which times are chosen and shown beside UTC."),
    )
    shortcuts = forms.BooleanField(
        label=gettext_lazy("Shortcuts of a single letter"), required=False
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["time_zone"].choices = _zones()  # type: ignore[attr-defined]


class TokenForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("Which program uses it, for instance nightly-export."),
    )
    scopes = forms.MultipleChoiceField(
        label=gettext_lazy("Scopes"),
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("What it may do; never more than your role."),
    )
    days = forms.ChoiceField(
        label=gettext_lazy("Expires"), choices=EXPIRIES, initial="90"
    )

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = set(user.grant.scopes) | ({Scope.KEYS} if user.grant.leads else set())
        self.fields["scopes"].choices = [  # type: ignore[attr-defined]
            (scope.value, words) for scope, words in SCOPE_WORDS.items() if scope in own
        ]


@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    user = cast(User, request.user)
    initial = {"time_zone": user.time_zone, "shortcuts": user.shortcuts}
    form = PreferencesForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        user.time_zone = form.cleaned_data["time_zone"]
        user.shortcuts = form.cleaned_data["shortcuts"]
        user.save(update_fields=["time_zone", "shortcuts"])
        messages.success(request, _("Saved."))
        return redirect("profile")
    context = {
        "form": form,
        "role": ROLE_NAMES[Role(user.role)],
        "scopes": [SCOPE_WORDS[one] for one in Scope if one in user.grant.scopes],
        "leads": user.leads.order_by("slug"),
        "sign_ins": user.sign_ins.all(),
        "this_key": request.session.session_key,
        "tokens": user.tokens.order_by("revoked_at", "-created_at")[:_TOKENS_SHOWN],
    }
    status = 422 if form.errors else 200
    return render(request, "profile/profile.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
def password(request: HttpRequest) -> HttpResponse:
    form = PasswordChangeForm(cast(User, request.user), request.POST or None)
    if request.method == "POST" and form.is_valid():
        password_change(
            request=request,
            password=form.cleaned_data["new_password1"],
            actor=actor_of(request),
        )
        messages.success(
            request, _("The password is changed. Your other sessions are ended.")
        )
        return redirect("profile")
    status = 422 if form.errors else 200
    return render(request, "profile/password.html", {"form": form}, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
def token_new(request: HttpRequest) -> HttpResponse:
    """Issue a token. The answer to the POST is the only page that ever shows it."""
    user = cast(User, request.user)
    form = TokenForm(user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        if not once_use(request):
            messages.error(
                request, _("That form was sent before. No second token was issued.")
            )
            return redirect("profile")
        try:
            return _token_issued(request, user, form.cleaned_data)
        except Refused as refusal:
            refusal_add(form, refusal)
    context = {"form": form, "once": once_token(request)}
    status = 422 if form.errors else 200
    return render(request, "profile/token_new.html", context, status=status)


def _token_issued(
    request: HttpRequest, user: User, values: dict[str, Any]
) -> HttpResponse:
    days = int(values["days"])
    token, secret = token_issue(
        user=user,
        name=values["name"],
        scopes=values["scopes"],
        expires_at=timezone.now() + timedelta(days=days) if days else None,
        actor=actor_of(request),
    )
    context = {
        "title": _("The new token"),
        "label": token.name,
        "lead": _("Sluice keeps only a hash of it. If it is lost, issue another one."),
        "secret": secret,
        "back": reverse("profile"),
    }
    return render(request, "users/secret.html", context)


@require_POST
def token_end(request: HttpRequest, row: str) -> HttpResponse:
    token = cast(User, request.user).tokens.filter(pk=row_number(row)).first()
    if token is None:
        raise Http404
    token_revoke(token=token, actor=actor_of(request))
    messages.success(request, _("The token is refused from now on."))
    return redirect("profile")


@require_POST
def session_end(request: HttpRequest, row: str) -> HttpResponse:
    sign_in = cast(User, request.user).sign_ins.filter(pk=row_number(row)).first()
    if sign_in is not None:
        session_revoke(sign_in=sign_in, actor=actor_of(request))
    messages.success(request, _("That session is ended."))
    return redirect("profile")


@require_POST
def sessions_end(request: HttpRequest) -> HttpResponse:
    """End every session of this person but the one that asks."""
    sessions_revoke(
        user=cast(User, request.user),
        actor=actor_of(request),
        but=str(request.session.session_key),
    )
    messages.success(request, _("Your other sessions are ended."))
    return redirect("profile")
