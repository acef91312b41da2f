"""Models and their versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_safe

from cluster.errors import Refused
from cluster.models import Engine, Kind, Version
from cluster.models import Model as ModelRow
from cluster.selectors import engine_releases
from cluster.services import model_create, version_create
from console import history
from console.base_url import base_url
from console.measured import check_mark, checks
from console.pages import actor_of, refusal_add
from console.pages.once import once_repeated, once_token
from console.pages.overview import model_rows
from console.shares import slices
from console.status import model_mark, version_mark
from routing.selectors.fleet import fleet_list, model_view
from routing.selectors.measured import measured_list, split_list
from routing.selectors.usage import usage_by_team

# More teams than this stand on the usage page.
_USERS = 5
_PATHS = {
    Kind.CHAT: "chat/completions",
    Kind.COMPLETION: "completions",
    Kind.EMBEDDING: "embeddings",
    Kind.RERANK: "rerank",
}


class ModelForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("What clients ask for, for instance qwen3-8b."),
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("Kind"), choices=Kind.choices, initial=Kind.CHAT
    )
    description = forms.CharField(
        label=gettext_lazy("Description"), max_length=500, required=False
    )


class VersionForm(forms.Form):
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=100,
        help_text=gettext_lazy("Short and never used again, for instance v2."),
    )
    engine = forms.ChoiceField(label=gettext_lazy("Engine"), choices=Engine.choices)
    served_name = forms.CharField(
        label=gettext_lazy("Served name"),
        max_length=200,
        help_text=gettext_lazy("What the engine itself calls the model."),
    )
    artifact = forms.CharField(
        label=gettext_lazy("Artifact"),
        max_length=500,
        required=False,
        help_text=gettext_lazy(
            "The file or folder that a node loads. Static replicas need none."
        ),
    )
    artifact_sha256 = forms.CharField(
        label=gettext_lazy("SHA-256 of the artifact"), max_length=64, required=False
    )
    params = forms.CharField(
        label=gettext_lazy("Launch parameters"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text=gettext_lazy(
            "One a line, as the engine spells it, for instance ctx-size=2048. "
            "vLLM, SGLang and TGI also take model, program and extra-args."
        ),
    )
    description = forms.CharField(
        label=gettext_lazy("Description"), max_length=500, required=False
    )

    def clean_params(self) -> dict[str, Any]:
        return params_parse(self.cleaned_data["params"])


def version_initial(version: Version) -> dict[str, Any]:
    """What the form takes over of a version that a new one is made from."""
    return {
        "engine": version.engine,
        "served_name": version.served_name,
        "artifact": version.artifact,
        "artifact_sha256": version.artifact_sha256,
        "params": params_text(version.params),
        "description": version.description,
    }


def params_text(params: Mapping[str, Any]) -> str:
    """The lines that ``params_parse`` reads, by name: a database keeps no order."""
    lines = []
    for name, value in sorted(params.items()):
        text = value if isinstance(value, str) else json.dumps(value)
        lines.append(name if value is True else f"{name}={text}")
    return "\n".join(lines)


def params_parse(text: str) -> dict[str, Any]:
    """Launch parameters from lines ``name=value``; a bare name is a flag."""
    params: dict[str, Any] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = (part.strip() for part in line.partition("="))
        if name in params:
            raise forms.ValidationError(
                _("%(name)s stands twice."), params={"name": name}
            )
        params[name] = _value_parse(value) if separator else True
    return params


def _value_parse(text: str) -> str | int | float | bool:
    """A number or a truth value where the text is one, else the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool) else text


@require_safe
def model_list(request: HttpRequest) -> HttpResponse:
    rows = model_rows(fleet_list())
    return render(request, "models/list.html", {"rows": rows})


@require_safe
def model(request: HttpRequest, model: str) -> HttpResponse:
    view = model_view(model=model)
    releases = engine_releases([part.version.pk for part in view.versions])
    name = view.model.name
    splits = split_list(model=name)
    measured = measured_list(splits)[name]
    served = {share.version: share for share in measured.shares}
    users = usage_by_team(model=name)
    context = {
        "view": view,
        "measured": measured,
        "check": check_mark((checks(splits) or {}).get(name)),
        "mark": model_mark(view),
        "slices": slices((part.version.name, part.weight_bp) for part in view.versions),
        "versions": [
            (
                part,
                version_mark(part),
                served.get(part.version.name),
                releases[part.version.pk],
            )
            for part in view.versions
        ],
        "call": call_example(request, view.model),
        "users": users[:_USERS],
        "users_more": len(users[_USERS:]),
        "changes": history.recent(view.model.name, "model", "weights", "route"),
    }
    return render(request, "models/model.html", context)


def call_example(request: HttpRequest, row: ModelRow) -> str:
    """A command that calls the model; the key is a placeholder, never a real one."""
    body: dict[str, Any] = {"model": row.name}
    match row.kind:
        case Kind.CHAT:
            body["messages"] = [{"role": "user", "content": "Hello"}]
        case Kind.RERANK:
            body |= {"query": "cat", "documents": ["a cat", "a dog"]}
        case Kind.EMBEDDING:
            body["input"] = "Hello"
        case _:
            body["prompt"] = "Hello"
    return (
        f"curl {base_url(request)}/{_PATHS[Kind(row.kind)]} \\\n"
        '  -H "Authorization: Bearer $SLUICE_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{json.dumps(body)}'"
    )


@require_http_methods(["GET", "HEAD", "POST"])
def model_new(request: HttpRequest) -> HttpResponse:
    form = ModelForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        if once_repeated(request):
            return redirect("model", model=form.cleaned_data["name"])
        try:
            row = model_create(**form.cleaned_data, actor=actor_of(request))
        except Refused as refusal:
            refusal_add(form, refusal)
        else:
            messages.success(request, _("The model exists. Now it needs a version."))
            return redirect("version-new", model=row.name)
    status = 422 if form.errors else 200
    context = {"form": form, "once": once_token(request)}
    return render(request, "models/model_new.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
def version_new(request: HttpRequest, model: str) -> HttpResponse:
    """A version; ``?from=`` fills the form with another one of the model."""
    view = model_view(model=model)
    source = next(
        (p.version for p in view.versions if p.version.name == request.GET.get("from")),
        None,
    )
    form = VersionForm(
        request.POST or None, initial=version_initial(source) if source else None
    )
    if request.method == "POST" and form.is_valid():
        if once_repeated(request):
            return redirect("model", model=view.model.name)
        try:
            version = version_create(
                model=view.model, **form.cleaned_data, actor=actor_of(request)
            )
        except Refused as refusal:
            refusal_add(form, refusal)
        else:
            messages.success(
                request, _("Version %(name)s exists.") % {"name": version.name}
            )
            return redirect("model", model=view.model.name)
    context = {
        "form": form,
        "view": view,
        "source": source,
        "once": once_token(request),
    }
    status = 422 if form.errors else 200
    return render(request, "models/version_new.html", context, status=status)
