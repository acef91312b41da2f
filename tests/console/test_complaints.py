"""What users of other consoles complain about, and that each is answered by tests.

``complaints.toml`` has them by number, with the projects where they were filed, and for
each the tests that stand for it, here or where the matter does.
"""

from __future__ import annotations

import ast
import re
import time
import tomllib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from cluster.health import Admin, Probe
from cluster.services import model_delete, replica_admin_set
from console.accounts.models import User
from console.pages.route_settings import RouteForm
from routing.services import key_revoke, team_enabled_set
from tests import fleet, outcomes
from tests.console.api import Api

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]
ROOT = Path(settings.BASE_DIR) / "tests"


@cache
def functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_complaint_is_answered_by_tests_that_exist_or_says_why_not() -> None:
    complaints = tomllib.loads((Path(__file__).parent / "complaints.toml").read_text())
    assert sorted(map(int, complaints)) == list(range(1, 33))
    for number, complaint in complaints.items():
        assert ("tests" in complaint) != ("later" in complaint), number
        for name in complaint.get("tests", ()):
            file, _, function = name.partition("::")
            assert function in functions(file), name


# Those that stand nowhere else ------------------------------------------------------


def test_every_verb_of_a_replica_stands_on_its_page(page: Client) -> None:
    replica = fleet.replica_add(fleet.model_add("qwen", "v1"), "v1", 8001)
    text = page.get(f"/replicas/{replica.id}").content.decode()
    for word in ("Enable", "Drain", "Disable", "Start", "Stop", "Restart", "Remove"):
        assert re.search(rf">{word}…?<", text), word


def test_a_filter_leaves_the_time_axis_of_a_chart_as_it_is(page: Client) -> None:
    now = time.time()
    outcomes.count(
        outcomes.outcome(now - n * 86_400, team=["search", "ads"][n % 2])
        for n in range(9)
    )
    axes = []
    for query in ("", "&team=search", "&team=nobody", "&by=team", "&by=key&team=ads"):
        charts = page.get(f"/usage.json?range=30d{query}").json()["charts"]
        axes += [one["figure"]["layout"]["xaxis"]["range"] for one in charts]
    assert len(axes) == 10 and axes == [axes[0]] * 10


def test_who_is_refused_at_the_gateway_still_sees_usage_and_keys(
    user: User, page: Client
) -> None:
    team, key = fleet.team_with_key("search")
    outcomes.count([outcomes.outcome(time.time(), team="search", key=key.id)])
    User.objects.filter(pk=user.pk).update(role="viewer")
    user.leads.add(team)
    team_enabled_set(team=team, enabled=False, actor=fleet.ACTOR)
    key_revoke(key=key, actor=fleet.ACTOR)
    assert "nightly-report" in page.get("/teams/search").content.decode()
    assert "Revoked" in page.get(f"/keys/{key.id}").content.decode()
    usage = page.get("/usage?by=key&team=search").content.decode()
    assert "nightly-report" in usage and "No usage" not in usage


def test_what_was_made_is_in_the_list_at_once_and_what_is_gone_is_not(
    page: Client,
) -> None:
    fleet.team_with_key("search")
    form = page.get("/teams/search/new-key").context
    page.post(
        "/teams/search/new-key",
        {"name": "laptop", "expiry": "90", "once": form["once"]},
    )
    for address in ("/teams/search", "/keys", "/keys?q=laptop"):
        assert "laptop" in page.get(address).content.decode(), address
    spare = fleet.model_add("spare", "v1")
    assert "spare" in page.get("/models").content.decode()
    model_delete(model=spare, actor=fleet.ACTOR)
    for address in ("/models", "/new/replica", "/teams/search/new-key"):
        assert "spare" not in page.get(address).content.decode(), address


def test_no_setting_stands_both_in_the_environment_and_on_a_page() -> None:
    example = (Path(settings.BASE_DIR) / ".env.example").read_text().lower()
    named = set(re.findall(r"^#?\s*(?:sluice_)?([a-z_]+)=", example, re.MULTILINE))
    assert "gateway_bind" in named
    on_pages = {name.rpartition(".")[2] for name in RouteForm().fields}
    assert "retries" in on_pages and not named & on_pages


def test_usage_of_one_key_goes_on_over_the_turn_of_a_year(page: Client) -> None:
    _team, key = fleet.team_with_key("search")
    turn_s = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    for seconds, requests in ((-60, 3), (60, 5)):
        one = outcomes.outcome(turn_s + seconds, team="search", key=key.id)
        outcomes.count([one] * requests)
    address = f"/usage?key={key.id}&from=2025-12-30&to=2026-01-02&zone=UTC"
    lines = page.get(address).context["lines"]
    assert [(line.names, line.used.requests) for line in lines] == [
        (["2026-01-01"], 5),
        (["2025-12-31"], 3),
    ]


def test_list_page_interface_and_metrics_show_one_state(page: Client) -> None:
    model = fleet.model_add("qwen", "v1")
    rows = {
        "healthy": fleet.replica_add(model, "v1", 8001),
        "down": fleet.replica_add(model, "v1", 8002, probe=Probe.DOWN),
        "loading": fleet.replica_add(model, "v1", 8003, probe=Probe.LOADING),
        "registered": fleet.replica_add(model, "v1", 8004, probe=None),
        "disabled": fleet.replica_add(model, "v1", 8005),
        "healthy ": fleet.replica_add(model, "v1", 8006),
    }
    replica_admin_set(replica=rows["disabled"], state=Admin.DISABLED, actor=fleet.ACTOR)
    listed = page.get("/replicas").content.decode()
    metrics = Client().get("/metrics").content.decode()
    api = Api()
    for name, replica in rows.items():
        label = name.strip()
        line = f'sluice_replica_state{{replica="{replica.id}",state="{label}"}} 1'
        assert line in metrics
        assert api.get(f"/replicas/{replica.id}")["state"]["label"] == label
        row = listed.split(f">{replica.id}</a>")[1].split("</tr>")[0]
        own = page.get(f"/replicas/{replica.id}").content.decode()
        verdict = own.split('<h2 id="state">')[1].split("</h2>")[0]
        assert f">{verdict}</span>" in row, replica.id
        assert verdict.lower() == label


def test_no_two_states_look_alike_without_their_colour() -> None:
    icons = (Path(settings.BASE_DIR) / "static/icons.svg").read_text()
    shapes = dict(re.findall(r'<symbol id="(state-\w+)"[^>]*>(.*?)</symbol>', icons))
    plain = {
        name: re.sub(r' (?:fill|stroke)="[^"]*"', "", body)
        for name, body in shapes.items()
    }
    assert len(plain) >= 8 and len(set(plain.values())) == len(plain)
