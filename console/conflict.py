"""Another admin's change under one's feet: what they made of it, beside one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django import forms
from django.utils.translation import gettext as _


class Difference(NamedTuple):
    """One field where a form and what is in force differ; values as they are shown."""

    label: str
    yours: str
    theirs: str


def differences(
    form: forms.BaseForm, yours: Mapping[str, object], theirs: Mapping[str, object]
) -> list[Difference]:
    """Both by the names of the form's fields; what only one of them has is left out."""
    return [
        Difference(str(field.label), _word(yours[name]), _word(theirs[name]))
        for name, field in form.fields.items()
        if name in yours and name in theirs and yours[name] != theirs[name]
    ]


def _word(value: object) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text or "\u2013"
