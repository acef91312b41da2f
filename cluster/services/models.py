from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from cluster.actor import Actor
from cluster.announce import announce_inventory
from cluster.errors import Refused
from cluster.models import Engine, Kind, Model, Version
from cluster.models.model import name_validator
from cluster.selectors.models import model_has_run
from cluster.services.audit import audit_write

_PARAMS_BYTES = 16_384


def name_check(name: str, *, field: str = "name") -> None:
    """Raise ``Refused`` for a name that could not stand in a URL or a header."""
    if not name:
        raise Refused(_("Give a name."), code="required", field=field)
    if len(name) > 100:
        raise Refused(_("At most 100 characters."), code="too_long", field=field)
    try:
        name_validator(name)
    except ValidationError as error:
        raise Refused(error.messages[0], code="bad_name", field=field) from error


def choice_check(value: str, choices: list[str], *, field: str) -> None:
    if value not in choices:
        raise Refused(
            _("Choose one of: %(choices)s.") % {"choices": ", ".join(choices)},
            code="bad_choice",
            field=field,
        )


@transaction.atomic
def model_create(
    *, name: str, kind: str = Kind.CHAT, description: str = "", actor: Actor
) -> Model:
    """A new model, without versions; its route follows on commit."""
    name_check(name)
    choice_check(kind, Kind.values, field="kind")
    duplicate = Refused(
        gettext_lazy("A model of this name exists."), code="duplicate", field="name"
    )
    if Model.objects.filter(name__iexact=name).exists():
        raise duplicate
    try:
        with transaction.atomic():
            model = Model.objects.create(name=name, kind=kind, description=description)
    except IntegrityError as error:
        raise duplicate from error
    audit_write(
        actor=actor,
        action="model.create",
        target=name,
        after={"kind": kind, "description": description},
    )
    announce_inventory(reason=f"model {name} created", actor=actor)
    return model


@transaction.atomic
def model_update(
    *, model: Model, description: str | None = None, actor: Actor
) -> Model:
    """Change what may change of a model; its name and kind stay for ever."""
    if description is not None and description != model.description:
        if len(description) > 500:
            raise Refused(
                _("At most 500 characters."), code="too_long", field="description"
            )
        audit_write(
            actor=actor,
            action="model.update",
            target=model.name,
            before={"description": model.description},
            after={"description": description},
        )
        model.description = description
        model.save(update_fields=["description"])
    return model


@transaction.atomic
def model_delete(*, model: Model, actor: Actor) -> None:
    """Delete a model that never had a replica, with its versions and its route."""
    if model_has_run(model=model):
        raise Refused(
            _("The model has replicas, or had some whose requests are on record."),
            code="in_use",
        )
    name = model.name
    before = {
        "kind": model.kind,
        "description": model.description,
        "versions": list(model.versions.values_list("name", flat=True)),
    }
    model.delete()
    audit_write(actor=actor, action="model.delete", target=name, before=before)
    announce_inventory(reason=f"model {name} deleted", actor=actor)


@transaction.atomic
def version_create(
    *,
    model: Model,
    name: str,
    engine: str,
    served_name: str,
    artifact: str = "",
    artifact_sha256: str = "",
    params: dict[str, Any] | None = None,
    description: str = "",
    actor: Actor,
) -> Version:
    """A new release of a model; the first one of a model gets all the traffic."""
    name_check(name)
    _release_check(engine, served_name)
    artifact_sha256 = _checksum_clean(artifact_sha256)
    params = params or {}
    params_check(params)
    duplicate = Refused(
        gettext_lazy("The model has a version of this name."),
        code="duplicate",
        field="name",
    )
    try:
        with transaction.atomic():
            version = Version.objects.create(
                model=model,
                name=name,
                engine=engine,
                served_name=served_name,
                artifact=artifact,
                artifact_sha256=artifact_sha256,
                params=params,
                description=description,
            )
    except IntegrityError as error:
        raise duplicate from error
    audit_write(
        actor=actor,
        action="version.create",
        target=str(version),
        after={
            "engine": engine,
            "served_name": served_name,
            "artifact": artifact,
            "artifact_sha256": artifact_sha256,
            "params": params,
            "description": description,
        },
    )
    announce_inventory(reason=f"version {version} created", actor=actor)
    return version


def _release_check(engine: str, served_name: str) -> None:
    choice_check(engine, Engine.values, field="engine")
    if not served_name or len(served_name) > 200:
        raise Refused(
            _("Give the name that the engine serves it under, at most 200 characters."),
            code="required",
            field="served_name",
        )


def _checksum_clean(text: str) -> str:
    """A SHA-256 checksum as it is stored; empty for none."""
    text = text.lower()
    if text and (len(text) != 64 or not set(text) <= set("0123456789abcdef")):
        raise Refused(
            _("A SHA-256 checksum has 64 hexadecimal digits."),
            code="bad_checksum",
            field="artifact_sha256",
        )
    return text


def params_check(params: dict[str, Any]) -> None:
    """Launch parameters are flat: text, numbers, or true for a bare flag."""
    for key, value in params.items():
        if not key or key.startswith("-") or not key.replace("-", "").isalnum():
            raise Refused(
                _("Write parameters without leading hyphens, like ctx-size."),
                code="bad_param",
                field="params",
            )
        if not isinstance(value, str | int | float | bool):
            raise Refused(
                _("The value of %(key)s must be text, a number, true or false.")
                % {"key": key},
                code="bad_param",
                field="params",
            )
    if len(str(params)) > _PARAMS_BYTES:
        raise Refused(_("Too many parameters."), code="too_long", field="params")
