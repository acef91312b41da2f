"""Changes of a route. Each makes one new generation, or none at all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from cluster.actor import Actor
from cluster.errors import Conflict, Missing, Refused
from cluster.models import Version
from cluster.services.audit import audit_write
from routing.contracts.route import settings_decode, weights_problem
from routing.models import Generation, GenerationWeight, Route
from routing.services.publish import snapshot_publish


def generation_current(route: Route) -> Generation | None:
    return route.generations.filter(number=route.generation).first()


def weights_of(generation: Generation | None) -> dict[str, int]:
    """Weights in basis points by version name; versions of weight 0 may be missing."""
    if generation is None:
        return {}
    rows = generation.weights.select_related("version")
    return {row.version.name: row.weight_bp for row in rows}


def weights_set(
    *,
    route: Route,
    weights: Mapping[str, int],
    generation: int,
    reason: str = "",
    actor: Actor,
) -> Generation:
    """Give every version its share; unnamed versions get 0.

    ``generation`` is the one that the caller saw. Raises ``Conflict`` when another
    change came first, ``Refused`` for an unknown version, a wrong sum or a reason that
    is no text.
    """
    if "\0" in reason:
        raise Refused(
            _("A reason holds no zero byte."), code="bad_reason", field="reason"
        )
    with transaction.atomic():
        route = _route_locked(route, generation)
        versions = {version.name: version for version in route.model.versions.all()}
        for name in weights:
            if name not in versions:
                raise Refused(
                    _("The model has no version %(name)s.") % {"name": name},
                    code="unknown_version",
                    field=f"weights.{name}",
                )
        problem = weights_problem(weights)
        if problem == "negative" or not weights:
            raise Refused(
                _("Every weight lies between 0 and 10 000."),
                code="bad_weight",
                field="weights",
            )
        if problem == "sum":
            raise Refused(
                _("The weights sum to %(sum)d basis points; they must sum to 10 000.")
                % {"sum": sum(weights.values())},
                code="bad_sum",
                field="weights",
            )
        current = generation_current(route)
        wanted = {name: bp for name, bp in weights.items() if bp}
        if current and wanted == {n: bp for n, bp in weights_of(current).items() if bp}:
            return current
        return _generation_next(
            route,
            weights={versions[name]: bp for name, bp in weights.items()},
            settings=current.settings if current else {},
            reason=reason,
            actor=actor,
            action="weights.set",
        )


def route_settings_set(
    *, route: Route, settings: Mapping[str, Any], generation: int, actor: Actor
) -> Generation:
    """Replace the settings of a route; an unknown or unfit one is refused by name."""
    try:
        decoded = settings_decode(dict(settings))
    except msgspec.ValidationError as error:
        raise _setting_refused(str(error)) from error
    plain: dict[str, Any] = msgspec.to_builtins(decoded)
    with transaction.atomic():
        route = _route_locked(route, generation)
        current = generation_current(route)
        if current is None:
            raise Refused(
                gettext_lazy("Add a version first: a route starts with it."),
                code="no_version",
            )
        if msgspec.to_builtins(current.decoded) == plain:
            return current
        return _generation_next(
            route,
            weights=_weight_rows(current),
            settings=plain,
            reason="settings",
            actor=actor,
            action="route.set",
        )


def _setting_refused(text: str) -> Refused:
    """From msgspec's ``Object contains unknown field `x` - at `$.timeouts```."""
    message, _sep, path = text.partition(" - at `$.")
    fields = [path.rstrip("`")] if path else []
    if "unknown field `" in message:
        fields.append(message.split("`")[1])
    field = ".".join(fields) or "settings"
    return Refused(message, code="bad_setting", field=field)


def generation_restore(
    *, route: Route, number: int, generation: int, actor: Actor
) -> Generation:
    """Bring an earlier generation back, whole, as a new one."""
    with transaction.atomic():
        route = _route_locked(route, generation)
        past = route.generations.filter(number=number).first()
        if past is None:
            raise Missing(
                _("The route has no generation %(number)d.") % {"number": number},
                field="generation",
            )
        current = generation_current(route)
        if current is not None and current.number == past.number:
            return current
        return _generation_next(
            route,
            weights=_weight_rows(past),
            settings=past.settings,
            reason=f"restored generation {number}",
            actor=actor,
            action="route.restore",
            restored_from=number,
        )


def _weight_rows(generation: Generation) -> dict[Version, int]:
    rows = generation.weights.select_related("version")
    return {row.version: row.weight_bp for row in rows}


def _route_locked(route: Route, generation: int) -> Route:
    route = (
        Route.objects.select_for_update(of=("self",))
        .select_related("model")
        .get(pk=route.pk)
    )
    if route.generation != generation:
        raise Conflict(
            _(
                "The route changed meanwhile: generation %(now)d is in force, "
                "you saw %(seen)d."
            )
            % {"now": route.generation, "seen": generation},
            current=route.generation,
        )
    return route


def _generation_next(
    route: Route,
    *,
    weights: Mapping[Version, int],
    settings: dict[str, Any],
    reason: str,
    actor: Actor,
    action: str,
    restored_from: int | None = None,
) -> Generation:
    before = generation_current(route)
    generation = generation_write(
        route=route,
        weights=weights,
        settings=settings,
        reason=reason,
        actor=actor,
        restored_from=restored_from,
    )
    audit_write(
        actor=actor,
        action=action,
        target=route.model.name,
        before=before
        and {
            "generation": before.number,
            "weights": weights_of(before),
            "settings": before.settings,
        },
        after={
            "generation": generation.number,
            "weights": weights_of(generation),
            "settings": settings,
        },
    )
    text = f"{route.model.name}: generation {generation.number}"
    transaction.on_commit(partial(snapshot_publish, reason=text, actor=actor))
    return generation


def generation_write(
    *,
    route: Route,
    weights: Mapping[Version, int],
    settings: dict[str, Any],
    reason: str,
    actor: Actor,
    restored_from: int | None = None,
) -> Generation:
    """Write the next generation and point the route at it, or raise ``Conflict``.

    The pointer moves by a conditional update, last, so that the database's check
    of the sum sees every weight.
    """
    seen = route.generation
    try:
        with transaction.atomic():
            generation = Generation.objects.create(
                route=route,
                number=seen + 1,
                settings=settings,
                reason=reason,
                actor=str(actor),
                restored_from=restored_from,
            )
            GenerationWeight.objects.bulk_create(
                GenerationWeight(generation=generation, version=version, weight_bp=bp)
                for version, bp in weights.items()
            )
            moved = Route.objects.filter(pk=route.pk, generation=seen).update(
                generation=seen + 1
            )
    except IntegrityError as error:
        if Generation.objects.filter(route=route, number=seen + 1).exists():
            moved = 0
        else:
            raise error
    if not moved:
        raise Conflict(_("The route changed meanwhile."), current=seen + 1)
    route.generation = seen + 1
    return generation
