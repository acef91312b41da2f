from __future__ import annotations

from django.utils.translation import gettext as _

from cluster.errors import Missing
from cluster.models import Model, Replica, Version
from cluster.selectors.names import name_possible


def model_get(*, name: str, lock: bool = False) -> Model:
    """The model of this name, or ``Missing``; locked for the current transaction."""
    models = Model.objects.select_for_update() if lock else Model.objects.all()
    model = models.filter(name=name).first() if name_possible(name) else None
    if model is None:
        raise Missing(_("There is no model %(name)s.") % {"name": name}, field="model")
    return model


def version_get(*, model: Model, name: str) -> Version:
    """The version of this name, or ``Missing``."""
    version = model.versions.filter(name=name).first() if name_possible(name) else None
    if version is None:
        raise Missing(
            _("The model has no version %(name)s.") % {"name": name}, field="version"
        )
    return version


def model_has_run(*, model: Model) -> bool:
    """Whether it has or ever had a replica, so that requests on record may name it."""
    return Replica.objects.filter(version__model=model).exists()
