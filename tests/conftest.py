"""What every test stands on: the environment of settings.py, one PostgreSQL for the session, no network.

Django is set up before collection, with variables written here and nowhere else. The server starts
when the first test asks for a database (at once under xdist, whose workers share it); each worker
has a database of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from kvaudit.server.ops import embedded
from kvaudit.server.ops.process import Child
from tests.order import slowest_first
from tests.waiting import until

STATE_VARIABLE = "KVAUDIT_TEST_STATE"

hypothesis_settings.register_profile(
    "kvaudit", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
hypothesis_settings.load_profile("kvaudit")


class Cluster:
    """The session's PostgreSQL, in a folder that goes with it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        # Durability buys a test nothing and costs most of its time.
        self.server = embedded.Postgres(
            state, ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
        )
        self.child: Child | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        if self.child:
            return
        self.server.initialise()
        log_path = self.state / "postgres.log"
        with log_path.open("ab") as log:
            self.child = Child("postgres", lambda: self.server.start(log), grace=20, log_path=log_path)
            self.child.start()
        self.wait()

    def wait(self) -> None:
        """Wait until it answers."""

        def answers() -> bool:
            if self.child and not self.child.alive():
                raise RuntimeError(f"PostgreSQL does not start: {self.child.last_words()}")
            return self.server.ready()

        until(answers, "PostgreSQL answers", about=lambda: self.child and self.child.last_words(), pause=0.02)

    def url(self, role: str = embedded.OWNER_ROLE, database: str = embedded.DATABASE) -> str:
        """A database URL for ``role``."""
        return self.server.url(role, database)

    def stop(self) -> None:
        """Stop it and remove its folder."""
        if self.child:
            self.child.stop()
        shutil.rmtree(self.server.folder, ignore_errors=True)
        shutil.rmtree(self.server.socket, ignore_errors=True)
        shutil.rmtree(self.state, ignore_errors=True)


def _is_xdist_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


def _new_state() -> Path:
    state = Path(tempfile.mkdtemp(prefix="kvaudit-tests-"))
    state.chmod(0o755)  # as root, PostgreSQL's ordinary user must pass
    return state


_state = Path(os.environ[STATE_VARIABLE]) if _is_xdist_worker() else _new_state()
os.environ[STATE_VARIABLE] = str(_state)
(_state / "static").mkdir(exist_ok=True)  # whitenoise warns about a missing folder
_cluster = Cluster(_state)

_VARIABLES = {
    "DJANGO_SETTINGS_MODULE": "kvaudit.settings",
    "SECRET_KEY": "only-for-tests-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEF",
    "ENCRYPTION_KEY": "dGVzdHMtb25seS10ZXN0cy1vbmx5LXRlc3RzLW9ubHk=",
    "ALLOWED_HOSTS": "127.0.0.1,localhost,testserver",
    "KVAUDIT_BASE_URL": "http://testserver",
    "DATABASE_URL": _cluster.url(),
    "DATABASE_OWNER_URL": _cluster.url(),
    "BROKER_URL": f"redis+socket://{_state}/valkey-not-started.sock",
    "EMAIL_BACKEND": "django.core.mail.backends.locmem.EmailBackend",
    "EGRESS_ALLOW": "127.0.0.0/8,[::1]",  # the servers of our tests listen there
    "STATIC_ROOT": str(_state / "static"),
    "LOG_LEVEL": "WARNING",
}
# What the shell of whoever runs the tests holds for a kvaudit of their own must not reach ours.
_NOT_OURS = (
    "ENCRYPTION_KEYS",
    "DEBUG",
    "METRICS_TOKEN",
    "BEAT_SECONDS",
    "EGRESS_DENY",
    "EGRESS_LAB_FILE",
    "KVAUDIT_PG_BIN",
    "KVAUDIT_TLS_FOLDER",
    "LEDGER_HEAD_FILE",
    "TRUST_PROXY_HEADERS",
    "CSRF_TRUSTED_ORIGINS",
)
for _name in (
    *_VARIABLES,
    *_NOT_OURS,
    "KVAUDIT_STATE",
    "KVAUDIT_PORT",
    "KVAUDIT_HOST",
    "KVAUDIT_ADMIN_PASSWORD",
):
    os.environ.pop(_name, None)
    os.environ.pop(f"{_name}_FILE", None)
os.environ.update(_VARIABLES)


def pytest_configure(config: pytest.Config) -> None:
    """Set Django up before any test module is imported; start the shared server when there are workers."""
    import django

    if not _is_xdist_worker() and getattr(config.option, "numprocesses", None):
        _cluster.start()
    django.setup()

    from django.conf import settings

    _flush_past_the_ledger()
    settings.PASSWORD_HASHERS = [
        "django.contrib.auth.hashers.MD5PasswordHasher",  # quick; the other reads what real processes made
        "django.contrib.auth.hashers.PBKDF2PasswordHasher",
    ]
    settings.STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After the shuffling and Django's own grouping."""
    slowest_first(items)


def _flush_past_the_ledger() -> None:
    """Tests with real transactions end by emptying all tables, which the ledger's trigger refuses.

    Django's way costs half a second a test: TRUNCATE makes new files for every table, and what migrations put into
    these three is made anew. A DELETE of a few rows costs nothing, and the three stay.
    """
    from django.core.management.commands import flush
    from django.db.backends.postgresql.operations import DatabaseOperations

    kept = {"auth_group", "auth_permission", "django_content_type"}

    def sql_flush(self: Any, style: object, tables: list[str], **options: object) -> list[str]:
        deletes = [f"DELETE FROM {self.quote_name(table)}" for table in tables if table not in kept]
        return ["; ".join(["SET LOCAL session_replication_role = replica", *deletes])]

    DatabaseOperations.sql_flush = sql_flush
    flush.emit_post_migrate_signal = lambda *args, **options: None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server with the session that started it."""
    if not _is_xdist_worker():
        _cluster.stop()


@pytest.fixture(scope="session")
def postgres_cluster() -> Cluster:
    """The session's PostgreSQL, running; every xdist worker sees the same one."""
    if _is_xdist_worker():
        _cluster.wait()
    else:
        _cluster.start()
    return _cluster


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """The cluster is the session's own and goes with it: nothing is dropped, so that a connection
    which some server thread still holds at the end is no error of a test."""
    return True


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    postgres_cluster: Cluster, django_db_modify_db_settings_parallel_suffix: Any
) -> None:
    """Before pytest-django makes the worker's database, the server must run."""


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], timedelta]:
    """The tests' database runs on this machine, so its time is ours: a test that compares moments need not
    reckon with the milliseconds of a round trip. Gives what it stands in for."""
    from kvaudit.server import clock

    asks = clock.set_by_database
    monkeypatch.setattr(clock, "_anchor", None)
    monkeypatch.setattr(clock, "set_by_database", lambda: timedelta(0))
    return asks


@pytest.fixture
def machine(
    monkeypatch: pytest.MonkeyPatch, one_clock: Callable[[], timedelta]
) -> Callable[[timedelta], timedelta]:
    """``machine(off)``: from now on this process runs on a machine whose clock is that far off, and has just
    asked the database for the time; gives the skew that it found. Django's own clock is the machine's."""
    from django.utils import timezone

    from kvaudit.server import clock

    monkeypatch.setattr(clock, "set_by_database", one_clock)

    def run_on(off: timedelta) -> timedelta:
        monkeypatch.setattr(clock, "_machine", lambda: datetime.now(UTC) + off)
        monkeypatch.setattr(timezone, "now", lambda: datetime.now(UTC) + off)
        monkeypatch.setattr(clock, "_anchor", None)
        return clock.set_by_database()

    return run_on


@pytest.fixture
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of one's own, running; gives its URL."""
    state = _new_state()
    server = embedded.Valkey(state)
    with (state / "valkey.log").open("ab") as log, contextlib.ExitStack() as stack:
        child = Child("valkey", lambda: server.start(log), grace=10)
        child.start()
        stack.callback(shutil.rmtree, state, ignore_errors=True)
        stack.callback(child.stop)

        def answers() -> bool:
            assert child.alive(), child.exit_words()
            return server.ready()

        until(answers, "Valkey answers", pause=0.02)
        yield server.url()
