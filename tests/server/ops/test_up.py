"""The whole product as real processes: it starts, heals, stops, and leaves nothing behind.

One life with ``make test``; deaths, interruptions and other ways to start with ``make drill``.
"""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import socket
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kvaudit.server.ops.up import UpFault, listen
from tests.server.ops.running import (
    REPOSITORY,
    Up,
    clean_environment,
    free_port,
    members,
    new_state,
    status_of,
)
from tests.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes through /proc"),
]

drill = pytest.mark.drill
Start = Callable[..., Up]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `Up`s and destroys them after the test."""
    started: list[Up] = []

    def begin(state: Path, port: int, **options: object) -> Up:
        started.append(Up(state, port, **options))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for up in reversed(started):
        up.destroy()


def connect(up: Up, role: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(host=str(up.state / "run" / "pg"), user=role, dbname="kvaudit", autocommit=True)


def nothing_left(groups: dict[str, int]) -> bool:
    return not any(members(group) for group in groups.values())


def test_one_life(start: Start) -> None:
    """From an empty folder to answers, through the death of each child, to a clean stop."""
    up = start(new_state(), free_port())
    password = up.ready()
    assert len(password) >= 15
    for probe in ("/healthz", "/readyz", "/metrics"):
        assert status_of(up.url + probe) == 200, probe
    groups = up.groups()
    assert set(groups) == {"postgres", "valkey", "web", "worker-passive", "worker-active", "beat"}

    # Secrets are readable by their owner only, and in none of the logs.
    for name in ("secret_key", "encryption_key", "seal_private_key"):
        path = up.state / "secrets" / name
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_text().strip() not in up.logs()
    assert password not in up.logs()

    # Everybody seals, the web alone opens.
    for name in ("web", "worker-passive", "worker-active", "beat"):
        environment = Path(f"/proc/{groups[name]}/environ").read_bytes()
        assert b"SEAL_PUBLIC_KEY=" in environment
        assert (b"SEAL_PRIVATE_KEY_FILE=" in environment) == (name == "web"), name
    assert "SEAL_PRIVATE" not in (up.state / "local.env").read_text()

    # The database never runs as root.
    assert Path(f"/proc/{groups['postgres']}").stat().st_uid != 0 or os.geteuid() != 0
    if os.geteuid() == 0:
        assert Path(f"/proc/{groups['postgres']}").stat().st_uid != 0

    # The application's role writes rows but neither tables nor the past.
    with connect(up, "kvaudit_app") as connection:
        assert connection.execute("SELECT count(*) FROM ledger_entry").fetchone()
        for forbidden in (
            "UPDATE ledger_entry SET kind = 'x'",
            "DELETE FROM ledger_entry",
            "CREATE TABLE mine ()",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden.encode())

    # A second start of the same, and one of another on the same port, are refused in one sentence.
    same = start(up.state, free_port())
    assert same.ended() == 3
    assert f"kvaudit already runs on {up.state} (process {up.process.pid})" in same.said()
    other = start(new_state(), up.port)
    assert other.ended() == 3
    assert f"Port {up.port} on 127.0.0.1 is taken" in other.said()
    assert "KVAUDIT_PORT=" in other.said()
    assert not (other.state / "pgdata").exists(), "the port is looked at before servers start"

    # Each child that dies is started again, and it is said.
    for name in ("web", "valkey", "postgres", "worker-passive"):
        os.killpg(up.groups()[name], signal.SIGKILL)
        until(lambda name=name: f"{name} started again" in up.said(), f"{name} started again", about=up.said)
        until(lambda: status_of(up.url + "/readyz") == 200, f"ready after the death of {name}", about=up.said)
        assert f"{name} was ended by SIGKILL; starting it again in 1 s" in up.said()

    groups |= up.groups()
    up.process.send_signal(signal.SIGTERM)
    assert up.ended() == 0
    assert nothing_left(groups)
    assert up.said().rstrip().endswith("stopped")
    assert status_of(up.url + "/healthz") == 0


@drill
def test_kill_minus_nine_leaves_nothing_and_the_next_start_recovers(start: Start) -> None:
    """The supervisor under make dies without a word; the next start finds all data."""
    state, port = new_state(), free_port()
    first = start(state, port, under_make=True)
    first.ready()
    groups = first.groups()
    with connect(first, "kvaudit_owner") as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    os.killpg(first.process.pid, signal.SIGKILL)
    first.process.wait()
    until(lambda: nothing_left(groups), "all children ended with their parent")

    second = start(state, port, under_make=True, KVAUDIT_ADMIN_PASSWORD="correct horse battery staple")
    assert second.ready() == "correct horse battery staple"
    with connect(second, "kvaudit_owner") as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
        hashed = connection.execute("SELECT password FROM accounts_user WHERE username = 'admin'").fetchone()
    from django.contrib.auth.hashers import check_password

    assert hashed
    assert check_password("correct horse battery staple", str(hashed[0]))

    # Interrupting make alone is enough: it passes nothing on and waits for us.
    groups = second.groups()
    second.process.send_signal(signal.SIGINT)
    second.ended()
    assert nothing_left(groups)

    # The account is not touched without being asked to; the old password is not known any more.
    third = start(state, port, under_make=True)
    assert third.ready() == "(unchanged)"

    # make killed with -9, and nothing else: its death alone stops us, in order.
    groups = third.groups()
    third.process.kill()
    third.process.wait()
    until(
        lambda: nothing_left(groups) and third.said().rstrip().endswith("stopped"), "an end", about=third.said
    )


@drill
def test_servers_of_one_s_own_replace_the_embedded_ones(
    start: Start, postgres_cluster: Any, valkey: str
) -> None:
    """DATABASE_URL and BROKER_URL, as in docker-compose.yml; the owner's URL reaches the initialiser only."""
    name = f"up_{secrets.token_hex(4)}"
    owner = {"host": str(postgres_cluster.server.socket), "user": "kvaudit_owner", "autocommit": True}
    with psycopg.connect(dbname="postgres", **owner) as server:
        server.execute(f"CREATE DATABASE {name}".encode())
    up = start(
        new_state(),
        free_port(),
        DATABASE_URL=postgres_cluster.url(f"{name}_app", name),
        DATABASE_OWNER_URL=postgres_cluster.url("kvaudit_owner", name),
        BROKER_URL=valkey,
    )
    up.ready()
    groups = up.groups()
    assert set(groups) == {"web", "worker-passive", "worker-active", "beat"}
    assert not (up.state / "pgdata").exists()
    for group in groups.values():
        environment = Path(f"/proc/{group}/environ").read_bytes()
        assert b"DATABASE_URL=" in environment
        assert b"DATABASE_OWNER_URL" not in environment
    up.process.send_signal(signal.SIGTERM)
    assert up.ended() == 0
    assert nothing_left(groups)
    with psycopg.connect(dbname="postgres", **owner) as server:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@drill
def test_the_lab_fleet_is_there_and_audited_at_once(start: Start) -> None:
    """What somebody new sees in the first minutes: a leak found by prompts, and a fleet that others may retire."""
    up = start(new_state(), free_port(), lab=True)
    up.ready()
    verdicts = """SELECT d.slug, r.verdict, r.severity FROM audits_result r
        JOIN fleet_deployment d ON d.id = r.deployment_id WHERE r.check_id = %s"""

    def concluded(check: str) -> dict[object, tuple[object, ...]]:
        with connect(up, "kvaudit_owner") as connection:
            return {slug: rest for slug, *rest in connection.execute(verdicts, [check])}  # type: ignore[misc]

    until(lambda: len(concluded("rejection")) == 2, "both are asked", 3 * PATIENCE, about=up.logs)
    assert concluded("rejection") == {"lab-leaking": ["fail", "critical"], "lab-fixed": ["pass", ""]}
    everybody = {"lab-leaking", "lab-fixed", "lab-shifting"}
    until(lambda: set(concluded("pool")) == everybody, "all three are read", about=up.logs)
    with connect(up, "kvaudit_owner") as connection:
        connection.execute("UPDATE fleet_deployment SET retired_at = now() WHERE slug = 'lab-shifting'")
    up.process.send_signal(signal.SIGTERM)
    assert up.ended() == 0

    again = start(up.state, up.port, lab=True)
    again.ready()
    assert "lab fleet: known already" in again.said()
    with connect(again, "kvaudit_owner") as connection:
        retired = connection.execute("SELECT slug FROM fleet_deployment WHERE retired_at IS NOT NULL")
        assert retired.fetchall() == [("lab-shifting",)]


def begun(up: Up) -> dict[str, int]:
    """Process groups of the children that were started so far."""
    try:
        return up.groups()
    except (OSError, ValueError):
        return {}


@drill
@pytest.mark.parametrize(
    ("when", "reached"),
    [
        ("at once", lambda up: True),
        ("the database starts", lambda up: "postgres" in begun(up)),
        ("the database is prepared", lambda up: "database prepared" in up.said()),
        ("the web starts", lambda up: "web" in begun(up)),
    ],
)
def test_interrupted_while_starting(start: Start, when: str, reached: Callable[[Up], bool]) -> None:
    up = start(new_state(), free_port())
    until(lambda: (up.state / "up.lock").exists() and reached(up), when, about=up.said)
    groups = begun(up)
    up.process.send_signal(signal.SIGINT)
    assert up.ended() == 0, up.said()
    assert nothing_left(groups | {"up": up.process.pid})
    assert "Traceback" not in up.said()


@drill
def test_a_password_that_nobody_saw_is_shown_by_the_next_start(start: Start) -> None:
    state, port = new_state(), free_port()
    first = start(state, port)
    until(lambda: "database prepared" in first.said(), "prepared", about=first.said)
    first.process.send_signal(signal.SIGINT)
    assert first.ended() == 0
    assert "ready" not in first.said()
    second = start(state, port)
    password = second.ready()
    with connect(second, "kvaudit_owner") as connection:
        hashed = connection.execute("SELECT password FROM accounts_user WHERE username = 'admin'").fetchone()
    from django.contrib.auth.hashers import check_password

    assert hashed
    assert check_password(password, str(hashed[0]))
    assert not (state / "secrets" / "unseen_password").exists()


def test_an_unsafe_environment_is_refused_before_anything_starts(start: Start) -> None:
    up = start(new_state(), free_port(), DATABASE_URL="sqlite:///db.sqlite3")
    assert up.ended() == 3
    assert "DATABASE_URL must be a URL like postgres://" in up.said()
    assert "DATABASE_OWNER_URL is not set" in up.said()
    assert "Traceback" not in up.said()


@pytest.mark.parametrize("port", ["http", "0", "70000", "-1", "８０００"])
def test_a_port_that_is_none_is_a_sentence(start: Start, port: str) -> None:
    up = start(new_state(), free_port(), KVAUDIT_PORT=port)
    assert up.ended() == 3
    assert f"KVAUDIT_PORT must be a number from 1 to 65535, not {port!r}." in up.said()


@drill
def test_of_two_starts_on_one_port_in_one_moment_one_is_refused_at_once(start: Start) -> None:
    port = free_port()
    both = [start(new_state(), port), start(new_state(), port)]
    until(lambda: any(up.process.poll() is not None for up in both), "one of them ends")
    refused, other = sorted(both, key=lambda up: up.process.poll() is None)
    assert refused.ended() == 3
    assert f"Port {port} on 127.0.0.1 is taken" in refused.said()
    assert "ready" not in refused.said()
    other.ready()


def test_the_port_is_taken_from_the_first_moment_and_by_nobody_else() -> None:
    with listen("127.0.0.1", free_port()) as first:
        port = first.getsockname()[1]
        with pytest.raises(UpFault, match=f"Port {port} on 127.0.0.1 is taken"):
            listen("127.0.0.1", port)
    listen("127.0.0.1", port).close()
    with pytest.raises(UpFault, match=r"kvaudit cannot listen on 192\.0\.2\.1"):
        listen("192.0.2.1", port)


def test_a_port_taken_by_another_program(start: Start) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        up = start(new_state(), holder.getsockname()[1])
        assert up.ended() == 3
    assert f"Port {up.port} on 127.0.0.1 is taken by another program" in up.said()
    assert "Traceback" not in up.said()


def ordinary_python() -> list[str]:
    """A Python of our version that an ordinary user may run, with our packages."""
    here = Path(sys.executable).resolve()
    candidates = [here, Path(f"/usr/bin/python3.{sys.version_info.minor}")]
    for candidate in candidates:
        folders = [
            *candidate.parents,
            *Path(sysconfig.get_path("purelib")).parents,
            *REPOSITORY.parents,
            REPOSITORY,
        ]
        if candidate.exists() and all(folder.stat().st_mode & 0o005 == 0o005 for folder in folders):
            return [str(candidate)]
    return []


@drill
@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
def test_as_an_ordinary_user(start: Start) -> None:
    """Started by root in all other tests, here by nobody: every process is nobody's."""
    python = ordinary_python()
    if not python:
        pytest.skip("no Python of this version that an ordinary user may run")
    user = pwd.getpwnam("nobody")
    state = new_state()
    os.chown(state.parent, user.pw_uid, user.pw_gid)
    drop = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    search = os.pathsep.join([str(REPOSITORY), sysconfig.get_path("purelib")])
    assert "PYTHONPATH" not in clean_environment()
    up = start(state, free_port(), prefix=(*drop, *python), PYTHONPATH=search, HOME="/nonexistent")
    up.ready()
    groups = up.groups()
    for group in groups.values():
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in members(group)} == {user.pw_uid}
    up.process.send_signal(signal.SIGTERM)
    assert up.ended() == 0
    assert nothing_left(groups)
