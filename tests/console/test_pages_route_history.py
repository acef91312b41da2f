"""Every generation of a route: listed, compared, restored."""

from __future__ import annotations

import re

import pytest
import redis
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cluster.actor import Actor
from console.accounts.models import User
from routing.models import Generation, GenerationServed
from routing.selectors import route_get, route_view
from routing.services import route_settings_set, team_create
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey", "model"),
]

ADDRESS = "/models/qwen/history"
BOB = Actor("user", "bob")


@pytest.fixture
def model(valkey: redis.Redis) -> None:
    """1: v1 alone. 2: 90 to 10. 3: retries 3. 4: 50 to 50."""
    model = fleet.model_add("qwen", "v1", "v2")
    fleet.replica_add(model, "v1", 8001)
    fleet.weights_give("qwen", {"v1": 9000, "v2": 1000}, "begin the <canary>")
    route = route_get(model="qwen")
    route_settings_set(
        route=route, settings={"retries": 3}, generation=route.generation, actor=BOB
    )
    fleet.weights_give("qwen", {"v1": 5000, "v2": 5000})
    assert Generation.objects.count() == 4


def look(page: Client, query: str = "") -> str:
    return page.get(ADDRESS + query).content.decode()


def state(number: int) -> tuple[dict[str, int], object]:
    row = Generation.objects.get(number=number)
    weights = row.weights.values_list("version__name", "weight_bp")
    return dict(weights), row.settings


def numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall(r'<tr id="g(\d+)"', text)]


def test_each_generation_says_who_why_what_and_how_much_it_served(
    page: Client,
) -> None:
    GenerationServed.objects.create(
        model="qwen",
        generation=2,
        gateway="gw",
        first_version="v1",
        version="v1",
        requests=4321,
    )
    text = look(page)
    assert numbers(text) == [4, 3, 2, 1]
    assert "begin the &lt;canary&gt;" in text and "<canary>" not in text
    second = text.partition('id="g2"')[2].partition("</tr>")[0]
    third = text.partition('id="g3"')[2].partition("</tr>")[0]
    assert "4,321" in second and "<code>retries" not in second
    assert "<code>retries</code> 1 → 3" in third and "bob" in third
    assert "?restore=4" not in text and "?restore=3" in text


def test_any_two_are_compared_by_what_differs_only(page: Client) -> None:
    text = look(page, "?from=2&to=4")
    table = text.partition('class="compared"')[2].partition("</table>")[0]
    assert "Weight of v1" in table and "90\u00a0%" in table and "50\u00a0%" in table
    assert "retries" in table and "timeouts" not in table
    assert "Nothing differs" in look(page, "?from=2&to=2")


@pytest.mark.parametrize("number", ["99", "0", "-1", "x", "9" * 30, "<b>", "\u0661"])
def test_a_generation_that_is_not_there_is_named(page: Client, number: str) -> None:
    for query in ({"from": number}, {"restore": number}):
        answer = page.get(ADDRESS, query)
        text = answer.content.decode()
        assert answer.status_code == 200 and "The route has no generation" in text
        assert "<b>”" not in text and len(numbers(text)) == 4


def test_a_restore_is_shown_in_numbers_and_changes_nothing_yet(page: Client) -> None:
    text = look(page, "?restore=2")
    assert "Restore generation 2" in text
    assert "40\u00a0% of the requests go elsewhere." in text
    assert "v2 would get 10\u00a0% and has no ready replica." in text
    assert Generation.objects.count() == 4


def test_one_post_restores_weights_and_settings_bit_by_bit(page: Client) -> None:
    done = page.post(ADDRESS, {"number": 1, "generation": 4})
    assert done["Location"] == "/models/qwen/traffic"
    assert state(5) == state(1) and route_view(model="qwen").route.generation == 5
    assert Generation.objects.get(number=5).restored_from == 1
    assert "data-undo-s=" in page.get(done["Location"]).content.decode()


def test_what_is_in_force_is_not_restored_and_nothing_is_to_undo(page: Client) -> None:
    done = page.post(ADDRESS, {"number": 4, "generation": 4})
    text = page.get(done["Location"]).content.decode()
    assert Generation.objects.count() == 4 and "data-undo-s=" not in text


def test_twice_the_same_post_restores_once(page: Client) -> None:
    page.post(ADDRESS, {"number": 2, "generation": 4})
    again = page.post(ADDRESS, {"number": 2, "generation": 4})
    assert again.status_code == 409 and Generation.objects.count() == 5


def test_a_restore_over_another_change_shows_both_sides(page: Client) -> None:
    fleet.weights_give("qwen", {"v1": 1000, "v2": 9000}, "in a hurry")
    answer = page.post(ADDRESS, {"number": 2, "generation": 4})
    text = answer.content.decode()
    assert answer.status_code == 409 and Generation.objects.count() == 5
    assert "Generation 5 is in force now, by ada. Reason: in a hurry" in text
    theirs, mine = text.split('class="compared"')[1:]
    assert "50\u00a0%" in theirs.partition("</table>")[0]
    assert "10\u00a0%" in mine.partition("</table>")[0]
    assert 'name="generation" value="5"' in text
    page.post(ADDRESS, {"number": 2, "generation": 5})
    assert state(6) == state(2)


@pytest.mark.parametrize(
    ("number", "generation", "status"),
    [("77", "4", 404), ("", "4", 404), ("2", "", 409), ("x", "y", 409)],
)
def test_a_post_that_makes_no_sense_changes_nothing(
    page: Client, number: str, generation: str, status: int
) -> None:
    answer = page.post(ADDRESS, {"number": number, "generation": generation})
    assert answer.status_code == status and Generation.objects.count() == 4


def test_pages_follow_each_other_without_a_gap(page: Client) -> None:
    for n in range(60):
        fleet.weights_give("qwen", {"v1": 5001 + n, "v2": 4999 - n})
    seen: list[int] = []
    query = "?"
    while query:
        text = look(page, query)
        seen += numbers(text)
        assert '<td data-label="In force for" class="num"></td>' not in text
        _, more, rest = text.partition('rel="next" href="')
        query = rest.partition('"')[0] if more else ""
    assert seen == list(range(64, 0, -1))
    assert "Nothing older" in look(page, "?before=1")


def test_more_generations_cost_no_more_queries(page: Client) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            look(page, "?restore=2")
        return len(queries)

    cost()
    few = cost()
    for n in range(30):
        fleet.weights_give("qwen", {"v1": 5001 + n, "v2": 4999 - n})
    assert cost() == few


def test_a_viewer_sees_the_button_with_the_reason(model: None) -> None:
    client = Client()
    client.force_login(User.objects.create_user("eve", role="viewer"))
    text = look(client, "?restore=2")
    assert (
        "Needs the role operator" in text
        and 'type="submit" class="primary"' not in (text.partition('id="main"')[2])
    )
    assert client.post(ADDRESS, {"number": 2, "generation": 4}).status_code == 403


def test_changes_of_an_object_lead_to_their_records(page: Client) -> None:
    team_create(slug="qwen", actor=BOB)
    text = page.get("/teams/qwen").content.decode()
    assert "created the team qwen" in text and "created the model" not in text
    assert "/audit?target=qwen&amp;action=team" in text
    link = re.search(r"/audit\?before=\d+", text)
    assert link is not None
    first = page.get(link[0]).content.decode().partition("<tr id=")[2]
    assert "created the team qwen" in first.partition("</tr>")[0]
    assert "created the team" not in page.get("/models/qwen").content.decode()
