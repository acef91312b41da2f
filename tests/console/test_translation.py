"""The Chinese catalogue and guide: one term for one thing, and Chinese typography."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from console import guide, po

CATALOGUE = Path(settings.LOCALE_PATHS[0]) / "zh_Hans/LC_MESSAGES/django.po"
HAN = "\u3400-\u9fff"
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%\(\w+\)\.\df|\{\w+\}")
# Words that are no terms where they stand: tokens of the management API have a term
# of their own, and these names are words of an engine or parts of a whole.
OTHER_TERMS = {"token": ("令牌", "首字延迟")}
NOT_TERMS = {("share", "Share"), ("token", "Log in, or send Authorization: Bearer")}


def entries() -> Iterator[tuple[po.Key, str]]:
    for key, entry in po.catalogue_read(CATALOGUE).items():
        for text in entry.texts:
            yield key, text


def terms() -> dict[str, str]:
    """The rows of the glossary that name one thing by one word in each language."""
    text = guide.chapter_path("glossary", "en").read_text("utf-8")
    rows = re.findall(r"^\| ([a-z ]+) \| ([^|a-z]+) \|", text, re.M)
    return {english: chinese for english, chinese in rows if "、" not in chinese}


# Verbs and everyday words, whose translation follows the sentence.
EVERYDAY = {"draw", "drain", "eject", "undo", "restore", "expire", "ending", "secret"}
EVERYDAY |= {"session", "traffic", "role", "access token"}


def nouns() -> list[str]:
    return sorted(terms().keys() - EVERYDAY)


def test_the_glossary_has_the_same_terms_in_both_languages() -> None:
    chinese = guide.chapter_path("glossary", "zh-hans").read_text("utf-8")
    for english, term in terms().items():
        assert f"| {english} | {term} |" in chinese
    assert len(nouns()) > 20


@pytest.mark.parametrize("english", nouns())
def test_the_catalogue_uses_the_terms_of_the_glossary(english: str) -> None:
    allowed = (terms()[english], *OTHER_TERMS.get(english, ()))
    word = re.compile(rf"(?<![-\w.]){english}s?(?![-\w])", re.I)
    quoted = re.compile(r"<code>.*?</code>|x-sluice-\w+|take model, program")
    for key, text in entries():
        plain = PLACEHOLDER.sub("", quoted.sub("", key.text))
        if word.search(plain) and not any(
            english == term and plain.startswith(start) for term, start in NOT_TERMS
        ):
            assert any(term in text for term in allowed), (key.text, text)


def typography_faults(text: str) -> list[str]:
    """Half-width punctuation beside Chinese text, and Latin that touches it."""
    plain = re.sub(r"</?\w+>", "", PLACEHOLDER.sub("X", text))
    found = re.findall(f".?[{HAN}][,.;:!?()].?|[,;:!?()][{HAN}]", plain)
    return [*found, *re.findall(f"[{HAN}][A-Za-z0-9%]|[A-Za-z0-9%][{HAN}]", plain)]


def test_the_catalogue_keeps_to_chinese_typography() -> None:
    faults = {text: typography_faults(text) for _key, text in entries()}
    assert {text: found for text, found in faults.items() if found} == {}


@pytest.mark.parametrize("name", [*guide.CHAPTERS, "README"])
def test_the_guide_keeps_to_chinese_typography(name: str) -> None:
    path = guide.chapter_path(name, "zh-hans")
    if name == "README":
        path = Path(settings.BASE_DIR) / "README.zh-CN.md"
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.S)
    for line in re.sub(r"\]\([^)]*\)", "]", text).splitlines():
        assert typography_faults(re.sub(r"`[^`]*`|[*]", "", line)) == [], line


def test_chinese_text_has_room_between_its_lines_and_no_slant() -> None:
    css = Path(settings.BASE_DIR) / "static/css"
    assert ":lang(zh) { --leading: 1.65; }" in (css / "base.css").read_text("utf-8")
    for path in css.glob("*.css"):
        styles = path.read_text("utf-8")
        assert not re.search(r"font-style: *italic|letter-spacing|uppercase", styles)
