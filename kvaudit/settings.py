"""Django settings, read from the environment alone (see `kvaudit.server.ops.environment`)."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import dj_database_url
from csp.constants import NONE, SELF

from kvaudit.server.ops.environment import Environment, EnvironmentFault
from kvaudit.server.ops.logs import configure_structlog, logging_config

BASE_DIR = Path(__file__).resolve().parent.parent


def _pages(name: str) -> Path:
    """Templates or static files: inside the package of a wheel (setup.py), beside it in a checkout."""
    inside = BASE_DIR / "kvaudit" / f"_{name}"
    return inside if inside.is_dir() else BASE_DIR / name


_env = Environment(os.environ)

SECRET_KEY = _env.secret_key()
SECRET_KEY_FALLBACKS = _env.names("SECRET_KEY_FALLBACKS")
ENCRYPTION_KEYS = _env.encryption_keys()
DEBUG = _env.flag("DEBUG")
ALLOWED_HOSTS = _env.allowed_hosts()
BASE_URL = _env.base_url()
CSRF_TRUSTED_ORIGINS = _env.names("CSRF_TRUSTED_ORIGINS") or [BASE_URL]

_database_url = _env.postgres_url("DATABASE_URL")
# The role of retention, which a process of its own runs as (`manage.py expire_evidence`); initialise makes it.
DATABASE_RETENTION_URL = _env.postgres_url("DATABASE_RETENTION_URL", required=False)
# Only `manage.py initialise` uses the owner: the product itself runs as a role that cannot alter tables.
DATABASE_OWNER_URL = _env.postgres_url("DATABASE_OWNER_URL", required=False)
_broker_url = _env.broker_url()
AUDIT_BEAT_SECONDS = _beat_seconds = _env.number("BEAT_SECONDS", 15, 0.2, 300)

EMAIL_HOST = _env.text("EMAIL_HOST", "localhost")
EMAIL_PORT = int(_env.number("EMAIL_PORT", 25, 1, 65535))
EMAIL_HOST_USER = _env.text("EMAIL_HOST_USER")
EMAIL_HOST_PASSWORD = _env.text("EMAIL_HOST_PASSWORD")
EMAIL_USE_TLS = _env.flag("EMAIL_USE_TLS")
EMAIL_USE_SSL = _env.flag("EMAIL_USE_SSL")
EMAIL_TIMEOUT = int(_env.number("EMAIL_TIMEOUT", 10, 1, 120))
EMAIL_BACKEND = _env.text("EMAIL_BACKEND", "django.core.mail.backends.smtp.EmailBackend")
DEFAULT_FROM_EMAIL = _env.text("DEFAULT_FROM_EMAIL", "kvaudit@localhost")

# Numbers of the scheduler (kvaudit.server.audits.options); set only where a default does not fit.
for _name in ("LEASE_SECONDS", "HEARTBEAT_SECONDS", "RING_AGAIN_SECONDS", "SHORTEST_EXPIRY_SECONDS",
              "RETRY_DELAY_SECONDS", "SHORTEST_OVERDUE_SECONDS"):  # fmt: skip
    if _env.text(f"AUDIT_{_name}"):
        globals()[f"AUDIT_{_name}"] = _env.number(f"AUDIT_{_name}", 0, 0.1, 86_400)

# Prompt tokens that one deployment may be sent within 24 hours; default 4 x max(20 million, 80 x context).
if _env.text("AUDIT_DAILY_PROMPT_TOKENS"):
    AUDIT_DAILY_PROMPT_TOKENS = _env.number("AUDIT_DAILY_PROMPT_TOKENS", 0, 0, 1e15)

# The folder of `kvaudit up`, so that pages and metrics can say how much room its disk has.
STATE_FOLDER = _env.text("STATE_FOLDER")

# The file outside the database that keeps the ledger's head, so that a rolled-back database is noticed.
LEDGER_HEAD_FILE = _env.text("LEDGER_HEAD_FILE")

# Where `kvaudit up --no-lab` looks whether somebody wishes for the lab fleet; nobody else sets it.
LAB_WISH_FILE = _env.text("LAB_WISH_FILE")

# Days that stored bodies of runs that did not fail are kept; 0 keeps them for good.
AUDIT_EVIDENCE_DAYS = _env.number("AUDIT_EVIDENCE_DAYS", 400, 0, 36_500)

# Where audits and webhooks may connect (kvaudit.auditor.transport.egress, installed by kvaudit.server.ops.egress).
EGRESS_ALLOW = _env.egress_rules("EGRESS_ALLOW")
EGRESS_DENY = _env.egress_rules("EGRESS_DENY")
# Written by `kvaudit up`, for its own children: the ports of its lab fleet, as long as it has one.
EGRESS_LAB_FILE = _env.text("EGRESS_LAB_FILE")
OWN_ENDPOINT = (_env.text("KVAUDIT_HOST"), int(_env.number("KVAUDIT_PORT", 0, 0, 65535)))
# The CA files and client certificates that nodes may name, in one folder for each team.
KVAUDIT_TLS_FOLDER = _env.folder("KVAUDIT_TLS_FOLDER")

# Text that models generated is kept sealed with the public key; workers never have the private one.
SEAL_PUBLIC_KEY = _env.seal_key("SEAL_PUBLIC_KEY")
SEAL_PRIVATE_KEY = _env.seal_key("SEAL_PRIVATE_KEY")

# How long somebody's word may stand in for a checklist item (kvaudit.server.checklists.time_limits).
WAIVER_LONGEST_DAYS = _env.number("WAIVER_LONGEST_DAYS", 90, 1, 366)
ATTESTATION_LONGEST_DAYS = _env.number("ATTESTATION_LONGEST_DAYS", 366, 1, 731)
EXPIRY_WARNING_DAYS = _env.number("EXPIRY_WARNING_DAYS", 14, 1, 90)

# A login ends after so long without use, and after so long in any case.
SESSION_IDLE = timedelta(hours=_env.number("SESSION_IDLE_HOURS", 12, 0.05, 24 * 30))
SESSION_LONGEST = timedelta(hours=_env.number("SESSION_LONGEST_HOURS", 24 * 7, 0.05, 24 * 90))

METRICS_TOKEN = _env.text("METRICS_TOKEN")
_trust_proxy = _env.flag("TRUST_PROXY_HEADERS")
_log_level = _env.text("LOG_LEVEL", "INFO").upper()
if _log_level not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
    _env.fault("LOG_LEVEL must be DEBUG, INFO, WARNING or ERROR.")
if EMAIL_USE_TLS and EMAIL_USE_SSL:
    _env.fault("EMAIL_USE_TLS and EMAIL_USE_SSL exclude each other: set one of them.")

try:
    _env.finish()
except EnvironmentFault as _fault:
    sys.exit("\n".join(f"kvaudit: {sentence}" for sentence in str(_fault).splitlines()))

# Apps ------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "csp",
    "django_htmx",
    "django.forms",  # its widgets' templates, of which ours replace one
    "ninja",  # its documentation assets then come from us, not from a CDN
    "kvaudit.server.accounts",
    "kvaudit.server.ledger",
    "kvaudit.server.fleet",
    "kvaudit.server.notify",
    "kvaudit.server.audits",
    "kvaudit.server.inquiries",
    "kvaudit.server.checklists",
    "kvaudit.server.incidents",
    "kvaudit.server.web",
    "kvaudit.server.api",
    "kvaudit.server.ops",
]

MIDDLEWARE = [
    "kvaudit.server.ops.probes.ProbesMiddleware",  # first: probes come by address, before host and TLS checks
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "kvaudit.server.web.kit.largest_body.LargestBody",  # before what reads bodies
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "kvaudit.server.web.account.session_use.SessionUse",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "kvaudit.urls"
WSGI_APPLICATION = "kvaudit.wsgi.application"

FORM_RENDERER = "django.forms.renderers.TemplatesSetting"

TEMPLATES = [
    {
        "BACKEND": "kvaudit.server.web.kit.rendering.Templates",
        "NAME": "django",
        "DIRS": [_pages("templates")],
        "APP_DIRS": True,
        "OPTIONS": {
            "libraries": {
                "kv": "kvaudit.server.web.kit.tags",
                "figures": "kvaudit.server.web.kit.figure_tags",
                "standings": "kvaudit.server.web.kit.parts.item_tags",
                "incidents": "kvaudit.server.web.kit.parts.incident_tags",
                "fleet": "kvaudit.server.web.fleet.tags",
                "compliance": "kvaudit.server.web.compliance.tags",
            },
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# Database --------------------------------------------------------------------------------------

DATABASES: dict[str, Any] = {
    "default": dj_database_url.parse(_database_url, conn_max_age=60, conn_health_checks=True),
}
DATABASES["default"].setdefault("OPTIONS", {}).setdefault("connect_timeout", 5)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Accounts --------------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

# Browser security ------------------------------------------------------------------------------

_https = BASE_URL.startswith("https://")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
SESSION_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "kvaudit.server.web.kit.kept_text.csrf_failure"
SESSION_ENGINE = "kvaudit.server.accounts.session_store"
SESSION_COOKIE_AGE = int(SESSION_LONGEST.total_seconds())
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_SSL_REDIRECT = _https and _trust_proxy
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
# Only a proxy that overwrites the header may be believed, so somebody has to say that there is one.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _trust_proxy else None
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        # plotly adds two style elements: an empty one, whose rules go in through the object model, and one
        # of its map library. Their hashes are computed anew by tests/server/web/test_plotly_assets.py.
        "style-src": [
            SELF,
            "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='",
            "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='",
        ],
        "img-src": [SELF, "data:", "blob:"],  # blob: a figure saved as a picture
        "connect-src": [SELF],
        "font-src": [SELF],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

# Static files ----------------------------------------------------------------------------------

STATIC_URL = "/static/"
STATIC_ROOT = Path(_env.text("STATIC_ROOT", str(BASE_DIR / "var" / "static")))
STATICFILES_DIRS = [_pages("static")]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
]
_static_storage = (
    "kvaudit.server.ops.static_files.CompressedStorage"
    if _env.flag("STATIC_COMPRESSED", default=True)
    else "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"
)
# Pages name no other: half to compress, and nothing that is not cached for good.
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": _static_storage},
}

# Time and language -----------------------------------------------------------------------------

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False

# Logs ------------------------------------------------------------------------------------------

LOGGING = logging_config(_log_level)
configure_structlog()

# Celery: every task option is here -------------------------------------------------------------

CELERY_BROKER_URL = _broker_url
CELERY_RESULT_BACKEND = None  # a Run row is the truth; a message of the broker only wakes a worker
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
CELERY_TASK_DEFAULT_QUEUE = "passive"
CELERY_TASK_CREATE_MISSING_QUEUES = True
CELERY_TASK_ACKS_LATE = True
# acks_late alone does not survive the death of a pool child (measured): the task was gone
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_SOFT_TIME_LIMIT = 1740  # seconds; the longest active set is budgeted well below
CELERY_TASK_TIME_LIMIT = 1800
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # Above the longest hard limit, or a running task is started a second time (measured).
    "visibility_timeout": 3600,
    # kombu sweeps only every 100 s by default; with these a lost message is back within seconds.
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "socket_connect_timeout": 5,
}


# What keeps everything going (dispatch, recovery, delivery) has a queue of its own that every worker serves:
# neither long active sets nor a pile of passive ones may hold it up. Workers serve `desk` as well, its name until
# 2026-12: beat of the release before has left messages there. To be dropped with the next release.
MAINTENANCE = "maintenance"


def _every(task: str, seconds: float) -> dict[str, Any]:
    return {"task": task, "schedule": seconds, "options": {"queue": MAINTENANCE}}


CELERY_BEAT_SCHEDULER = "kvaudit.celery:BeatScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 5
CELERY_BEAT_SCHEDULE = {
    "dispatch": _every("kvaudit.audits.tasks.dispatch", _beat_seconds),
    "recover": _every("kvaudit.audits.tasks.recover", _beat_seconds),
    "recover imports": _every("kvaudit.inquiries.tasks.recover", _beat_seconds),
    "deliver": _every("kvaudit.notify.tasks.deliver", _beat_seconds),
    "consume incidents": _every("kvaudit.incidents.tasks.consume", _beat_seconds),
    "warn of expiry": _every("kvaudit.checklists.tasks.warn_of_expiry", 3600),
    "verify ledger": _every("kvaudit.ledger.tasks.verify_when_due", 300),
    "note head of ledger": _every("kvaudit.ledger.tasks.note_head", 60),
    "notify of ledger": _every("kvaudit.notify.tasks.notify_of_ledger", 60),
    "count days": _every("kvaudit.checklists.tasks.count_days", 3600),
}
