"""People: who may come in, what they may do, where they are logged in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from cluster.errors import Missing, Refused
from console.accounts.attempts import locked_among, locked_until
from console.accounts.grants import ROLE_NAMES, Role
from console.accounts.models import AccessToken, SignIn, User
from console.accounts.services import token_revoke
from console.accounts.sessions import session_revoke
from console.accounts.users import (
    user_active_set,
    user_add,
    user_get,
    user_grant,
    user_password_reset,
    user_unlock,
)
from console.pages import actor_of, refusal_add
from console.pages.once import once_token, once_use
from console.status import Mark
from routing.models import Team

_SHOWN = 500
_ROLE_EFFECTS = {
    Role.VIEWER: gettext_lazy("viewer: sees everything but people and the audit log"),
    Role.OPERATOR: gettext_lazy("operator: changes models, replicas, weights and keys"),
    Role.ADMIN: gettext_lazy("admin: also changes teams and people"),
}


class GrantForm(forms.Form):
    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=[(role.value, words) for role, words in _ROLE_EFFECTS.items()],
    )
    leads = forms.MultipleChoiceField(
        label=gettext_lazy("Leads the teams"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Manages the keys of these teams, whatever the role."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        teams = Team.objects.order_by("slug").values_list("slug", "name")
        self.fields["leads"].choices = list(teams)  # type: ignore[attr-defined]


class UserForm(GrantForm):
    username = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=150,
        help_text=gettext_lazy("Letters, digits and @ . + - _; it stays for ever."),
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": False}
        ),
    )


def user_mark(user: User, *, locked: bool) -> Mark:
    if not user.is_active:
        return Mark("off", _("Deactivated"))
    if locked:
        return Mark("hold", _("Locked after failed logins"))
    return Mark("ok", _("Active"))


@require_safe
def user_list(request: HttpRequest) -> HttpResponse:
    users = User.objects.order_by("username").prefetch_related("leads", "sign_ins")
    shown = list(users[:_SHOWN])
    locked = locked_among([user.username for user in shown])
    rows = [
        (
            user,
            user_mark(user, locked=user.username in locked),
            ROLE_NAMES[Role(user.role)],
        )
        for user in shown
    ]
    return render(request, "users/list.html", {"rows": rows})


@require_http_methods(["GET", "HEAD", "POST"])
def user_new(request: HttpRequest) -> HttpResponse:
    """Add a person. The answer to the POST is the only page that shows the password."""
    form = UserForm(request.POST or None, initial={"role": Role.VIEWER.value})
    if request.method == "POST" and form.is_valid():
        if not once_use(request):
            messages.error(request, _("That form was sent before: nothing was done."))
            return redirect("users")
        try:
            user, password = user_add(actor=actor_of(request), **form.cleaned_data)
        except Refused as refusal:
            refusal_add(form, refusal)
        else:
            return _password_show(request, user, password)
    context = {"form": form, "once": once_token(request)}
    status = 422 if form.errors else 200
    return render(request, "users/new.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
def user(request: HttpRequest, username: str) -> HttpResponse:
    person = user_get(username=username)
    leads = [team.slug for team in person.leads.all()]
    initial = {"role": person.role, "leads": leads}
    form = GrantForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        try:
            user_grant(username=username, actor=actor_of(request), **form.cleaned_data)
        except Refused as refusal:
            refusal_add(form, refusal)
        else:
            messages.success(request, _("Saved. It holds from the next request on."))
            return redirect("user", username=username)
    status = 422 if form.errors else 200
    return render(
        request, "users/user.html", _context(request, person, form), status=status
    )


def _context(request: HttpRequest, person: User, form: GrantForm) -> dict[str, Any]:
    until = locked_until(username=person.username)
    return {
        "person": person,
        "role": ROLE_NAMES[Role(person.role)],
        "mark": user_mark(person, locked=until is not None),
        "locked_until": until,
        "form": form,
        "sign_ins": person.sign_ins.all(),
        "tokens": person.tokens.order_by("revoked_at", "-created_at")[:100],
        "this_key": request.session.session_key,
        "is_self": person.pk == request.user.pk,
        "confirm": request.GET.get("confirm", ""),
        "once": once_token(request),
    }


@require_POST
def user_act(request: HttpRequest, username: str, verb: str) -> HttpResponse:
    actor = actor_of(request)
    try:
        if verb == "reset-password":
            return _password_reset(request, username)
        if verb == "activate":
            user_active_set(username=username, active=True, actor=actor)
            done = _("%(name)s may log in again.")
        elif verb == "deactivate":
            user_active_set(username=username, active=False, actor=actor)
            done = _("%(name)s is logged out everywhere and cannot log in.")
        elif verb == "unlock":
            user_unlock(username=username, actor=actor)
            done = _("%(name)s may try to log in again.")
        else:
            raise Http404
    except Missing:
        raise
    except Refused as refusal:
        messages.error(request, str(refusal.message))
    else:
        messages.success(request, done % {"name": username})
    return redirect("user", username=username)


def _password_reset(request: HttpRequest, username: str) -> HttpResponse:
    if username == request.user.get_username():
        return redirect("profile-password")
    if not once_use(request):
        messages.error(request, _("That form was sent before: nothing was done."))
        return redirect("user", username=username)
    person, password = user_password_reset(username=username, actor=actor_of(request))
    return _password_show(request, person, password)


def _password_show(request: HttpRequest, person: User, password: str) -> HttpResponse:
    context = {
        "title": _("The new password"),
        "label": person.username,
        "lead": _(
            "Hand it over in person. Whoever has it changes it on their profile page."
        ),
        "secret": password,
        "back": reverse("user", args=[person.username]),
    }
    return render(request, "users/secret.html", context)


@require_POST
def user_session_end(request: HttpRequest, username: str, row: str) -> HttpResponse:
    found = SignIn.objects.select_related("user").filter(
        pk=row_number(row), user__username=username
    )
    if sign_in := found.first():
        session_revoke(sign_in=sign_in, actor=actor_of(request))
    messages.success(request, _("That session is ended."))
    return redirect("user", username=username)


@require_POST
def user_token_revoke(request: HttpRequest, username: str, row: str) -> HttpResponse:
    found = AccessToken.objects.select_related("user").filter(
        pk=row_number(row), user__username=username
    )
    if (token := found.first()) is None:
        raise Http404
    token_revoke(token=token, actor=actor_of(request))
    messages.success(request, _("The token is refused from now on."))
    return redirect("user", username=username)


def row_number(text: str) -> int:
    """The id in an address; what is none finds no row."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
