"""settings.py in processes of its own: sentences instead of tracebacks, and safe values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.server.ops.running import REPOSITORY
from tests.waiting import PATIENCE

GOOD = {
    "SECRET_KEY": "r4nd0m-bits-" * 5,
    "ENCRYPTION_KEY": "dGVzdHMtb25seS10ZXN0cy1vbmx5LXRlc3RzLW9ubHk=",
    "ALLOWED_HOSTS": "kvaudit.example.org",
    "DATABASE_URL": "postgres://app@127.0.0.1:1/kvaudit",
    "BROKER_URL": "redis://127.0.0.1:1/0",
}


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "kvaudit.settings"} | variables
    return subprocess.run(
        [sys.executable, *code.split(" ", 1)] if code.startswith("-m") else [sys.executable, "-c", code],
        env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip


def settings(*names: str, **variables: str) -> dict[str, Any]:
    code = f"import json, kvaudit.settings as s; print(json.dumps({{n: getattr(s, n) for n in {names!r}}}))"
    done = run(code, **GOOD | variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "command",
    [
        "import django; django.setup()",
        "import kvaudit.wsgi",
        "import kvaudit.celery as c; c.app.conf.broker_url; import django; django.setup()",
        "import sys; sys.argv = ['manage.py', 'check']; import runpy; runpy.run_path('manage.py', run_name='__main__')",
    ],
)
def test_nothing_starts_without_its_variables(command: str) -> None:
    done = run(command, KVAUDIT_STATE="/nonexistent")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for name in GOOD:
        assert f"kvaudit: {name} is not set" in done.stderr


def test_gunicorn_and_celery_end_with_the_sentence() -> None:
    bad = GOOD | {"ALLOWED_HOSTS": "*", "KVAUDIT_PORT": "0"}
    for module in ("gunicorn", "celery"):
        options = {
            "gunicorn": ["-c", "python:kvaudit.server.ops.gunicorn_conf"],
            "celery": ["-A", "kvaudit.celery", "worker"],
        }
        done = subprocess.run(
            [sys.executable, "-m", module, *options[module]],
            env={"PATH": os.environ["PATH"]} | bad,
            cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=2 * PATIENCE,
        )  # fmt: skip
        assert done.returncode != 0
        assert "kvaudit: ALLOWED_HOSTS must not be '*'" in done.stderr, module


def test_over_https_cookies_and_transport_are_strict() -> None:
    names = ("SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE", "SECURE_HSTS_SECONDS", "CSRF_TRUSTED_ORIGINS")
    found = settings(*names, KVAUDIT_BASE_URL="https://kvaudit.example.org/")
    assert found["SESSION_COOKIE_SECURE"]
    assert found["CSRF_COOKIE_SECURE"]
    assert found["SECURE_HSTS_SECONDS"] > 0
    assert found["CSRF_TRUSTED_ORIGINS"] == ["https://kvaudit.example.org"]


def test_a_proxy_is_believed_only_when_somebody_says_that_there_is_one() -> None:
    base = {"KVAUDIT_BASE_URL": "https://kvaudit.example.org"}
    assert settings("SECURE_PROXY_SSL_HEADER", **base)["SECURE_PROXY_SSL_HEADER"] is None
    told = settings("SECURE_PROXY_SSL_HEADER", "SECURE_SSL_REDIRECT", **base, TRUST_PROXY_HEADERS="1")
    assert told == {
        "SECURE_PROXY_SSL_HEADER": ["HTTP_X_FORWARDED_PROTO", "https"],
        "SECURE_SSL_REDIRECT": True,
    }


def test_debug_is_off_and_the_database_is_postgres() -> None:
    found = settings("DEBUG", "DATABASES", "USE_TZ", "TIME_ZONE", "DATABASE_OWNER_URL")
    assert found["DEBUG"] is False
    assert found["USE_TZ"] is True
    assert found["TIME_ZONE"] == "UTC"
    assert list(found["DATABASES"]) == ["default"]
    assert found["DATABASES"]["default"]["ENGINE"] == "django.db.backends.postgresql"
    assert found["DATABASE_OWNER_URL"] == ""


def test_a_lost_message_comes_back_and_a_running_task_never_twice() -> None:
    found = settings(
        "CELERY_BROKER_TRANSPORT_OPTIONS", "CELERY_TASK_TIME_LIMIT", "CELERY_TASK_SOFT_TIME_LIMIT",
        "CELERY_TASK_ACKS_LATE",
        "CELERY_TASK_REJECT_ON_WORKER_LOST", "CELERY_WORKER_PREFETCH_MULTIPLIER", "CELERY_RESULT_BACKEND",
    )  # fmt: skip
    transport = found["CELERY_BROKER_TRANSPORT_OPTIONS"]
    assert (
        transport["visibility_timeout"]
        > found["CELERY_TASK_TIME_LIMIT"]
        > found["CELERY_TASK_SOFT_TIME_LIMIT"]
    )
    assert (transport["unacked_restore_interval"], transport["unacked_restore_throttle"]) == (5, 1)
    assert found["CELERY_TASK_ACKS_LATE"]
    assert found["CELERY_TASK_REJECT_ON_WORKER_LOST"]
    assert found["CELERY_WORKER_PREFETCH_MULTIPLIER"] == 1
    assert found["CELERY_RESULT_BACKEND"] is None


def test_beat_rings_every_task_that_exists() -> None:
    from django.conf import settings as loaded

    from kvaudit.celery import app

    app.loader.import_default_modules()
    for entry in loaded.CELERY_BEAT_SCHEDULE.values():
        assert entry["task"] in app.tasks
        # A worker whose clock is wrong would drop what expires (decision 10).
        assert "expires" not in entry["options"]


def test_the_scheduler_s_numbers_come_from_the_environment() -> None:
    assert settings("AUDIT_LEASE_SECONDS", AUDIT_LEASE_SECONDS="4") == {"AUDIT_LEASE_SECONDS": 4.0}
