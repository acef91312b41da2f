"""``make test``: the whole suite, on SQLite and then on PostgreSQL.

Tests that start the whole product bring their own database and run once. Extra
arguments go to pytest, for instance ``python -m tests -k weights``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.services import postgresql

CHROMIUM_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
DATABASE_TESTS = ["tests/cluster", "tests/routing", "tests/console"]


def run(title: str, arguments: list[str], environment: dict[str, str]) -> int:
    print(f"== {title}", flush=True)
    command = [sys.executable, "-W", "default", "-m", "pytest", "-q", *arguments]
    return subprocess.run(command, env=os.environ | environment, check=False).returncode


def main() -> int:
    extra = sys.argv[1:]
    browser = any(map(shutil.which, CHROMIUM_NAMES))
    if not browser and os.environ.get("CI") == "true":
        print("Browser tests need Chromium or Chrome, and CI must not leave them out.")
        return 1
    skip_browser = [] if browser else ["-m", "not browser"]
    failed = run("SQLite, real processes, browser", [*skip_browser, *extra], {})
    with postgresql() as url:
        failed |= run(
            "PostgreSQL",
            [*DATABASE_TESTS, "-m", "not browser and not processes", *extra],
            {"DATABASE_URL": url},
        )
    if not browser:
        print("Browser tests were left out: neither Chromium nor Chrome was found.")
    print("Failed." if failed else "All passed.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
