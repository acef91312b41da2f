"""The charts of one model over a span of time, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from string import ascii_uppercase

from django.db.models import QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from cluster.models import AuditRecord, Model
from cluster.selectors.model_changes import model_changes
from console import history
from console.figures import Axis, Chart, Marker, Series, Value
from console.outcome_words import ending_mark
from routing.contracts.outcome import Ending
from routing.selectors.buckets import Buckets
from routing.selectors.series import (
    TAIL_LEAST,
    Latencies,
    ModelCounts,
    counted_since,
    model_counts,
    model_latencies,
)
from routing.selectors.usage import ERRORS

# More lines than this hide the chart that they explain.
MARKS_MOST = 60
NAMES = ("traffic", "errors", "ttft", "tokens")
TITLES: dict[str, Promise] = {
    "traffic": gettext_lazy("Traffic by version"),
    "errors": gettext_lazy("Errors by kind"),
    "ttft": gettext_lazy("Time to first token by version"),
    "tokens": gettext_lazy("Tokens out by version"),
}


@dataclass(frozen=True)
class Change:
    """A change that charts mark, and its line in the list below them."""

    letter: str
    record: AuditRecord
    entry: history.Entry


@dataclass(frozen=True)
class Scene:
    """Everything that the charts of one model share."""

    model: Model
    buckets: Buckets
    axis: Axis
    changes: Sequence[Change]
    counted_since: datetime | None

    @property
    def markers(self) -> list[Marker]:
        return [Marker(one.letter, one.record.at) for one in self.changes]


def scene_make(model: Model, buckets: Buckets, axis: Axis) -> Scene:
    return Scene(model, buckets, axis, changes(model, buckets), counted_since())


def changes(model: Model, buckets: Buckets) -> list[Change]:
    """Oldest first; of more than ``MARKS_MOST``, the newest ones."""
    records = list(_changes(model, buckets)[:MARKS_MOST])[::-1]
    letters = (letters_of(n) for n in range(len(records)))
    rows = zip(letters, records, history.entries(records), strict=True)
    return [Change(*row) for row in rows]


def changes_older(model: Model, buckets: Buckets) -> int:
    """How many changes of the span are too many to be marked."""
    return max(_changes(model, buckets).count() - MARKS_MOST, 0)


def _changes(model: Model, buckets: Buckets) -> QuerySet[AuditRecord]:
    return model_changes(model=model, since=buckets.edges[0], until=buckets.edges[-1])


def letters_of(place: int) -> str:
    """A to Z, then AA, AB and so on."""
    rest, letter = divmod(place, len(ascii_uppercase))
    return (letters_of(rest - 1) if rest else "") + ascii_uppercase[letter]


def unit(name: str, step: timedelta) -> str:
    """What a chart's numbers are, for its title."""
    if name == "ttft":
        return _("milliseconds")
    if name == "tokens":
        return _("per second")
    return per(step)


def per(step: timedelta) -> str:
    if step >= timedelta(days=1):
        return _("per day")
    if step >= timedelta(hours=1):
        return _("per hour")
    minutes = int(step.total_seconds()) // 60
    return ngettext("per minute", "per %(n)d minutes", minutes) % {"n": minutes}


def charts(scene: Scene, names: Sequence[str] = NAMES) -> list[Chart]:
    """Those that are asked for; nothing is read for the others."""
    made: dict[str, Chart] = {}
    versions = list(scene.model.versions.values_list("name", flat=True))
    if {"traffic", "errors", "tokens"} & set(names):
        counts = model_counts(model=scene.model.name, buckets=scene.buckets)
        made["traffic"] = _traffic(scene, counts, versions)
        made["errors"] = _errors(scene, counts)
        made["tokens"] = _tokens(scene, counts, versions)
    if "ttft" in names:
        latencies = model_latencies(model=scene.model.name, buckets=scene.buckets)
        made["ttft"] = _ttft(scene, latencies, versions)
    return [made[name] for name in names]


def _chart(
    scene: Scene, name: str, series: list[Series], summary: str, note: str
) -> Chart:
    return Chart(
        name=name,
        title=str(TITLES[name]),
        unit=unit(name, scene.buckets.step),
        kind="bars" if name in ("traffic", "errors") else "lines",
        axis=scene.axis,
        series=series,
        time_word=_("Time"),
        summary=summary,
        note=note,
        markers=scene.markers,
    )


def _traffic(scene: Scene, counts: ModelCounts, versions: list[str]) -> Chart:
    series = [
        Series(_version_word(name), _known(scene, counts.requests[name]), place)
        for name, place in _placed(counts.requests, versions)
    ]
    total = sum(map(sum, counts.requests.values()))
    parts = [
        f"{_version_word(name)} {sum(counts.requests[name]):,}"
        for name, _place in _placed(counts.requests, versions)
    ]
    summary = _total_text(total, parts)
    return _chart(scene, "traffic", series, summary, _("Exact counts."))


def _errors(scene: Scene, counts: ModelCounts) -> Chart:
    series = [
        Series(ending_mark(name).word, _known(scene, counts.errors[name]), place)
        for place, name in enumerate(ERRORS)
        if name in counts.errors
    ]
    total = sum(map(sum, counts.errors.values()))
    parts = [
        f"{ending_mark(Ending(name)).word} {sum(values):,}"
        for name, values in counts.errors.items()
    ]
    text = ngettext("%(n)s error.", "%(n)s errors.", total) % {"n": f"{total:,}"}
    note = _("Exact counts. A client that left is no error.")
    return _chart(scene, "errors", series, _with_parts(text, parts), note)


def _tokens(scene: Scene, counts: ModelCounts, versions: list[str]) -> Chart:
    series = []
    for name, place in _placed(counts.tokens_out, versions):
        values = _known(scene, counts.tokens_out[name])
        rates = [_rate(scene, n, value) for n, value in enumerate(values)]
        if name:
            series.append(Series(name, rates, place))
    total = sum(map(sum, counts.tokens_out.values()))
    text = ngettext("%(n)s token out.", "%(n)s tokens out.", total) % {
        "n": f"{total:,}"
    }
    note = _(
        "What each version generated for all its requests together: the exact count of "
        "tokens out, over the time in which their requests ended."
    )
    return _chart(scene, "tokens", series, text, note)


def _rate(scene: Scene, place: int, tokens: Value) -> Value:
    if tokens is None:
        return None
    return round(tokens / scene.buckets.seconds(place), 3)


def _ttft(scene: Scene, latencies: Latencies, versions: list[str]) -> Chart:
    series: list[Series] = []
    for name, place in _placed(latencies.ttft, versions):
        found = latencies.ttft[name]
        p50 = [None if one is None else round(one.p50, 1) for one in found]
        p95 = [
            None if one is None or one.p95 is None else round(one.p95, 1)
            for one in found
        ]
        word = _version_word(name)
        series += [
            Series(f"{word} p50", p50, place),
            Series(f"{word} p95", p95, place, dash="dash"),
        ]
    summary = "; ".join(map(_extremes, series))
    return _chart(scene, "ttft", series, summary, _ttft_note(latencies))


def _extremes(one: Series) -> str:
    known = [value for value in one.values if value is not None]
    if not known:
        return f"{one.name}: –"
    values = {"name": one.name, "low": f"{min(known):,}", "high": f"{max(known):,}"}
    return _("%(name)s between %(low)s and %(high)s ms") % values


def _ttft_note(latencies: Latencies) -> str:
    values = {"n": f"{latencies.read:,}", "least": TAIL_LEAST}
    if latencies.whole:
        read = ngettext(
            "From the only request that is kept.",
            "From all %(n)s requests that are kept.",
            latencies.read,
        )
    else:
        read = _("From a sample of %(n)s requests, spread over the whole span.")
    tail = _(
        "By the time of arrival; half of the requests were faster than p50, 95 of 100 "
        "faster than p95. No p95 is shown of fewer than %(least)s requests."
    )
    return f"{read % values} {tail % values}"


def _placed(
    found: Mapping[str, object], versions: Sequence[str]
) -> list[tuple[str, int]]:
    """The versions that have values in the order of the model's, each with its place
    there; then those that it has no more, and what reached none."""
    gone = sorted(set(found) - set(versions) - {""})
    order = [*versions, *gone, ""]
    return [(name, place) for place, name in enumerate(order) if name in found]


def _version_word(name: str) -> str:
    return name or _("no version reached")


def _known(scene: Scene, values: Iterable[int]) -> list[Value]:
    """Nobody knows what was before counting began: a gap, no zero."""
    since = scene.counted_since
    edges = scene.buckets.edges
    return [
        value if since is not None and edges[place + 1] > since else None
        for place, value in enumerate(values)
    ]


def _total_text(total: int, parts: list[str]) -> str:
    text = ngettext("%(n)s request.", "%(n)s requests.", total) % {"n": f"{total:,}"}
    return _with_parts(text, parts)


def _with_parts(text: str, parts: list[str]) -> str:
    return f"{text} {', '.join(parts)}" if parts else text
