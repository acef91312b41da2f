"""The traffic page without a script: the number fields are the truth."""

from __future__ import annotations

import time

import pytest
import redis
from django.test import Client
from django.utils import timezone

from cluster.health import Probe
from console.pages.traffic import percent_parse
from routing.contracts import names
from routing.models import TelemetryCursor
from routing.selectors import route_view
from tests import fleet

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey", "model"),
]

ADDRESS = "/models/qwen/traffic"


@pytest.fixture
def model(valkey: redis.Redis) -> None:
    """Versions v1 (90 %) and v2 (10 %), one healthy replica each; generation 2."""
    model = fleet.model_add("qwen", "v1", "v2")
    fleet.replica_add(model, "v1", 8001)
    fleet.replica_add(model, "v2", 8101)
    fleet.weights_give("qwen", {"v1": 9000, "v2": 1000})


def shares() -> dict[str, int]:
    return {version.name: bp for version, bp in route_view(model="qwen").weights}


def form(v1: str, v2: str, generation: int = 2, **more: object) -> dict[str, object]:
    return {"weight.v1": v1, "weight.v2": v2, "generation": generation, **more}


def test_one_post_sets_the_weights_and_offers_the_way_back(page: Client) -> None:
    done = page.post(ADDRESS, form("80", "20", reason="looks good"))
    assert done["Location"] == ADDRESS
    assert shares() == {"v1": 8000, "v2": 2000}
    text = page.get(done["Location"]).content.decode()
    assert "Saved as generation 3." in text and "data-undo-s=" in text
    assert "looks good" in text


def undo(page: Client) -> None:
    text = page.get(ADDRESS).content.decode()
    token = text.partition('name="token" value="')[2].partition('"')[0]
    page.post("/undo", {"token": token})


def test_undo_brings_the_generation_before_back(page: Client) -> None:
    page.post(ADDRESS, form("80", "20"))
    undo(page)
    assert shares() == {"v1": 9000, "v2": 1000}
    assert "Undone: generation 4" in page.get(ADDRESS).content.decode()


def test_undo_after_someone_else_changed_more_changes_nothing(page: Client) -> None:
    page.post(ADDRESS, form("80", "20"))
    fleet.weights_give("qwen", {"v1": 5000, "v2": 5000})
    undo(page)
    assert shares() == {"v1": 5000, "v2": 5000}
    assert "changed meanwhile" in page.get(ADDRESS).content.decode()


@pytest.mark.parametrize(
    ("v1", "v2", "words"),
    [
        ("80", "19.99", "The shares sum to 99.99\u00a0%"),
        ("80", "21", "The shares sum to 101\u00a0%"),
        ("80", "", "Write a percentage such as 12.5."),
        ("80", "twenty", "Write a percentage such as 12.5."),
        ("110", "-10", "A share lies between 0 and 100 %."),
        ("80.001", "19.999", "The smallest step is 0.01 %."),
    ],
)
def test_a_wrong_share_is_told_and_the_input_kept(
    page: Client, v1: str, v2: str, words: str
) -> None:
    response = page.post(ADDRESS, form(v1, v2))
    text = response.content.decode()
    assert response.status_code == 422
    assert words in text and f'value="{v1}"' in text and 'aria-invalid="true"' in text
    assert shares() == {"v1": 9000, "v2": 1000}


@pytest.mark.parametrize(
    ("text", "weight_bp"),
    [("0", 0), ("100", 10_000), (" 12,5 % ", 1250), ("0.01", 1), ("33.33", 3333)],
)
def test_percentages_become_basis_points_exactly(text: str, weight_bp: int) -> None:
    assert percent_parse(text) == weight_bp


@pytest.mark.parametrize(
    "text", ["NaN", "sNaN", "Infinity", "1e999999", "1e-9", "-0.01", "0x1", "\u0661e9"]
)
def test_what_is_no_percentage_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"percentage|share|step"):
        percent_parse(text)


def test_a_stale_generation_shows_both_sides_and_loses_neither(page: Client) -> None:
    fleet.weights_give("qwen", {"v1": 5000, "v2": 5000})
    response = page.post(ADDRESS, form("70", "30", reason="mine"))
    text = response.content.decode()
    assert response.status_code == 409
    assert "Someone else changed these weights meanwhile." in text
    assert "v1 50\u00a0%, v2 50\u00a0%" in text
    assert 'value="70"' in text and 'value="mine"' in text
    assert shares() == {"v1": 5000, "v2": 5000}


def test_keeping_mine_names_the_generation_it_replaces(page: Client) -> None:
    fleet.weights_give("qwen", {"v1": 5000, "v2": 5000})
    page.post(ADDRESS, form("70", "30", override=3))
    assert shares() == {"v1": 7000, "v2": 3000}


def test_a_post_without_a_generation_is_a_conflict(page: Client) -> None:
    for generation in ("", "x", "-1", "9" * 30):
        response = page.post(
            ADDRESS, {"weight.v1": "1", "weight.v2": "99", "generation": generation}
        )
        assert response.status_code == 409
    assert shares() == {"v1": 9000, "v2": 1000}


def test_restoring_opens_a_draft_and_applies_nothing(page: Client) -> None:
    text = page.get(f"{ADDRESS}?draft=1").content.decode()
    assert "a draft with the weights of generation 1" in text
    assert 'value="100"' in text and "as in generation 1" in text
    assert shares() == {"v1": 9000, "v2": 1000}
    assert page.get(f"{ADDRESS}?draft=99").status_code == 200
    assert page.get(f"{ADDRESS}?draft=x").status_code == 200


def test_applied_says_by_how_many_gateways_and_polls_fast_until_all(
    page: Client,
) -> None:
    text = page.get(ADDRESS).content.decode()
    assert "By no gateway: none is running." in text
    fleet.gateway_set("g1")
    fleet.gateway_set("g2")
    text = page.get(ADDRESS).content.decode()
    assert "Applied by 2 of 2 gateways, revision" in text
    assert 'hx-trigger="every 5s"' in text
    fleet.weights_give("qwen", {"v1": 5000, "v2": 5000})
    fleet.gateway_set("g1")
    text = page.get(ADDRESS, headers={"HX-Request": "true"}).content.decode()
    assert text.count("1 of 2 gateways, revision") == 5
    assert "v1 50\u00a0%" in text and "v1 90\u00a0%" in text
    assert 'hx-trigger="every 1s"' in text
    for control in ("<input", "<button", "<select", "<script", "<html"):
        assert control not in text


def live_part(page: Client) -> str:
    text: str = page.get(ADDRESS, headers={"HX-Request": "true"}).content.decode()
    return text


def test_the_measured_bar_stands_on_what_was_served_and_says_how_sure_it_is(
    page: Client,
) -> None:
    assert "Nothing was served yet by generation 2." in live_part(page)
    fleet.served_set("qwen", {("v1", "v1"): 30, ("v2", "v2"): 2})
    assert "They are few: the true shares may lie far off." in live_part(page)
    fleet.served_set("qwen", {("v1", "v1"): 870, ("v2", "v2"): 98}, gateway="g2")
    text = live_part(page)
    assert "1,000 requests since generation 2 was applied." in text
    assert "They are few" not in text
    assert 'aria-label="Measured: v1 90\u00a0%, v2 10\u00a0%"' in text
    assert '<line x1="87.985%" x2="91.709%"' in text
    assert "8.29\u00a0% to 12.02\u00a0%" in text
    for control in ("<input", "<button", "<select", "<script", "<details"):
        assert control not in text


def test_a_failover_is_explained_and_accuses_nobody(page: Client) -> None:
    fleet.gateway_set("g1")
    fleet.draws_set("g1", "qwen", {"v1": 895, "v2": 105})
    counts = {("v1", "v1"): 895, ("v2", "v2"): 93, ("v2", "v1"): 12}
    fleet.served_set("qwen", counts)
    text = live_part(page)
    assert (
        "11.4\u00a0% of the draws for v2 (12 of 105) were served by v1: "
        "no ready replica of v2 was left."
    ) in text
    assert "1,000 draws by 1 gateway agree with the weights: χ² = 0.28" in text
    assert "Weights hold" in text


@pytest.mark.parametrize(
    ("drawn", "word", "sentence"),
    [
        ({}, "Nothing to check", "No version was drawn yet by this generation."),
        ({"v1": 9, "v2": 1}, "Too few to check", "10 draws so far"),
        (
            {"v1": 800, "v2": 200},
            "Weights do not hold",
            "Gateway g1: v2 was drawn for 20\u00a0% of 1,000 requests; 10\u00a0% is",
        ),
    ],
)
def test_the_check_has_words_for_each_case(
    page: Client, drawn: dict[str, int], word: str, sentence: str
) -> None:
    fleet.gateway_set("g1")
    fleet.draws_set("g1", "qwen", drawn)
    text = live_part(page)
    assert word in text and sentence in text


def test_a_version_of_weight_0_that_got_requests_is_named(page: Client) -> None:
    fleet.gateway_set("g1")
    fleet.weights_give("qwen", {"v1": 10_000})
    fleet.draws_set("g1", "qwen", {"v1": 50})
    assert "All draws so far, 50, were of v1, as wanted." in live_part(page)
    fleet.served_set("qwen", {("v1", "v2"): 1})
    text = live_part(page)
    assert "Gateway g1: v2 got requests, and its weight is 0." in text


def test_gateways_that_only_together_err_are_told_so(page: Client) -> None:
    for number in range(8):
        fleet.gateway_set(f"g{number}")
        fleet.draws_set(f"g{number}", "qwen", {"v1": 870, "v2": 130})
    assert "All gateways together: v2 was drawn for 13\u00a0%" in live_part(page)


def test_what_waits_to_be_counted_is_told(page: Client, valkey: redis.Redis) -> None:
    assert "are not counted yet" not in live_part(page)
    valkey.xadd(names.OUTCOMES, {"x": "y"}, id=f"{int(time.time() - 61)}000-1")
    assert "The requests of the last 6" in live_part(page)


def test_without_redis_what_was_served_is_shown_as_what_it_is(
    page: Client, request: pytest.FixtureRequest
) -> None:
    fleet.served_set("qwen", {("v1", "v1"): 900, ("v2", "v2"): 100})
    request.getfixturevalue("redis_away")
    text = page.get(ADDRESS).content.decode()
    assert "1,000 requests since generation 2 was applied." in text
    assert "Redis does not answer: newer requests are not counted." in text
    assert "Not checked" in text


def test_the_rate_of_the_last_minutes_goes_with_the_poll(page: Client) -> None:
    assert "data-rate" not in live_part(page)
    TelemetryCursor.objects.create(moved_at=timezone.now())
    assert 'data-rate="0.0"' in live_part(page)


def test_a_gateway_on_a_revision_that_is_not_on_record_is_shown_as_such(
    page: Client,
) -> None:
    fleet.gateway_set("g1", revision=99_999)
    assert page.get(ADDRESS).status_code == 200


def test_a_version_without_a_ready_replica_keeps_at_most_its_share(
    page: Client,
) -> None:
    model = fleet.model_add("bge", "v1", "v2")
    fleet.replica_add(model, "v1", 8301, probe=Probe.DOWN)
    text = page.get("/models/bge/traffic").content.decode()
    assert '{"name": "v1", "weight": 10000, "most": 10000, "ready": 0}' in text
    assert '{"name": "v2", "weight": 0, "most": 0, "ready": 0}' in text
    assert "None of its replicas is ready." in text


def test_a_model_without_versions_explains_the_page(page: Client) -> None:
    fleet.model_add("bge")
    text = page.get("/models/bge/traffic").content.decode()
    assert "Traffic is split between the versions" in text
    response = page.post("/models/bge/traffic", {"generation": 0})
    assert response.status_code == 422
