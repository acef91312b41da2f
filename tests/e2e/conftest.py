from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from console.accounts.models import User
from tests.e2e.asgi_server import ConsoleServer, console_server
from tests.e2e.browser import FLAGS, Visitor, chromium_path
from tests.e2e.product import Product, running


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product with its demo cluster, every replica healthy."""
    with running(Product(tmp_path_factory.mktemp("product"))) as product:
        product.wait_replicas_healthy(3)
        yield product


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Playwright's synchronous interface keeps a loop in this thread, which Django
    # takes for asynchronous code; the tests themselves are plain functions. It ends
    # with the module, for the tests of others that run loops of their own.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    path = chromium_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def server(transactional_db: None) -> Iterator[ConsoleServer]:
    with console_server() as server:
        yield server


@pytest.fixture
def visitor(browser: Browser, server: ConsoleServer) -> Iterator[Visitor]:
    user = User.objects.create_user("ada", password="correct horse", role="admin")
    visitor = Visitor(browser, server.url, user)
    yield visitor
    for context in visitor.contexts:
        context.close()
