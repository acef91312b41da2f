"""Logging in and out, and what a browser remembers of a person's taste."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from cluster.actor import Actor
from cluster.services.audit import audit_write
from console.accounts.attempts import attempt_begin, attempts_clear
from console.accounts.models import User
from console.accounts.sessions import sign_in_forget, sign_in_record
from console.client_address import client_address
from console.frame import THEME_COOKIE, THEMES
from console.pages import actor_of

_YEAR_S = 365 * 86_400


class LoginForm(AuthenticationForm):
    """Looks at a password only while its name and address are not locked."""

    request: HttpRequest

    def clean(self) -> dict[str, Any]:
        name = self.cleaned_data.get("username")
        if not name or not self.cleaned_data.get("password"):
            return super().clean()
        address = client_address(self.request)
        attempt = attempt_begin(username=name, address=address)
        if isinstance(attempt, datetime):
            raise forms.ValidationError(_locked_text(attempt), code="locked")
        try:
            cleaned = super().clean()
        except forms.ValidationError:
            _refused_record(name, address)
            raise
        attempts_clear(username=name, address=address)
        return cleaned


def _locked_text(until: datetime) -> str:
    left_s = (until - timezone.now()).total_seconds()
    minutes = max(1, math.ceil(left_s / 60))
    return ngettext(
        "Too many failed logins. Try again in %(n)d minute, or ask an admin to unlock "
        "the name.",
        "Too many failed logins. Try again in %(n)d minutes, or ask an admin to "
        "unlock the name.",
        minutes,
    ) % {"n": minutes}


def _refused_record(name: str, address: str) -> None:
    """Names that nobody has are left out: it may be a password in the wrong field."""
    known = User.objects.filter(username=name).exists()
    actor = Actor("visitor", "visitor", address)
    audit_write(actor=actor, action="session.refused", target=name if known else "–")


class Login(LoginView):
    """Says where the first password lies, while nobody ever used it."""

    template_name = "session/login.html"
    form_class = LoginForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        fresh = not User.objects.filter(last_login__isnull=False).exists()
        return super().get_context_data(**kwargs, never_used=fresh)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_valid(form)
        user = form.get_user()
        sign_in_record(request=self.request, user=user, actor=actor_of(self.request))
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_invalid(form)
        if form.has_error("__all__", "locked"):
            response.status_code = 429
        return response


class Logout(LogoutView):
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        key = request.session.session_key
        response = super().post(request, *args, **kwargs)
        if key:
            sign_in_forget(session_key=key)
        return response


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Keep the theme in a cookie: the server sets the class, so nothing flashes."""
    target = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(target, {request.get_host()}):
        target = "/"
    response = HttpResponseRedirect(target)
    chosen = request.POST.get("theme", "")
    if chosen in THEMES:
        response.set_cookie(
            THEME_COOKIE,
            chosen,
            max_age=_YEAR_S,
            samesite="Lax",
            httponly=True,
            secure=request.is_secure(),
        )
    return response
