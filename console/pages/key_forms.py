"""What a person gives a key, when it is issued and later."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from cluster.models import Model
from routing.contracts.keys import SCOPE_CHOOSE_VERSION
from routing.models import ApiKey
from routing.selectors import KeyState
from routing.services.key_values import KEY_DAYS, KeyValues

_KEPT = "kept"
EXPIRIES = [
    ("30", gettext_lazy("in 30 days")),
    ("90", gettext_lazy("in 90 days")),
    ("365", gettext_lazy("in a year")),
    ("0", gettext_lazy("never")),
]

STATES = {
    KeyState.ACTIVE: gettext_lazy("Active"),
    KeyState.EXPIRING: gettext_lazy("Expires soon"),
    KeyState.EXPIRED: gettext_lazy("Expired"),
    KeyState.REVOKED: gettext_lazy("Revoked"),
    KeyState.UNUSED: gettext_lazy("Never used"),
}


class KeyForm(forms.Form):
    """A fresh key's values, or with ``key`` those that one has."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("Who or what uses it, for instance nightly-report."),
    )
    owner = forms.CharField(
        label=gettext_lazy("Owner"),
        max_length=100,
        required=False,
        help_text=gettext_lazy("Who answers for it: a person, a crew, a system."),
    )
    tags = forms.CharField(
        label=gettext_lazy("Tags"),
        max_length=1000,
        required=False,
        help_text=gettext_lazy("With commas between them, for instance batch, night."),
    )
    models = forms.MultipleChoiceField(
        label=gettext_lazy("Models"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("With none chosen the key may call every model."),
    )
    expiry = forms.ChoiceField(
        label=gettext_lazy("Expires"), choices=EXPIRIES, initial=str(KEY_DAYS)
    )
    choose_version = forms.BooleanField(
        label=gettext_lazy("May choose the version of a model itself"),
        required=False,
        help_text=gettext_lazy(
            "With the header x-sluice-version, whatever the weights are."
        ),
    )

    def __init__(self, data: Any = None, *, key: ApiKey | None = None) -> None:
        super().__init__(data, initial=None if key is None else key_initial(key))
        names = set(Model.objects.values_list("name", flat=True))
        # A model that was deleted stays until somebody takes it from the list.
        names |= set(key.model_names or ()) if key else set()
        self._choices("models", [(name, name) for name in sorted(names)])
        if key is not None:
            now = _expiry_text(key)
            kept = (_KEPT, _("as it is: %(when)s") % {"when": now})
            self._choices("expiry", [kept, *EXPIRIES])

    def _choices(self, name: str, choices: list[Any]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def service_values(self) -> KeyValues:
        """The cleaned values as the services take them."""
        values = self.cleaned_data
        found = KeyValues(
            name=values["name"],
            owner=values["owner"],
            tags=[tag for part in values["tags"].split(",") if (tag := part.strip())],
            models=values["models"] or None,
            scopes=[SCOPE_CHOOSE_VERSION] if values["choose_version"] else [],
        )
        if values["expiry"] != _KEPT:
            days = int(values["expiry"])
            found["expires_at"] = timezone.now() + timedelta(days) if days else None
        return found


def key_initial(key: ApiKey) -> dict[str, Any]:
    """What the form shows of a key."""
    return {
        "name": key.name,
        "owner": key.owner,
        "tags": ", ".join(key.tags),
        "models": key.model_names or [],
        "expiry": _KEPT,
        "choose_version": SCOPE_CHOOSE_VERSION in key.scopes,
    }


def _expiry_text(key: ApiKey) -> str:
    if key.expires_at is None:
        return _("never")
    return key.expires_at.strftime("%Y-%m-%d %H:%M UTC")
