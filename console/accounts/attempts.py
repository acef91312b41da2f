"""Guessing passwords is slow: failed logins are counted, and many lock for a while.

An attempt is written before the password is looked at and taken away when it was
right, so that many at once count as many.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.models import LoginAttempt

LOCKED_FOR = timedelta(minutes=5)
# A name from one address; and one address whatever the names, which a whole office
# may share.
PAIR_MOST, ADDRESS_MOST = 5, 30
# Any number that no other lock of the database uses.
_LOCK = 7_310_562


def attempt_begin(*, username: str, address: str) -> LoginAttempt | datetime:
    """The attempt, which counts as failed until ``attempts_clear``; or the moment
    from which the next one is let through."""
    pair = LoginAttempt.objects.filter(name_sha256=_hash(username), address=address)
    of_address = LoginAttempt.objects.filter(address=address)
    with transaction.atomic():
        _turn_take()
        ends = [_locked_until(pair, PAIR_MOST), _locked_until(of_address, ADDRESS_MOST)]
        if until := max((end for end in ends if end), default=None):
            return until
        return LoginAttempt.objects.create(name_sha256=_hash(username), address=address)


def attempts_clear(*, username: str, address: str | None = None) -> int:
    """Forget the failures of a name, from one address or (None) from everywhere."""
    rows = LoginAttempt.objects.filter(name_sha256=_hash(username))
    if address is not None:
        rows = rows.filter(address=address)
    return rows.delete()[0]


def locked_until(*, username: str) -> datetime | None:
    """Until when the name is locked from one address at least."""
    return locked_among([username]).get(username)


def locked_among(usernames: Collection[str]) -> dict[str, datetime]:
    """Those of the names that are locked from one address at least, and until when."""
    names = {_hash(name): name for name in usernames}
    rows = LoginAttempt.objects.filter(name_sha256__in=names, at__gte=_horizon())
    times: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for digest, address, at in rows.order_by("-at").values_list(
        "name_sha256", "address", "at"
    ):
        times[digest, address].append(at)
    found: dict[str, datetime] = {}
    for (digest, _address), ats in times.items():
        if until := _lock_end(ats[:PAIR_MOST], PAIR_MOST):
            name = names[digest]
            found[name] = max(until, found.get(name, until))
    return found


def attempts_prune() -> None:
    LoginAttempt.objects.filter(at__lt=_horizon()).delete()


def _locked_until(rows: QuerySet[LoginAttempt], most: int) -> datetime | None:
    return _lock_end(
        list(rows.order_by("-at").values_list("at", flat=True)[:most]), most
    )


def _lock_end(times: Sequence[datetime], most: int) -> datetime | None:
    """The last ``most`` failures, the newest first, lock from the newest on if all of
    them came within ``LOCKED_FOR``."""
    if len(times) < most or times[0] - times[-1] > LOCKED_FOR:
        return None
    until = times[0] + LOCKED_FOR
    return until if until > timezone.now() else None


def _horizon() -> datetime:
    """What is older than this locks nobody."""
    return timezone.now() - 2 * LOCKED_FOR


def _hash(username: str) -> str:
    """Names are kept as hashes: some people type their password into that field."""
    return hashlib.sha256(username.encode(errors="surrogatepass")).hexdigest()


def _turn_take() -> None:
    """One at a time until the transaction ends; SQLite's writers always are."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
