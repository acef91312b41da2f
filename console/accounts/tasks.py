from __future__ import annotations

from celery import shared_task

from console.accounts.attempts import attempts_prune
from console.accounts.sessions import sessions_prune


@shared_task(name="console.accounts.tasks.sessions_prune", time_limit=60)
def sessions_prune_task() -> None:
    """Forget sessions that ran out, and failed logins that lock nobody any more."""
    sessions_prune()
    attempts_prune()
