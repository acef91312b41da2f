"""Taking the last change back: for ten seconds, once, and over nobody's head."""

from __future__ import annotations

import re
import time

import pytest
from django.test import Client

from cluster.models import AuditRecord, Model, Replica
from cluster.selectors import replica_get
from cluster.services import model_delete
from console.accounts.models import User
from console.pages.undo import GRACE_S, OFFERED_S
from routing.models import ApiKey, Team
from routing.selectors import key_get, route_get, team_get
from routing.selectors.routes import route_view
from routing.services import key_issue, team_create, weights_set
from routing.services.keys import key_described
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


@pytest.fixture
def replica() -> Replica:
    return fleet.replica_add(fleet.model_add("qwen", "v1", "v2"), "v1", 8001)


def offer(page: Client, address: str = "/") -> str:
    """The token of the offer that the next page shows; empty where it shows none."""
    text = page.get(address).content.decode()
    found = re.search(r'action="/undo".*?name="token" value="([^"]+)"', text, re.S)
    return found[1] if found else ""


def take_back(page: Client, token: str) -> str:
    """What the page after it says."""
    done = page.post("/undo", {"token": token})
    text = page.get(done["Location"]).content.decode()
    return text.partition("data-results>")[2].partition("</div>")[0]


def test_a_replica_gets_its_state_back_once(page: Client, replica: Replica) -> None:
    page.post(f"/replicas/{replica.id}/disable")
    assert replica_get(replica_id=replica.id).admin_state == "disabled"
    token = offer(page)
    assert "is as it was" in take_back(page, token)
    assert replica_get(replica_id=replica.id).admin_state == "enabled"
    assert AuditRecord.objects.filter(action="replica.enable").count() == 1
    assert "nothing to undo" in take_back(page, token)
    assert offer(page) == ""


@pytest.fixture
def other(db: None) -> Client:
    """The browser of another admin."""
    client = Client()
    client.force_login(User.objects.create_user("bob", role="admin"))
    return client


def test_what_somebody_changed_meanwhile_stays(
    page: Client, other: Client, replica: Replica
) -> None:
    page.post(f"/replicas/{replica.id}/disable")
    token = offer(page)
    other.post(f"/replicas/{replica.id}/drain")
    assert "Someone changed it meanwhile" in take_back(page, token)
    assert replica_get(replica_id=replica.id).admin_state == "draining"


def test_what_somebody_else_did_again_is_theirs(
    page: Client, other: Client, replica: Replica
) -> None:
    team_create(slug="search", name="Search", actor=fleet.ACTOR)
    for address in (f"/replicas/{replica.id}", "/teams/search"):
        page.post(f"{address}/disable")
        token = offer(page)
        other.post(f"{address}/enable")
        other.post(f"{address}/disable")
        assert "Someone changed it meanwhile" in take_back(page, token)
    assert replica_get(replica_id=replica.id).admin_state == "disabled"
    assert team_get(slug="search").disabled_at is not None


def test_an_offer_is_shown_for_ten_seconds_and_good_a_little_longer(
    page: Client, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.post(f"/replicas/{replica.id}/disable")
    token, now = offer(page), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 11)
    assert offer(page) == ""
    monkeypatch.setattr(time, "time", lambda: now + OFFERED_S + GRACE_S + 1)
    assert "Too late to undo" in take_back(page, token)
    assert replica_get(replica_id=replica.id).admin_state == "disabled"


def shares() -> dict[str, int]:
    return {version.name: bp for version, bp in route_view(model="qwen").weights}


def test_weights_go_back_to_the_generation_before(
    page: Client, replica: Replica
) -> None:
    sent = {"weight.v1": "60", "weight.v2": "40", "generation": 1}
    page.post("/models/qwen/traffic", sent | {"override": ""})
    assert shares() == {"v1": 6000, "v2": 4000}
    assert "has the weights from before" in take_back(page, offer(page))
    assert shares() == {"v1": 10_000, "v2": 0}


def test_weights_that_were_in_force_already_are_not_offered_back(
    page: Client, replica: Replica
) -> None:
    wanted = {"v1": 6000, "v2": 4000}
    route = route_get(model="qwen")
    weights_set(route=route, weights=wanted, generation=1, actor=fleet.ACTOR)
    sent = {"weight.v1": "60", "weight.v2": "40", "generation": 2, "override": ""}
    done = page.post("/models/qwen/traffic", sent)
    assert "No change yet" in page.get(done["Location"]).content.decode()
    assert offer(page) == ""
    assert shares() == wanted


def test_a_disabled_team_works_again(page: Client) -> None:
    team_create(slug="search", name="Search", actor=fleet.ACTOR)
    page.post("/teams/search/disable")
    assert "is as it was" in take_back(page, offer(page))
    assert team_get(slug="search").disabled_at is None
    # What changed nothing cannot be undone.
    page.post("/teams/search/enable")
    assert offer(page) == ""


@pytest.fixture
def key() -> ApiKey:
    team: Team = team_create(slug="search", name="Search", actor=fleet.ACTOR)
    found, _text = key_issue(
        team=team, name="old", tags=["a"], models=None, actor=fleet.ACTOR
    )
    return found


def change(page: Client, key: ApiKey, name: str) -> None:
    text = page.get(f"/keys/{key.id}").content.decode()
    seen = re.search(r'name="seen" value="([^"]+)"', text)
    assert seen
    sent = {"seen": seen[1], "name": name, "tags": "b", "expiry": "30"}
    assert page.post(f"/keys/{key.id}", sent).status_code == 302


def test_an_edited_key_is_as_before_to_the_last_value(
    page: Client, key: ApiKey
) -> None:
    before = key_described(key_get(key_id=key.id))
    change(page, key, "new")
    assert key_get(key_id=key.id).tags == ["b"]
    assert "is as it was" in take_back(page, offer(page))
    assert key_described(key_get(key_id=key.id)) == before


def test_only_whoever_may_make_a_change_may_take_it_back(
    page: Client, replica: Replica, user: User
) -> None:
    page.post(f"/replicas/{replica.id}/disable")
    token = offer(page)
    User.objects.filter(pk=user.pk).update(role="viewer")
    assert page.post("/undo", {"token": token}).status_code == 403
    assert replica_get(replica_id=replica.id).admin_state == "disabled"


def test_a_description_comes_back_unless_somebody_changed_it(page: Client) -> None:
    fleet.model_add("qwen", "v1", description="first")
    seen = page.get("/models/qwen/edit").content.decode()
    mark = seen.partition('name="seen" value="')[2].partition('"')[0]
    page.post("/models/qwen/edit", {"seen": mark, "description": "second"})
    assert Model.objects.get().description == "second"
    stale = {"seen": mark, "description": "third"}
    answer = page.post("/models/qwen/edit", stale)
    assert answer.status_code == 409
    assert answer.context["theirs"] == [("Description", "third", "second")]
    assert b">third</textarea>" in answer.content.replace(b"\n", b"")
    assert "is as it was" in take_back(page, offer(page))
    assert Model.objects.get().description == "first"


def edit(page: Client, model: str, description: str) -> None:
    seen = page.get(f"/models/{model}/edit").content.decode()
    mark = seen.partition('name="seen" value="')[2].partition('"')[0]
    sent = {"seen": mark, "description": description}
    assert page.post(f"/models/{model}/edit", sent).status_code == 302


def test_the_ends_of_lines_that_a_browser_sends_are_no_change(page: Client) -> None:
    lines = "a\n" * 249 + "b"
    fleet.model_add("qwen", description=lines)
    edit(page, "qwen", lines.replace("\n", "\r\n"))
    assert not AuditRecord.objects.filter(action="model.update").exists()
    assert offer(page) == ""


def test_why_what_is_gone_cannot_be_undone_is_said_on_a_page_that_exists(
    page: Client,
) -> None:
    model = fleet.model_add("spare", "v1", description="first")
    edit(page, "spare", "second")
    token = offer(page)
    model_delete(model=model, actor=fleet.ACTOR)
    assert "Not undone. There is no model spare." in take_back(page, token)


def test_a_model_goes_only_when_its_name_is_typed_and_it_never_had_a_replica(
    page: Client, replica: Replica
) -> None:
    fleet.model_add("spare", "v1")
    for typed in ("", "Spare", "spare2"):
        answer = page.post("/models/spare/delete", {"typed": typed})
        assert answer.status_code == 422 and b"Type the name exactly" in answer.content
    assert page.post("/models/spare/delete", {"typed": "spare"}).status_code == 302
    asked = page.get("/models/qwen/edit").content.decode()
    assert "requests on record name it" in asked
    assert 'class="danger" aria-disabled="true"' in asked
    answer = page.post("/models/qwen/delete", {"typed": "qwen"})
    assert answer.status_code == 422 and b"The model has replicas" in answer.content
    assert [one.name for one in Model.objects.all()] == ["qwen"]
