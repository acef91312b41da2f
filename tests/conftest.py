"""What every test may use: a real Valkey, the cast, small factories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.db import connections

from cluster import live
from cluster.actor import Actor
from console.celery import app as celery_app
from console.env import broker_url
from tests import services


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[services.Valkey]:
    with services.valkey() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def isolated(
    valkey_server: services.Valkey, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No test touches the data directory or the Redis of a running Sluice."""
    django_settings.REDIS_URL = valkey_server.url
    django_settings.DATA_DIR = tmp_path_factory.mktemp("data")
    # Whitenoise warns of a folder that is not there.
    django_settings.STATIC_ROOT = django_settings.DATA_DIR / "static"
    django_settings.STATIC_ROOT.mkdir()
    django_settings.STORAGES = {
        "staticfiles": {
            "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        }
    }
    layers: Any = django_settings.CHANNEL_LAYERS
    layers["default"]["CONFIG"]["hosts"][0]["address"] = valkey_server.url
    celery_app.conf.update(broker_url=broker_url(valkey_server.url))
    live.redis_client.cache_clear()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    tmp_path_factory: pytest.TempPathFactory,
    django_db_modify_db_settings_parallel_suffix: None,
) -> None:
    """SQLite lies in a file, as in the product: servers have threads of their own. Each
    process of a run has a database to itself."""
    database = connections.databases["default"]
    if database["ENGINE"].endswith("sqlite3"):
        folder = tmp_path_factory.mktemp("database")
        database["TEST"]["NAME"] = str(folder / "test.sqlite3")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """Tests with transactions of their own empty every table behind them, on SQLite by
    ``DELETE``, which the audit log refuses."""
    with django_db_blocker.unblock(), connections["default"].cursor() as cursor:
        if connections["default"].vendor == "sqlite":
            cursor.execute("DROP TRIGGER audit_no_delete")


@pytest.fixture
def valkey(valkey_server: services.Valkey) -> redis.Redis:
    """An empty Valkey."""
    client = live.redis_client()
    client.flushall()
    return client


@pytest.fixture
def actor() -> Actor:
    return Actor("user", "ada", "127.0.0.1")


@pytest.fixture
def data_dir() -> Path:
    return Path(django_settings.DATA_DIR)
