"""A real Chromium against a real HTTP server: pages as a person sees them."""

from __future__ import annotations

import shutil

from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page

from console.accounts.models import User

CHROMIUM_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
# How far a page is wider than its window; not above 0 where nothing scrolls sideways.
OVERFLOW = "(root => root.scrollWidth - root.clientWidth)(document.documentElement)"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium_path() -> str | None:
    """Where the browser lies, None where there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


class Visit:
    """A page that remembers everything a browser would complain about."""

    def __init__(self, context: BrowserContext, base_url: str) -> None:
        self.context = context
        self.base_url = base_url
        self.complaints: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("console", lambda m: self._console(m.type, m.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def go(self, path: str) -> Page:
        self.page.goto(self.base_url + path)
        return self.page


class Visitor:
    """Opens pages as a person who is logged in, in a context of given habits."""

    def __init__(self, browser: Browser, url: str, user: User) -> None:
        self.browser, self.url = browser, url
        client = Client()
        client.force_login(user)
        self.session = client.cookies["sluice_session"].value
        self.contexts: list[BrowserContext] = []

    def visit(
        self,
        *,
        width: int = 1440,
        language: str = "en",
        theme: str = "light",
        anonymous: bool = False,
        bypass_csp: bool = False,
    ) -> Visit:
        context = self.browser.new_context(
            viewport={"width": width, "height": 900},
            bypass_csp=bypass_csp,
            locale="en-US",
        )
        self.contexts.append(context)
        cookies = {"sluice_language": language, "sluice_theme": theme}
        if not anonymous:
            cookies["sluice_session"] = self.session
        context.add_cookies(
            [{"name": n, "value": v, "url": self.url} for n, v in cookies.items()]
        )
        return Visit(context, self.url)
