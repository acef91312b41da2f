"""Starting, stopping, and the sentences that say why it does not start."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
from pathlib import Path

import httpx
import pytest

from tests.e2e.product import Product, eventually, running

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


def start_fails(product: Product, *, within_s: float = 60) -> str:
    """The last words of a start that must fail."""
    product.start()
    assert product.process is not None
    assert product.process.wait(timeout=within_s) != 0
    return str(eventually(lambda: product.lines and product.lines[-1], within_s=10))


def test_it_serves_and_ctrl_c_leaves_no_process_and_keeps_the_data(
    tmp_path: Path,
) -> None:
    with running(Product(tmp_path)) as product:
        product.wait_replicas_healthy(3)
        with product.openai() as client:
            assert [model.id for model in client.models.list()] == ["smollm2"]
        assert product.stop(signal.SIGINT) == 0
        assert product.processes() == []
    key, token = product.secret("demo-key"), product.secret("admin-token")
    with running(Product(tmp_path)) as again:
        assert again.secret("demo-key") == key
        assert again.secret("admin-token") == token
        again.wait_replicas_healthy(3)
        with again.openai() as client:
            assert [model.id for model in client.models.list()] == ["smollm2"]
        assert again.stop(signal.SIGTERM) == 0
        assert again.processes() == []


def test_files_are_private_and_logs_are_json_lines(tmp_path: Path) -> None:
    with running(Product(tmp_path, "--no-demo")) as product:
        for name in ("admin-password", "admin-token"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert not (tmp_path / "demo-key").exists()
        httpx.get(f"{product.gateway}/v1/models", trust_env=False)
        product.stop()
    logs = list((tmp_path / "log").glob("*.log"))
    assert {log.stem for log in logs} >= {"console", "gateway-1", "worker", "beat"}
    for log in logs:
        for line in log.read_text().splitlines():
            assert isinstance(json.loads(line), dict), (log.name, line)


def test_a_killed_gateway_and_a_killed_valkey_come_back(tmp_path: Path) -> None:
    with running(Product(tmp_path, "--no-demo")) as product:
        for name in ("gateway-1", "valkey"):
            kill_and_wait(product, name)
        eventually(
            lambda: (
                httpx.get(f"{product.console}/readyz", trust_env=False).status_code
                == 200
            ),
            within_s=30,
        )


def kill_and_wait(product: Product, name: str) -> None:
    pid = product.pid(name)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: product.pid(name) != pid, within_s=30)
    assert any(f"{name} ended (signal 9)" in line for line in product.lines)


def test_a_second_instance_on_the_same_data_is_told_so(tmp_path: Path) -> None:
    with running(Product(tmp_path, "--no-demo")) as first:
        assert first.process is not None
        said = start_fails(Product(tmp_path, "--no-demo"))
        assert f"Another Sluice (pid {first.process.pid})" in said


def test_a_taken_port_is_named_with_its_variable(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        product = Product(tmp_path, "--no-demo", SLUICE_GATEWAY_BIND=address)
        said = start_fails(product)
    assert address in said and "SLUICE_GATEWAY_BIND" in said


def test_an_unusable_data_directory_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    said = start_fails(Product(tmp_path / "file" / "var", "--no-demo"))
    assert "cannot be written" in said


def test_a_database_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    with running(Product(tmp_path, "--no-demo")) as product:
        product.stop()
    with sqlite3.connect(tmp_path / "sluice.sqlite3") as database:
        database.execute(
            "INSERT INTO django_migrations (app, name, applied) "
            "VALUES ('routing', '9999_from_the_future', '2030-01-01')"
        )
    database.close()
    said = start_fails(Product(tmp_path, "--no-demo"))
    assert "newer schema" in said and "9999_from_the_future" in said
