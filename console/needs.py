"""What needs a person: everything that is wrong and where to look, the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from cluster.health.node import NodeState
from cluster.selectors import node_list, node_views
from console.status import Mark, state_mark, trouble_rank
from routing.models import ApiKey
from routing.selectors.fleet import ModelView
from routing.selectors.keys import EXPIRES_SOON

# More rows than this tell nobody more; the rest is a number.
SHOWN_MOST = 8
_ILL = ("err", "warn", "stale")


class Need(NamedTuple):
    """``what`` is the thing, ``mark`` its state and why, ``url`` where to look;
    ``since`` in Unix seconds, 0 when nobody knows."""

    what: str
    mark: Mark
    url: str
    since: float = 0.0


def needs(views: list[ModelView]) -> list[Need]:
    found = [*_models(views), *_replicas(views), *_nodes(), *_keys()]
    return sorted(found, key=lambda need: trouble_rank(need.mark))


def _models(views: list[ModelView]) -> Iterator[Need]:
    """Versions that should get requests and have nobody to take them."""
    for view in views:
        for part in view.versions:
            if part.weight_bp and part.ready == 0:
                name = f"{view.model.name} {part.version.name}"
                sentence = _("It has a weight and no replica that is ready.")
                yield Need(
                    name,
                    Mark("err", _("No replica"), sentence),
                    reverse("model", args=[view.model.name]),
                )


def _replicas(views: list[ModelView]) -> Iterator[Need]:
    for view in views:
        for part in view.versions:
            for one in part.replicas:
                mark = state_mark(one.state)
                if one.state is not None and mark.token in _ILL:
                    url = reverse("replica", args=[one.replica.id])
                    yield Need(one.replica.id, mark, url, one.state.since)


def _nodes() -> Iterator[Need]:
    for view in node_views(list(node_list())):
        if view.state is NodeState.UNREACHABLE:
            sentence = _("Nothing is heard of it; its replicas may serve all the same.")
            mark = Mark("stale", _("Unreachable"), sentence)
            yield Need(view.node.name, mark, reverse("node", args=[view.node.name]))


def _keys() -> Iterator[Need]:
    now = timezone.now()
    count = ApiKey.objects.filter(
        revoked_at=None, expires_at__gt=now, expires_at__lte=now + EXPIRES_SOON
    ).count()
    if count:
        words = ngettext("%(n)d key", "%(n)d keys", count) % {"n": count}
        mark = Mark("warn", _("Expires soon"), _("Issue a new one before it ends."))
        yield Need(words, mark, f"{reverse('keys')}?state=expiring")
