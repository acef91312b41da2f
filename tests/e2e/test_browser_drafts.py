"""A session that ends while somebody types: nothing of it is lost."""

from __future__ import annotations

import pytest
from django.contrib.sessions.models import Session
from playwright.sync_api import expect

from cluster.models import Model
from tests.e2e.browser import Visitor

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
    pytest.mark.timeout(120),
]


def test_what_was_typed_is_there_after_the_login_and_can_be_sent(
    visitor: Visitor,
) -> None:
    visit = visitor.visit()
    page = visit.go("/new/model")
    page.get_by_label("Name").fill("kept-model")
    page.get_by_label("Description").fill("words \u202e and \U0001f300 signs")
    Session.objects.all().delete()
    page.get_by_role("button", name="Create the model").click()
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{visitor.url}/new/model")
    expect(page.get_by_label("Name")).to_have_value("kept-model")
    expect(page.locator("main")).to_contain_text("typed")
    assert not Model.objects.exists()
    page.get_by_role("button", name="Create the model").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Add a version")
    assert Model.objects.get().name == "kept-model"
    # Once it is saved, the form begins empty again.
    page.goto(f"{visitor.url}/new/model")
    expect(page.get_by_label("Name")).to_have_value("")
    assert visit.complaints == []
