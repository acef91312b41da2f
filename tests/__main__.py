"""``make test``: the whole suite, on SQLite and then on PostgreSQL.

What needs neither a browser nor processes of the product runs on several cores at
once; the rest, which has deadlines, one test after the other. Tests that start the
whole product bring their own database and run once. Extra arguments go to pytest, for
instance ``python -m tests -k weights``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.services import postgresql

CHROMIUM_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
AT_ONCE = ["-n", "auto", "--maxprocesses=4", *("-m", "not browser and not processes")]
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
    slow = "browser or processes" if browser else "processes and not browser"
    codes = [
        run("SQLite", [*AT_ONCE, *extra], {}),
        run("Real processes, browser", ["-m", slow, *extra], {}),
    ]
    with postgresql() as url:
        database = {"DATABASE_URL": url}
        codes.append(run("PostgreSQL", [*DATABASE_TESTS, *AT_ONCE, *extra], database))
    # Extra arguments may choose tests of one kind alone, but not none at all.
    passed = {0, int(pytest.ExitCode.NO_TESTS_COLLECTED)} if extra else {0}
    failed = not passed.issuperset(codes) or 0 not in codes
    if not browser:
        print("Browser tests were left out: neither Chromium nor Chrome was found.")
    print("Failed." if failed else "All passed.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
