"""The check of translations finds what it is there to find."""

from __future__ import annotations

import shutil
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from pytest_django import Settings

from console import po

FOLDER = "locale/zh_Hans/LC_MESSAGES"


@pytest.fixture
def base(tmp_path: Path, settings: Settings) -> Path:
    """A small project with one template, translated and compiled."""
    real = Path(django_settings.BASE_DIR) / FOLDER
    (tmp_path / FOLDER).mkdir(parents=True)
    for name in ("templates", "console", "cluster", "routing", "static/js"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "templates/a.html").write_text(
        '{% load i18n %}{% translate "Cancel" %}', "utf-8"
    )
    header = (real / "django.po").read_text("utf-8").split("\n\n")[0]
    (tmp_path / FOLDER / "django.po").write_text(
        header + '\n\nmsgid "Cancel"\nmsgstr "\u53d6\u6d88"\n', "utf-8"
    )
    settings.BASE_DIR = tmp_path
    settings.LOCALE_PATHS = [tmp_path / "locale"]
    return tmp_path


def compiled(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("msgfmt") is None:
        pytest.skip("msgfmt is not installed")
    monkeypatch.chdir(base)
    call_command("compilemessages", stdout=StringIO())


def problems() -> str:
    try:
        call_command("check_messages", stdout=StringIO())
    except CommandError as error:
        return str(error)
    return ""


def test_the_catalogue_of_the_product_is_whole() -> None:
    assert problems() == ""


def test_a_translated_and_compiled_project_passes(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(base, monkeypatch)
    assert problems() == ""


def test_a_stale_compilation_is_found(base: Path) -> None:
    assert "django.mo is stale" in problems()


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("templates/b.html", '{% load i18n %}{% translate "New" %}', "not translated"),
        ("console/b.py", 'from x import _\n_("New")', "not translated"),
        (
            "templates/b.html",
            "{% load i18n %}{% blocktranslate count n=n %}one{% plural %}{{ n }}"
            "{% endblocktranslate %}",
            "not translated: 'one'",
        ),
        ("templates/b.html", "<p>\u4f60\u597d</p>", "belongs into locale/"),
        ("console/b.py", "a = '\u4f60'", "belongs into locale/"),
        ("static/js/b.js", "// \uff0c", "belongs into locale/"),
    ],
)
def test_what_is_missing_or_in_the_wrong_place_is_found(
    base: Path, path: str, text: str, words: str
) -> None:
    (base / path).write_text(text, "utf-8")
    assert words in problems()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ('#, fuzzy\nmsgid "Cancel"\nmsgstr "x"', "is a guess"),
        ('msgid "Cancel"\nmsgstr ""', "not translated"),
        ('msgid "Cancel"\nmsgstr "%(x)s"', "%(x)s differs"),
        ('msgid "Cancel"\nmsgstr "x"\n\nmsgid "Old"\nmsgstr "y"', "no source has"),
    ],
)
def test_a_bad_entry_is_found(base: Path, entry: str, words: str) -> None:
    path = base / FOLDER / "django.po"
    header = path.read_text("utf-8").split("\n\n")[0]
    path.write_text(f"{header}\n\n{entry}\n", "utf-8")
    assert words in problems()


def test_a_template_is_read_like_gettext_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "t.html"
    path.write_text(
        "{% load i18n %}{% translate \"It's\" context 'verb' %}"
        "{% blocktranslate trimmed with a=b %}\n  Say {{ a }}\n  now\n"
        "{% endblocktranslate %}"
        '{{ _("Direct") }}',
        "utf-8",
    )
    assert set(po.source_messages(path)) == {
        po.Key("verb", "It's"),
        po.Key("", "Say %(a)s now"),
        po.Key("", "Direct"),
    }
