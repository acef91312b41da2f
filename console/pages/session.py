"""Logging in, and what a browser remembers of a person's taste."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from console.accounts.models import User
from console.frame import THEME_COOKIE, THEMES

_YEAR_S = 365 * 86_400


class Login(LoginView):
    """Says where the first password lies, while nobody ever used it."""

    template_name = "session/login.html"
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        fresh = not User.objects.filter(last_login__isnull=False).exists()
        return super().get_context_data(**kwargs, never_used=fresh)


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
