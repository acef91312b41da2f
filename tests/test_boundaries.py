"""Rules about the tree itself: a rule that no test checks is a wish."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("console", "cluster", "routing")
SETTING = re.compile(
    r"""["'](SLUICE_[A-Z_]+|DATABASE_URL|REDIS_URL)(?:_FILE)?["']""", re.X
)


def sources() -> list[Path]:
    return [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]


def settings_in_code() -> set[str]:
    found: set[str] = set()
    for path in sources():
        found |= set(SETTING.findall(path.read_text(encoding="utf-8")))
    # The marks that a replica's process carries are no settings.
    settings = {name.removesuffix("_FILE") for name in found}
    return {name for name in settings if not name.startswith("SLUICE_REPLICA")}


def test_every_setting_stands_in_the_example_file_and_no_other() -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    listed = set(re.findall(r"^#?([A-Z_]+)=", text, re.M))
    assert listed == settings_in_code()


@pytest.mark.parametrize("word", ["utils", "helpers", "common", "misc", "base"])
def test_no_module_has_a_name_that_says_nothing(word: str) -> None:
    assert [path for path in sources() if path.stem == word] == []


def test_the_version_is_the_newest_in_the_changelog() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"', pyproject, re.M)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert version and newest and version[1] == newest[1]


def test_the_lock_files_name_no_index_and_hash_everything() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "://" not in text
        pins = re.findall(r"^\S+==\S+.*\\$", text, re.M)
        assert len(pins) == len(re.findall(r"^\S+==", text, re.M))


def test_a_gateway_process_never_loads_django() -> None:
    code = (
        "import sys, routing.gateway.__main__;"
        "print([n for n in ('django', 'celery', 'channels') if n in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
