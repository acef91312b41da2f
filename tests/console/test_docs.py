"""The guide says what is so: whatever it quotes exists, in both languages alike."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from string import Template
from typing import Any

import pytest
from django.conf import settings
from django.core.management import get_commands
from django.test import Client
from django.urls import Resolver404, resolve
from markdown_it import MarkdownIt
from markdown_it.token import Token

from console import guide
from console.api.docs import schema_build
from routing.gateway.config import GatewayConfig
from routing.gateway.endpoints import ENDPOINTS
from tests.console.api import Api

ROOT = Path(settings.BASE_DIR)
READMES = {"en": ROOT / "README.md", "zh-hans": ROOT / "README.zh-CN.md"}
CODE = re.compile(r"`([^`\n]+)`")


def pairs() -> list[tuple[Path, Path]]:
    chapters = [
        (guide.chapter_path(name, "en"), guide.chapter_path(name, "zh-hans"))
        for name in guide.CHAPTERS
    ]
    return [(READMES["en"], READMES["zh-hans"]), *chapters]


def documents() -> list[Path]:
    return [path for pair in pairs() for path in pair]


def tokens(path: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(path.read_text("utf-8"))


def name_of(value: Any) -> str:
    return value.name if isinstance(value, Path) else ""


each_document = pytest.mark.parametrize("path", documents(), ids=name_of)
each_pair = pytest.mark.parametrize(("english", "chinese"), pairs(), ids=name_of)


# Both languages ------------------------------------------------------------


def test_every_page_is_a_chapter_and_has_its_translation() -> None:
    listed = {path.name for pair in pairs()[1:] for path in pair}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} == listed


@each_pair
def test_both_languages_have_the_same_build(english: Path, chinese: Path) -> None:
    def build(path: Path) -> list[tuple[str, str]]:
        return [
            (token.type, token.tag)
            for token in tokens(path)
            if token.type in ("heading_open", "table_open", "fence", "code_block")
        ]

    ours, theirs = build(english), build(chinese)
    if english.name == "benchmarks.md":
        # The results are generated, and stand in one of them.
        ours.remove(("table_open", "table"))
    assert ours == theirs


@each_pair
def test_both_languages_have_the_same_code(english: Path, chinese: Path) -> None:
    def code(path: Path) -> list[str]:
        return [t.content for t in tokens(path) if t.type in ("fence", "code_block")]

    assert code(english) == code(chinese)


@pytest.mark.parametrize(
    "name", [name for name in guide.CHAPTERS if name not in ("benchmarks", "glossary")]
)
def test_both_languages_name_the_same_commands_settings_and_codes(name: str) -> None:
    def named(language: str) -> set[str]:
        text = guide.chapter_path(name, language).read_text("utf-8")
        return {code for code in CODE.findall(text) if code.isascii()}

    assert named("en") == named("zh-hans")


@each_pair
def test_tables_have_as_many_rows_in_both(english: Path, chinese: Path) -> None:
    def rows(path: Path) -> int:
        text = re.sub(r"<!-- res.*<!-- end", "", path.read_text("utf-8"), flags=re.S)
        return sum(line.startswith("|") for line in text.splitlines())

    assert rows(english) == rows(chinese)


# What is quoted exists -----------------------------------------------------


@each_document
def test_links_lead_to_files_and_chapters_of_the_same_language(path: Path) -> None:
    for token in tokens(path):
        for child in token.children or []:
            target = str(child.attrs.get("href") or child.attrs.get("src") or "")
            if not target or "://" in target:
                continue
            file, _, anchor = target.partition("#")
            assert (path.parent / file).is_file(), target
            own = ".zh-CN." in path.name
            if file.endswith(".md") and (path.parent / file).parent.name == "docs":
                others = path.name.startswith("benchmarks.zh")
                assert (".zh-CN." in file) == own or others, target
                chapter = guide.chapter_read(
                    file.split(".")[0].rpartition("/")[2], "en"
                )
                known = re.findall(r'id="([^"]+)"', chapter.html)
                assert not anchor or anchor in known, target


@each_document
def test_commands_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"\bmake ([a-z]+)\b(?=[ `\n])", text):
        quoted = re.search(rf"(`|^|\d )make {target}\b", text, re.M)
        assert not quoted or re.search(rf"^{target}:", makefile, re.M), target
    for command in re.findall(r"manage\.py ([a-z_]+)", text):
        assert command in get_commands(), command
    for module in re.findall(r"python -m ([a-z._]+[a-z])", text):
        if module.split(".")[0] in ("tests", "cluster", "routing", "console"):
            place = ROOT / module.replace(".", "/")
            assert place.is_dir() or place.with_suffix(".py").is_file(), module


def test_the_settings_of_the_guide_are_those_of_the_example_file() -> None:
    example = (ROOT / ".env.example").read_text("utf-8")
    defaults = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", example, re.M))
    for language in guide.ENDINGS:
        text = guide.chapter_path("configuration", language).read_text("utf-8")
        told = dict(re.findall(r"^\| `([A-Z_]+)` \| (.+?) \|", text, re.M))
        assert told.keys() == defaults.keys()
        for name, default in told.items():
            if quoted := CODE.fullmatch(default):
                assert quoted[1] == defaults[name], name


def test_the_defaults_of_the_guide_are_those_of_the_code() -> None:
    text = guide.chapter_path("configuration", "en").read_text("utf-8")
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| `(.+?)` \|", text, re.M))
    config = GatewayConfig.from_env({})
    assert told["SLUICE_GATEWAY_BIND"] == f"{config.host}:{config.port}"
    assert int(told["SLUICE_MAX_BODY_MB"]) * 1024**2 == config.max_body_bytes
    assert int(told["SLUICE_KEY_GRACE_S"]) == config.key_grace_s
    assert int(told["SLUICE_OUTCOMES_MB"]) * 1024**2 == config.outcomes_bytes
    assert int(told["SLUICE_DRAIN_S"]) == config.drain_s


@each_document
def test_settings_that_are_named_exist(path: Path) -> None:
    example = (ROOT / ".env.example").read_text("utf-8")
    known = set(re.findall(r"^#?([A-Z_]+)=", example, re.M))
    named = re.findall(r"\b(SLUICE_[A-Z_]+|DATABASE_URL|REDIS_URL)\b", path.read_text())
    assert {name.removesuffix("_FILE") for name in named} <= known


@each_document
def test_metrics_that_are_named_exist(path: Path) -> None:
    gateway = "".join(
        (ROOT / f"routing/gateway/{name}.py").read_text("utf-8")
        for name in ("metrics", "figures")
    )
    console = (ROOT / "console/health.py").read_text("utf-8")
    # Names of the console are put together from a family and a member.
    parts = set(re.findall(r'"([a-z_]+)"', console))
    for name in set(re.findall(r"`sluice_([a-z_]+)", path.read_text("utf-8"))):
        known = name in parts or name.removeprefix("outcomes_") in parts
        known |= name.removesuffix("_up") in parts
        assert known or f'"sluice_{name}"' in gateway, name


@each_document
def test_files_of_the_tree_that_are_named_exist(path: Path) -> None:
    for code in CODE.findall(path.read_text("utf-8")):
        if re.fullmatch(r"(tests|console|cluster|routing|docs)/[\w./-]*", code):
            assert (ROOT / code).exists(), code


@each_document
def test_addresses_that_are_named_exist(path: Path) -> None:
    paths = schema_build()["paths"]
    for code in CODE.findall(path.read_text("utf-8")):
        address = code.removeprefix("GET ").removeprefix("POST ")
        if not re.fullmatch(r"/[\w{}/.-]*", address):
            continue
        if address in ENDPOINTS or re.match("/v1(/models|$)", address):
            continue
        if address.startswith("/api/v1/") and address in paths:
            continue
        if address in ("/", "/api/v1"):
            continue
        try:
            match = resolve(address)
        except Resolver404:
            pytest.fail(f"{address} does not exist")
        assert match.url_name, address


def test_every_error_of_the_troubleshooting_page_is_one_of_the_gateway() -> None:
    text = guide.chapter_path("troubleshooting", "en").read_text("utf-8")
    source = (ROOT / "routing/gateway/errors.py").read_text("utf-8")
    rows = re.findall(r"^\| (\d{3}) \| `([a-z_]+)` \|", text, re.M)
    assert len(rows) > 10
    for _status, code in rows:
        assert f'"{code}"' in source, code


# The examples of the API ---------------------------------------------------


def curls(path: Path) -> list[str]:
    """The curl commands, in the order of the page."""
    fences = [t.content for t in tokens(path) if t.type == "fence"]
    blocks = [text for text in fences if text.startswith("curl")]
    return [
        command
        for block in blocks
        for command in block.replace("\\\n", " ").strip().split("\n\n")
    ]


class Curl:
    """Runs a curl command against the test client, sending what curl would send."""

    def __init__(self, command: str, variables: dict[str, str]) -> None:
        words = shlex.split(command)
        assert words.pop(0) == "curl"
        self.method, self.address, self.body = "GET", "", ""
        self.headers: dict[str, str] = {}
        while words:
            word = words.pop(0)
            if word == "-X":
                self.method = words.pop(0)
            elif word == "-H":
                name, _, value = words.pop(0).partition(": ")
                self.headers[name] = Template(value).safe_substitute(variables)
            elif word == "-d":
                self.body = words.pop(0)
            else:
                self.address = Template(word).safe_substitute(variables)

    def run(self, client: Client) -> Any:
        kind = "application/x-www-form-urlencoded" if self.body else ""
        return client.generic(
            self.method,
            self.address,
            self.body,
            content_type=self.headers.pop("Content-Type", kind),
            headers=self.headers,
        )


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("valkey")
def test_the_examples_of_the_api_chapter_work_in_their_order() -> None:
    api = Api()
    variables = {"SLUICE": "", "TOKEN": api.secret}
    commands = curls(guide.chapter_path("api", "en"))
    assert len(commands) >= 10
    for command in commands:
        response = Curl(command, variables).run(api.client)
        assert response.status_code < 300, (command, response.content)
        answer = json.loads(response.content or b"{}")
        if "/replicas" in command:
            variables["REPLICA"] = answer.get("id", "")
        if "/keys" in command:
            variables["KEY"] = answer.get("id", "")


def test_every_example_of_the_gateway_is_a_body_that_it_could_forward() -> None:
    for name in ("quick-start",):
        for command in curls(guide.chapter_path(name, "en")):
            body = json.loads(Curl(command, {}).body)
            assert body["model"] and body["messages"]


# The guide in the console --------------------------------------------------


@pytest.mark.django_db
@pytest.mark.usefixtures("valkey")
@pytest.mark.parametrize("language", list(guide.ENDINGS))
def test_the_guide_is_shown_in_the_language_of_the_page(
    page: Client, language: str
) -> None:
    page.cookies["sluice_language"] = language
    index = page.get("/help").content.decode()
    for name in guide.CHAPTERS:
        chapter = guide.chapter_read(name, language)
        assert f'href="/help/{name}"' in index
        text = page.get(f"/help/{name}").content.decode()
        assert f'<h1 id="chapter">{chapter.title}</h1>' in text
        assert all(f'id="{section.anchor}"' in text for section in chapter.sections)
        assert "style=" not in text and "<script>" not in chapter.html
        assert ".md" not in "".join(re.findall(r'href="([^"]*)"', chapter.html))


@pytest.mark.django_db
@pytest.mark.usefixtures("valkey")
def test_a_chapter_that_does_not_exist_is_a_page_that_says_so(page: Client) -> None:
    for name in ("nothing", "..", "README", "quick-start.zh-CN"):
        assert page.get(f"/help/{name}").status_code == 404


def test_markup_in_a_chapter_is_shown_and_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.md").write_text(
        "# T\n\n<script>alert(1)</script>\n\n[a](javascript:alert(1)) <b>\n\n"
        "| a |\n|--:|\n| 1 |\n",
        "utf-8",
    )
    monkeypatch.setattr(guide, "chapter_path", lambda *_: tmp_path / "x.md")
    html = guide.chapter_read.__wrapped__("x", "en").html
    assert "<script" not in html and "&lt;script&gt;" in html and "<b>" not in html
    assert "href" not in html and "style=" not in html and 'class="num"' in html


@pytest.mark.django_db
@pytest.mark.usefixtures("valkey")
def test_every_page_links_to_the_chapter_that_explains_it(page: Client) -> None:
    for address, chapter in (
        ("/", "console"),
        ("/models", "concepts"),
        ("/replicas", "troubleshooting"),
        ("/nodes", "operations"),
        ("/teams", "accounts"),
        ("/keys", "keys"),
        ("/requests", "troubleshooting"),
        ("/usage", "concepts"),
        ("/gateways", "weights"),
    ):
        text = page.get(address).content.decode()
        link = f'href="/help/{chapter}">'
        assert text.count(link) == 1, address
        assert f"Help: {guide.chapter_read(chapter, 'en').title}" in text


@pytest.mark.django_db
@pytest.mark.usefixtures("valkey")
def test_the_page_of_the_api_has_every_operation_with_its_scope(page: Client) -> None:
    text = page.get("/api/v1/docs").content.decode()
    for path, methods in schema_build()["paths"].items():
        for operation in methods.values():
            article = text.split(f'<article id="{operation["operationId"]}">')[1]
            article = article.split("</article>")[0]
            assert path in article and "<pre>curl" in article
            assert f"Needs the scope <code>{operation['x-scope']}</code>" in article


def test_writes_need_more_than_reading() -> None:
    for path, methods in schema_build()["paths"].items():
        for method, operation in methods.items():
            assert method == "get" or operation["x-scope"] != "read", path
