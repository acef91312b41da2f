from __future__ import annotations

import stat
import time
from pathlib import Path

import httpx
import pytest

from cluster.models import Model, Node, Replica, Version
from cluster.services import node_reconcile, node_shutdown
from console.demo import demo_seed
from routing.contracts.keys import key_hash
from routing.models import ApiKey
from routing.selectors import route_view

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
]


def test_the_demo_is_one_model_in_two_versions_on_three_replicas(
    tmp_path: Path,
) -> None:
    assert demo_seed(data_dir=tmp_path)
    weights = {v.name: bp for v, bp in route_view(model="smollm2").weights}
    assert weights == {"v1": 9000, "v2": 1000}
    assert Replica.objects.count() == 3
    file = tmp_path / "demo-key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = ApiKey.objects.get()
    assert key.secret_sha256 == key_hash(file.read_text().strip())
    assert (key.model_names, key.team.slug) == (None, "demo")


def test_a_second_seed_changes_nothing_and_revives_nothing(tmp_path: Path) -> None:
    demo_seed(data_dir=tmp_path)
    text = (tmp_path / "demo-key").read_text()
    Replica.objects.all().delete()
    assert not demo_seed(data_dir=tmp_path)
    assert Replica.objects.count() == 0
    assert (tmp_path / "demo-key").read_text() == text


def test_a_seed_that_fails_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_arguments: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("console.demo.secret_file_replace", no_space)
    with pytest.raises(OSError, match="no space"):
        demo_seed(data_dir=tmp_path)
    assert not Model.objects.exists()
    monkeypatch.undo()
    assert demo_seed(data_dir=tmp_path)


@pytest.mark.processes
def test_without_the_wheels_the_mock_serves_and_everything_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.demo.find_spec", lambda name: None)
    demo_seed(data_dir=tmp_path)
    assert "Mock engine" in Model.objects.get().description
    for version in Version.objects.all():
        assert "Mock engine" in version.description
    node = Node.objects.get()
    try:
        deadline = time.monotonic() + 60
        while not served_names() >= {"mock"}:
            assert time.monotonic() < deadline
            node_reconcile(node=node)
    finally:
        assert node_shutdown(node=node)


def served_names() -> set[str]:
    """The names under which the demo's replicas answer, once all of them do."""
    names: set[str] = set()
    for replica in Replica.objects.all():
        try:
            models = httpx.get(f"{replica.address}/v1/models", trust_env=False).json()
        except (httpx.HTTPError, httpx.InvalidURL):
            return set()
        names.add(models["data"][0]["id"])
    return names
