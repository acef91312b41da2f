"""Pages come up at rest: nothing that has been painted moves when the scripts run."""

from __future__ import annotations

import pytest

from tests import fleet
from tests.e2e.browser import Visitor
from tests.e2e.paints import painted, paints_watch
from tests.e2e.test_browser_pages import PAGES, with_key

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
    pytest.mark.timeout(300),
]
# A hundredth of what is called good: a pixel where text is rounded.
MOST = 0.001


@pytest.mark.parametrize("width", [1440, 390])
def test_no_page_moves_under_the_eye_while_it_comes_up(
    visitor: Visitor, width: int
) -> None:
    fleet.fleet_fill()
    visit = visitor.visit(width=width)
    paints_watch(visit.page)
    moved = {}
    for path in map(with_key, PAGES):
        found = painted(visit.go(path))
        assert found.first_ms > 0, path
        if found.shift > MOST:
            # An age that gets a digit more may have moved its neighbour, once.
            found = painted(visit.go(path))
        if found.shift > MOST:
            moved[path] = found
    assert moved == {}
