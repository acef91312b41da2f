"""What may change of a model, and taking it away for good."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from cluster.errors import Refused
from cluster.models import Model
from cluster.selectors.models import model_get, model_has_run
from cluster.services import model_delete, model_update
from console.api.etags import etag_of
from console.conflict import Difference, differences
from console.pages import actor_of, refusal_add
from console.pages.undo import undo_offer


class LinesField(forms.CharField):
    """Text of several lines. Browsers send each end of a line as two characters, which
    would count twice and look like a change."""

    def to_python(self, value: object) -> str | None:
        text: str | None = super().to_python(value)
        return text and text.replace("\r\n", "\n")


class ModelEditForm(forms.Form):
    description = LinesField(
        label=gettext_lazy("Description"),
        max_length=500,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("Shown on its page. At most 500 characters."),
    )


@require_http_methods(["GET", "HEAD", "POST"])
def model_edit(request: HttpRequest, model: str) -> HttpResponse:
    """Save the description if it still is as it was when the form was opened."""
    if request.method != "POST":
        row = model_get(name=model)
        return _page(request, row, ModelEditForm({"description": row.description}))
    form = ModelEditForm(request.POST)
    with transaction.atomic():
        row = model_get(name=model, lock=True)
        if not form.is_valid():
            return _page(request, row, form, status=422)
        if request.POST.get("seen") != etag_of(row.description):
            return _page(request, row, form, status=409)
        before, after = row.description, form.cleaned_data["description"]
        try:
            model_update(model=row, description=after, actor=actor_of(request))
        except Refused as refusal:
            refusal_add(form, refusal)
            return _page(request, row, form, status=422)
    if before != after:
        undo_offer(
            request,
            "model",
            _("The description is saved."),
            back=reverse("model", args=[row.name]),
            name=row.name,
            before=before,
            after=after,
        )
    return redirect("model", model=row.name)


@require_POST
def model_remove(request: HttpRequest, model: str) -> HttpResponse:
    """Delete it once its name was typed; nothing brings it back."""
    row = model_get(name=model)
    form = ModelEditForm({"description": row.description})
    if request.POST.get("typed", "").strip() != row.name:
        wrong = _("Type the name exactly to delete the model.")
        return _page(request, row, form, status=422, wrong=wrong)
    try:
        model_delete(model=row, actor=actor_of(request))
    except Refused as refusal:
        return _page(request, row, form, status=422, wrong=str(refusal.message))
    messages.success(request, _("The model %(name)s is deleted.") % {"name": row.name})
    return redirect("models")


def _theirs(form: ModelEditForm, row: Model) -> list[Difference]:
    return differences(form, form.cleaned_data, {"description": row.description})


def _page(
    request: HttpRequest,
    row: Model,
    form: ModelEditForm,
    *,
    status: int = 200,
    wrong: str = "",
) -> HttpResponse:
    context = {
        "model": row,
        "form": form,
        "seen": etag_of(row.description),
        "theirs": _theirs(form, row) if status == 409 else [],
        "conflict": status == 409,
        "versions": list(row.versions.order_by("id").values_list("name", flat=True)),
        "wrong": wrong,
        "has_run": model_has_run(model=row),
    }
    return render(request, "models/model_edit.html", context, status=status)
