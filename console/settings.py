"""Settings of the Django processes: console, worker, beat and commands.

One file, grouped by topic. What a person may set comes from the environment
(``.env.example`` lists it); the gateway reads its own in
``routing/gateway/config.py``, so that it never loads Django.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

from console.env import broker_url, env_bind, env_int, env_list, env_secret, env_str

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(env_str("SLUICE_DATA_DIR", str(BASE_DIR / "var"))).resolve()
VERSION: str = tomllib.loads((BASE_DIR / "pyproject.toml").read_text())["project"][
    "version"
]

# Addresses -----------------------------------------------------------------

CONSOLE_BIND = env_bind("SLUICE_CONSOLE_BIND", "127.0.0.1:8000")
GATEWAY_BIND = env_bind("SLUICE_GATEWAY_BIND", "127.0.0.1:8080")
GATEWAY_WORKERS = env_int(
    "SLUICE_GATEWAY_WORKERS", min(os.cpu_count() or 1, 4), least=1
)
ALLOWED_HOSTS = env_list("SLUICE_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
TRUSTED_PROXIES = env_list("SLUICE_TRUSTED_PROXIES")
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in ALLOWED_HOSTS if host != "*"]
SECURE_PROXY_SSL_HEADER = (
    ("HTTP_X_FORWARDED_PROTO", "https") if TRUSTED_PROXIES else None
)

# Secrets -------------------------------------------------------------------


def _secret_key() -> str:
    """The configured key, else one made at the first start and kept (mode 0600).

    The file appears whole or not at all: several processes may start at once.
    """
    if key := env_secret("SLUICE_SECRET_KEY"):
        return key
    path = DATA_DIR / "secret-key"
    try:
        DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            with tempfile.NamedTemporaryFile("w", dir=DATA_DIR, prefix=".key-") as file:
                file.write(secrets.token_urlsafe(48))
                file.flush()
                os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):
                    # Unlike a rename, a link never takes another's place.
                    os.link(file.name, path)
        return path.read_text(encoding="ascii").strip()
    except OSError:
        # An unwritable data directory is reported in one sentence by the command
        # that needs it; loading the settings must not be what fails.
        return secrets.token_urlsafe(48)


SECRET_KEY = _secret_key()

# Application ---------------------------------------------------------------

DEBUG = False
ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "django_htmx",
    "csp",
    "ninja",
    "cluster.apps.ClusterConfig",
    "routing.apps.RoutingConfig",
    "console.accounts.apps.AccountsConfig",
    "console.apps.ConsoleConfig",
]
MIDDLEWARE = [
    "console.request_id.request_id_give",
    "console.client_address.forwarded_headers_guard",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "console.accounts.middleware.sessions_seen",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.frame.frame",
            ],
        },
    }
]

# Accounts ------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
    )
]
SESSION_COOKIE_NAME = "sluice_session"
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_NAME = "sluice_csrf"
# Behind a TLS entry the cookies must never travel in clear.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = bool(TRUSTED_PROXIES)

# Browser policy ------------------------------------------------------------

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:", "blob:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"

# Database ------------------------------------------------------------------


def _database(url: str) -> dict[str, Any]:
    """Django's settings for ``sqlite:///path`` or ``postgresql://…``."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": unquote(parts.path[1:]),
            "OPTIONS": {
                # A deferred transaction that reads first cannot become a writer
                # while another writes; IMMEDIATE waits its turn instead.
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": (
                    "PRAGMA journal_mode=WAL;"
                    "PRAGMA synchronous=NORMAL;"
                    "PRAGMA foreign_keys=ON;"
                    "PRAGMA cache_size=-32000;"
                ),
            },
        }
    if parts.scheme in ("postgres", "postgresql"):
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path[1:]),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": unquote(parts.hostname or ""),
            "PORT": str(parts.port or ""),
            # A node that is cut off must not wait for the network's own time-out,
            # which is a quarter of an hour.
            "OPTIONS": {
                "connect_timeout": 3,
                "tcp_user_timeout": 10_000,
                "keepalives_idle": 5,
                "keepalives_interval": 2,
                "keepalives_count": 3,
            },
        }
    raise ImproperlyConfigured(
        "DATABASE_URL must start with sqlite:/// or postgresql://, "
        f"not {parts.scheme or url!r}."
    )


DATABASES = {
    "default": _database(
        env_secret("DATABASE_URL") or f"sqlite:///{DATA_DIR / 'sluice.sqlite3'}"
    )
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# How long the row of each request is kept; counts have spans of their own
# (``routing.services.retention``).
OUTCOMES_KEPT_DAYS = env_int("SLUICE_OUTCOMES_KEPT_DAYS", 30, least=1)

# Redis and Celery ----------------------------------------------------------

# Empty means the embedded Valkey; the supervisor then sets REDIS_URL for its
# children. A unix socket is written unix:///path.
REDIS_URL = env_secret("REDIS_URL")
CELERY_BROKER_URL = broker_url(REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "celery"
CELERY_TIMEZONE = "UTC"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# However long a node is cut off, its worker is there when the network is back.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
# A task that was lost with its worker is made up for by the next beat.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 3600,
    "socket_timeout": 10,
    "socket_connect_timeout": 3,
    # A nudge that finds no broker is given up at once, not after seconds in which
    # a page hangs. (Workers and beat reconnect by rules of their own.)
    "max_retries": 0,
}

# Live pages: announcements reach the websockets of every console process.
CHANNEL_LAYERS: dict[str, Any] = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": REDIS_URL, "socket_connect_timeout": 1}]},
    }
}

# Language and time ---------------------------------------------------------

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]
LANGUAGE_COOKIE_NAME = "sluice_language"
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"
PRODUCT_TAGLINE = _("Admin console and gateway for inference clusters")

# Static files --------------------------------------------------------------

CSRF_FAILURE_VIEW = "console.pages.failures.form_refused"
STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "console.plotly_files.PlotlyFinder",
]
STORAGES = {
    "staticfiles": {"BACKEND": "console.storage.StaticFiles"},
}

# Logging -------------------------------------------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "console.logs.JsonFormatter"}},
    "filters": {"request_id": {"()": "console.request_id.RequestIdFilter"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "json",
            "filters": ["request_id"],
        }
    },
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "httpx": {"level": "WARNING"},
        "django.server": {"level": "WARNING"},
        # A line for each of a few tasks a second says nothing.
        "celery.app.trace": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        # It says every second that Redis is away; /readyz and the pages do as well.
        "channels_redis": {"level": "CRITICAL"},
    },
}
