"""An ingester as a process of its own, which a test may kill.

``python -m tests.routing.ingester`` says ``ready`` and takes in whatever comes, until
it is killed; with an argument it kills itself when the service calls the function of
that name, ``module.function``.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from django.conf import settings
from django.db import connection


def database_url() -> str:
    """The database of the test, as another process names it."""
    values = connection.settings_dict
    name = quote(str(values["NAME"]))
    if connection.vendor == "sqlite":
        return f"sqlite:///{name}"
    host = quote(values["HOST"], safe="")
    port = f":{values['PORT']}" if values["PORT"] else ""
    return f"postgresql://{values['USER']}@{host}{port}/{name}"


@contextmanager
def ingester(die_at: str = "") -> Iterator[subprocess.Popen[str]]:
    """Ready to work; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.routing.ingester", *filter(None, [die_at])],
        cwd=Path(__file__).parent.parent.parent,
        env=os.environ
        | {
            "DATABASE_URL": database_url(),
            "REDIS_URL": settings.REDIS_URL,
            "SLUICE_DATA_DIR": str(settings.DATA_DIR),
            "DJANGO_SETTINGS_MODULE": "console.settings",
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def main() -> None:
    import django

    django.setup()
    from routing.services import counts_ingest, outcomes_ingest

    for name in sys.argv[1:]:
        module, _, function = name.rpartition(".")
        setattr(importlib.import_module(module), function, _die)
    print("ready", flush=True)  # noqa: T201
    while True:
        taken = outcomes_ingest() + counts_ingest(now=time.time())
        if not taken:
            # Nothing tells of new entries; the product looks once a second.
            time.sleep(0.01)


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
