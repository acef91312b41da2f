"""Who gets in, and what everybody sees of the frame."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from console.accounts.models import User
from console.pages.urls import urlpatterns

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]

OPEN_TO_ALL = {"login", "logout", "language", "theme"}
ARGUMENTS = {
    "model": "m",
    "replica_id": "r",
    "verb": "drain",
    "slug": "t",
    "key_id": "k",
    "name": "n",
    "request_id": "0" * 32,
    "username": "u",
    "row": "1",
}


def addresses() -> list[str]:
    """Every page's address, with some name in each place."""
    return [
        reverse(
            str(pattern.name),
            kwargs={name: ARGUMENTS[name] for name in pattern.pattern.converters},
        )
        for pattern in urlpatterns
        if pattern.name not in OPEN_TO_ALL
    ]


@pytest.mark.parametrize("address", addresses())
def test_nobody_sees_a_page_without_a_login(client: Client, address: str) -> None:
    for response in (client.get(address), client.post(address)):
        assert response.status_code == 302
        assert response["Location"].startswith("/login?next=")


def test_a_poll_without_a_session_sends_the_whole_page_to_the_login(
    client: Client,
) -> None:
    response = client.get(
        "/replicas",
        headers={
            "HX-Request": "true",
            "HX-Current-URL": "http://testserver/replicas?state=down",
        },
    )
    assert response["HX-Redirect"] == "/login?next=/replicas%3Fstate%3Ddown"
    assert response.content == b""


def test_the_login_says_where_the_first_password_lies_until_it_was_used(
    client: Client, user: User
) -> None:
    assert b"admin-password" in client.get("/login").content
    client.post("/login", {"username": "ada", "password": "correct horse"})
    client.post("/logout")
    assert b"admin-password" not in client.get("/login").content


def test_a_wrong_password_keeps_the_name_and_logs_nobody_in(
    client: Client, user: User
) -> None:
    response = client.post("/login", {"username": "ada", "password": "wrong"})
    assert b'value="ada"' in response.content
    assert b'role="alert"' in response.content
    assert "sluice_session" not in response.cookies


def test_a_form_without_its_token_gets_a_page_that_says_so(user: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    response = client.post("/new/team", {"slug": "x"})
    assert response.status_code == 403
    assert b"Nothing was changed" in response.content


def test_what_does_not_exist_is_a_page_with_a_name(page: Client) -> None:
    for address in ("/models/nope", "/replicas/nope", "/teams/nope", "/nowhere"):
        response = page.get(address)
        assert response.status_code == 404
        assert b"There is no" in response.content
        assert (
            b"Resolver404" not in response.content and b"tried" not in response.content
        )


@pytest.mark.parametrize("theme", ["light", "dark", "system"])
def test_the_theme_is_a_class_that_the_server_sets(page: Client, theme: str) -> None:
    response = page.post("/theme", {"theme": theme, "next": "/models"})
    assert response["Location"] == "/models"
    assert f'class="theme-{theme}"' in page.get("/models").content.decode()


def test_a_theme_that_does_not_exist_and_a_foreign_address_are_ignored(
    page: Client,
) -> None:
    response = page.post("/theme", {"theme": "x", "next": "https://evil.example/"})
    assert response["Location"] == "/"
    assert "sluice_theme" not in response.cookies
    page.cookies["sluice_theme"] = '"><script>'
    assert 'class="theme-system"' in page.get("/models").content.decode()


def test_the_language_changes_every_text_and_the_tag_says_so(page: Client) -> None:
    page.post("/language", {"language": "zh-hans", "next": "/models"})
    text = page.get("/models").content.decode()
    assert '<html lang="zh-Hans"' in text
    assert "\u6a21\u578b" in text and "No model yet" not in text
    assert ">English</button>" in text


def test_pages_carry_the_strict_policy_and_are_never_cached(page: Client) -> None:
    response = page.get("/")
    policy = response["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "no-store" in response["Cache-Control"]


def test_no_page_has_an_inline_script_or_style(page: Client) -> None:
    for address in ("/", "/models", "/replicas", "/teams", "/gateways", "/new/model"):
        text = page.get(address).content.decode()
        assert " style=" not in text and "<style" not in text
        assert "onclick" not in text and "hx-on" not in text
        scripts = [part.split(">")[0] for part in text.split("<script")[1:]]
        assert all("src=" in part or "application/json" in part for part in scripts)


def test_the_htmx_of_the_pages_is_version_2(page: Client) -> None:
    assert b"django_htmx/htmx-2.min.js" in page.get("/").content
