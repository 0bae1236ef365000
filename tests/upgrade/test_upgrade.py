"""An installation of the first release, with its data and its keys, started by this code.

What is asked is what somebody who upgrades would look for: nothing is lost, everything opens, the record is whole, plans
go on, and nothing runs twice. Formats may change between the releases and are not looked at.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from kvaudit.server.ops import embedded
from tests.server.ops.running import REPOSITORY, Up, clean_environment, free_port, new_state
from tests.upgrade import installation
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.drill

MAY_GROW = {
    "django_migrations": "of this release",
    "django_content_type": "of new models",
    "auth_permission": "of new models",
    "ledger_entry": "an upgrade may be recorded",
}
MAY_GO = {"django_session": "people log in again"}

Rows = dict[str, int]


def public_half(state: Path) -> str:
    from kvaudit.server.ops import own_variables

    return own_variables.public_half(state / "secrets" / "seal_private_key")


def counts(connection: psycopg.Connection[Any]) -> Rows:
    """Rows of every table."""
    names = [
        str(row[0])
        for row in connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        ).fetchall()
    ]
    return {
        name: connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name))).fetchone()[
            0
        ]  # type: ignore[index]
        for name in names
    }


RUNS = """SELECT id, state, verdict, attempt, tokens_spent, started_at, finished_at,
    (SELECT count(*) FROM audits_result WHERE run_id = run.id)
    FROM audits_run run WHERE state NOT IN ('queued', 'running') ORDER BY id"""
DUE = "SELECT series FROM audits_plan WHERE enabled AND valid_to IS NULL AND next_due < now()"
SENT = "SELECT id, sent_at FROM notify_outboxmessage WHERE sent_at IS NOT NULL ORDER BY id"


# A database in the server of the tests: what initialise makes of it, and every page on it


@pytest.fixture
def database(postgres_cluster: Any) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    name = f"upgrade_{os.getpid()}"
    installation.restore(postgres_cluster.server, name)
    with psycopg.connect(
        host=str(postgres_cluster.server.socket), user=embedded.OWNER_ROLE, dbname=name, autocommit=True
    ) as connection:
        yield name, connection
    with psycopg.connect(
        host=str(postgres_cluster.server.socket),
        user=embedded.OWNER_ROLE,
        dbname="postgres",
        autocommit=True,
    ) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def run(arguments: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False
    )


def test_nothing_is_lost_and_everything_opens(
    database: tuple[str, psycopg.Connection[Any]], postgres_cluster: Any, tmp_path: Path
) -> None:
    name, connection = database
    before = counts(connection)
    (tmp_path / "secrets").mkdir()
    for key in installation.KEYS:
        (tmp_path / "secrets" / key).write_bytes((installation.DATA / key).read_bytes())
    env = clean_environment() | {
        "DJANGO_SETTINGS_MODULE": "kvaudit.settings",
        "SECRET_KEY_FILE": str(tmp_path / "secrets" / "secret_key"),
        "ENCRYPTION_KEY_FILE": str(tmp_path / "secrets" / "encryption_key"),
        "SEAL_PRIVATE_KEY_FILE": str(tmp_path / "secrets" / "seal_private_key"),
        "SEAL_PUBLIC_KEY": public_half(tmp_path),
        "ALLOWED_HOSTS": "127.0.0.1",
        "KVAUDIT_BASE_URL": "http://127.0.0.1",
        "DATABASE_URL": postgres_cluster.url(embedded.APP_ROLE, name),
        "BROKER_URL": f"redis+socket://{tmp_path}/not-started.sock",
        "STATIC_ROOT": str(tmp_path / "static"),
        "LOG_LEVEL": "ERROR",
    }
    owner = env | {"DATABASE_OWNER_URL": postgres_cluster.url(embedded.OWNER_ROLE, name)}

    for _ in range(2):  # a second time, as after a start that was cut off
        done = run(["manage.py", "initialise", "--static"], owner)
        assert done.returncode == 0, done.stderr
        assert "password unchanged" in done.stdout
    after = counts(connection)
    changed = {
        table: (rows, after[table])
        for table, rows in before.items()
        if table in after and after[table] != rows and not (table in MAY_GROW and after[table] > rows)
    }
    assert {table: each for table, each in changed.items() if table not in MAY_GO} == {}
    assert set(before) - set(after) == set(), "tables that went, with what was in them"

    verified = run(["-m", "kvaudit.cli", "ledger", "verify"], env)
    assert verified.returncode == 0, verified.stdout + verified.stderr

    walked = run(["-m", "tests.upgrade.walk"], env)
    assert walked.returncode == 0, walked.stderr
    found = json.loads(walked.stdout.splitlines()[-1])
    assert found["login"] == 302
    opened = {kind for kind, addresses in found["pages"].items() if 200 in addresses.values()}
    wrong = {
        f"{kind} {address}": status
        for kind, addresses in found["pages"].items()
        for address, status in addresses.items()
        if status not in (200, 302, 405)
        and kind != "api:api-root"  # 405: takes a POST only; the root is no page
    }
    assert wrong == {}
    assert len(opened) > 60, sorted(opened)
    assert {
        "deployment",
        "figure",
        "run",
        "evidence",
        "plan",
        "incident",
        "waiver",
        "settings-channel",
    } <= opened
    assert found["sealed"]
    assert set(found["sealed"]) == {200}
    assert found["credentials"]["broken"] == {}
    assert found["credentials"]["opened"] >= 4

    verified = run(["-m", "kvaudit.cli", "ledger", "verify"], env)  # what was opened has been recorded
    assert verified.returncode == 0, verified.stdout + verified.stderr


# The state folder of `make up`, as that release left it


@dataclass
class Before:
    """What the release before had done when it was stopped."""

    state: Path
    ended: list[Any] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    due: set[Any] = field(default_factory=set)

    def look(self, connection: psycopg.Connection[Any]) -> None:
        self.ended = connection.execute(RUNS).fetchall()
        self.sent = connection.execute(SENT).fetchall()
        self.due = {row[0] for row in connection.execute(DUE).fetchall()}


@pytest.fixture
def before() -> Iterator[Before]:
    folder = new_state()
    folder.mkdir()
    found = Before(folder)
    installation.fill_release(folder, found.look)
    yield found
    shutil.rmtree(folder.parent, ignore_errors=True)


def connect(state: Path) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=str(state / "run" / "pg"), user=embedded.OWNER_ROLE, dbname=embedded.DATABASE, autocommit=True
    )


def log_in(url: str) -> urllib.request.OpenerDirector:
    """A visitor with the administrator's password of then."""
    jar = CookieJar()
    visitor = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar)
    )
    with visitor.open(url + "/login/", timeout=PATIENCE) as page:
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.read().decode())
    assert token
    form = {
        "csrfmiddlewaretoken": token[1],
        "username": installation.ADMIN,
        "password": installation.PASSWORD,
    }
    request = urllib.request.Request(
        url + "/login/", urllib.parse.urlencode(form).encode(), headers={"Referer": url + "/login/"}
    )
    with visitor.open(request, timeout=PATIENCE) as page:
        assert "Log out" in page.read().decode()
    return visitor


def test_make_up_goes_on_where_the_release_before_stopped(before: Before) -> None:
    state, newest = before.state, max(int(row[0]) for row in before.ended)
    assert before.due, "the dump is older than an hour, and its plans are hourly"
    up = Up(state, free_port(), BEAT_SECONDS="1", AUDIT_LEASE_SECONDS="120")
    try:
        assert up.ready() == "(unchanged)"

        visitor = log_in(up.url)
        with visitor.open(up.url + "/", timeout=PATIENCE) as page:
            shown = page.read().decode()
        for slug in ("lab-leaking", "own-a"):
            assert slug in shown
        sheet = re.search(r'href="(/static/css/kvaudit\.[0-9a-f]+\.css)"', shown)
        assert sheet
        request = urllib.request.Request(up.url + sheet[1], headers={"Accept-Encoding": "br, gzip"})
        with visitor.open(request, timeout=PATIENCE) as answer:
            assert answer.headers["Content-Encoding"] == "br"
            assert "immutable" in answer.headers["Cache-Control"]
        assert not (state / "static" / "plotly" / "plotly.min.js").exists(), "what then lay there is gone"

        with connect(state) as connection:

            def gone_on() -> bool:
                """Each plan that was due has been dispatched, and what it started has ended."""
                waiting = {row[0] for row in connection.execute(DUE).fetchall()}
                new = connection.execute(
                    "SELECT plan.series, run.state FROM audits_run run JOIN audits_plan plan ON plan.id = run.plan_id"
                    " WHERE run.id > %s AND run.slot IS NOT NULL",
                    [newest],
                ).fetchall()
                finished = {series for series, now in new if now == "finished"}
                return not waiting & before.due and before.due <= finished

            until(
                gone_on,
                "the plans that were due have run",
                2 * PATIENCE,
                about=lambda: up.said() + up.logs(),
            )
            known = {row[0] for row in before.ended}
            again = [row for row in connection.execute(RUNS).fetchall() if row[0] in known]
            assert again == before.ended, "a run that had ended has changed"
            assert [row for row in connection.execute(SENT).fetchall() if row in before.sent] == before.sent
            twice = connection.execute(
                "SELECT plan_id, deployment_id, slot FROM audits_run WHERE slot IS NOT NULL"
                " GROUP BY 1, 2, 3 HAVING count(*) > 1"
            ).fetchall()
            assert twice == []
            repeated = connection.execute(
                "SELECT run_id, check_id FROM audits_result WHERE run_id > %s GROUP BY 1, 2 HAVING count(*) > 1",
                [newest],
            ).fetchall()
            assert repeated == [], "a check ran twice in one run"

        verified = subprocess.run(
            [sys.executable, "-m", "kvaudit.cli", "ledger", "verify"],
            cwd=REPOSITORY,
            env=clean_environment() | {"KVAUDIT_STATE": str(state)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert verified.returncode == 0, verified.stdout + verified.stderr
    finally:
        up.destroy()
