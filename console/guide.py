"""The operator's guide: the pages of ``docs/``, as they are shown in the console.

Each chapter is a file ``<name>.md`` and its translation ``<name>.zh-CN.md``, which has
the same headings in the same order: so both get the anchors of the English one, and a
link into a chapter holds in every language.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import get_language
from markdown_it import MarkdownIt
from markdown_it.token import Token

# In the order in which they are read.
CHAPTERS = (
    "quick-start",
    "concepts",
    "console",
    "accounts",
    "weights",
    "keys",
    "engines",
    "operations",
    "configuration",
    "api",
    "troubleshooting",
    "benchmarks",
    "glossary",
)
# How the files of a language end.
ENDINGS = {"en": ".md", "zh-hans": ".zh-CN.md"}
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_CHAPTER_LINK = re.compile(r"(?P<name>[a-z-]+)(?:\.zh-CN)?\.md(?P<anchor>#[\w-]+)?")


class Section(NamedTuple):
    anchor: str
    title: str


class Chapter(NamedTuple):
    """``lede`` is the first paragraph, as plain text; ``sections`` are the headings of
    the second level; ``html`` is everything below the title."""

    name: str
    title: str
    lede: str
    sections: tuple[Section, ...]
    html: SafeString


def chapter_path(name: str, language: str) -> Path:
    return Path(settings.BASE_DIR) / "docs" / f"{name}{ENDINGS[language]}"


def chapter_shown(name: str) -> Chapter:
    """The chapter in the language of the page."""
    language = get_language() or "en"
    return chapter_read(name, language if language in ENDINGS else "en")


@functools.cache
def chapter_read(name: str, language: str) -> Chapter:
    """The chapter in a language of ``ENDINGS``. Its file is part of the release and
    does not change while the process lives."""
    tokens = _parse(chapter_path(name, language))
    anchors = [slug(title) for title in _titles(_parse(chapter_path(name, "en")))]
    titles = _titles(tokens)
    headings = [token for token in tokens if token.type == "heading_open"]
    sections: list[Section] = []
    for heading, title, anchor in zip(headings, titles, anchors, strict=True):
        heading.attrSet("id", anchor)
        if heading.tag == "h2":
            sections.append(Section(anchor, title))
    html = _html(tokens[_title_end(tokens) :])
    return Chapter(name, titles[0], _lede(tokens), tuple(sections), html)


def _html(tokens: list[Token]) -> SafeString:
    """A table that is wider than the page scrolls by itself, by keyboard too, and is
    named after the heading above it (``chapter`` is that of the page)."""
    shown: list[Token] = []
    anchor = "chapter"
    for token in tokens:
        _adapt(token)
        if token.type == "heading_open":
            anchor = str(token.attrs["id"])
        if token.type == "table_open":
            opening = (
                '<div class="scroll" tabindex="0" role="group" '
                f'aria-labelledby="{anchor}">'
            )
            shown.append(Token("html_block", "", 0, content=opening))
        shown.append(token)
        if token.type == "table_close":
            shown.append(Token("html_block", "", 0, content="</div>"))
    renderer = _renderer()
    # Made by the renderer from files of this release; it escapes markup in them.
    html: str = renderer.renderer.render(shown, renderer.options, {})
    return SafeString(html)


def slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


@functools.cache
def _renderer() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _parse(path: Path) -> list[Token]:
    return _renderer().parse(_COMMENT.sub("", path.read_text("utf-8")))


def _titles(tokens: list[Token]) -> list[str]:
    return [
        _plain(content)
        for heading, content in zip(tokens, tokens[1:], strict=False)
        if heading.type == "heading_open"
    ]


def _title_end(tokens: list[Token]) -> int:
    ends = (n for n, token in enumerate(tokens) if token.type == "heading_close")
    return next(ends) + 1


def _lede(tokens: list[Token]) -> str:
    pairs = zip(tokens, tokens[1:], strict=False)
    return next((_plain(c) for t, c in pairs if t.type == "paragraph_open"), "")


def _plain(inline: Token) -> str:
    """The words of a heading or a paragraph."""
    parts = (" " if c.type == "softbreak" else c.content for c in inline.children or [])
    return "".join(parts)


def _adapt(token: Token) -> None:
    """Links lead to chapters, and alignment is a class."""
    if "style" in token.attrs:
        # The browser's policy allows no style in an element.
        del token.attrs["style"]
        token.attrSet("class", "num")
    for child in token.children or []:
        if child.type == "link_open":
            child.attrSet("href", _address(str(child.attrs["href"])))


def _address(target: str) -> str:
    """Chapters are pages of the console; other files lie beside it, out of reach of a
    browser, and lead to the guide's first page."""
    if "://" in target or target.startswith("#"):
        return target
    if match := _CHAPTER_LINK.fullmatch(target):
        page = reverse("help-chapter", args=[match["name"]])
        return page + (match["anchor"] or "")
    return reverse("help")
