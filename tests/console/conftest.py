from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from django.conf import settings as django_settings
from django.test import Client

from cluster import live
from console.accounts.models import User


@pytest.fixture
def user(db: None) -> User:
    return User.objects.create_user("ada", password="correct horse", role="admin")


@pytest.fixture
def page(user: User) -> Client:
    """A browser without scripts, logged in."""
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def redis_away(tmp_path: Path, valkey: redis.Redis) -> Iterator[None]:
    """From here on nobody answers where Redis was."""
    url = django_settings.REDIS_URL
    django_settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    live.redis_client.cache_clear()
    yield
    django_settings.REDIS_URL = url
    live.redis_client.cache_clear()
