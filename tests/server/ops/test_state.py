"""The state folder: lock, secrets, logs, and the environment that manage.py finds."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kvaudit.server.ops.environment import Environment
from kvaudit.server.ops.state import State, StateFault, adopt_local_environment, default_state


def test_secrets_are_made_once_readable_by_their_owner_and_good_enough(tmp_path: Path) -> None:
    state = State(tmp_path / "var")
    made = {name: state.secret(name).read_text() for name in ("secret_key", "encryption_key")}
    for name in made:
        assert stat.S_IMODE(state.secret(name).stat().st_mode) == 0o600
    assert stat.S_IMODE(state.secrets.stat().st_mode) == 0o700
    again = State(tmp_path / "var")
    assert made == {name: again.secret(name).read_text() for name in made}
    environment = Environment({"SECRET_KEY": made["secret_key"], "ENCRYPTION_KEY": made["encryption_key"]})
    environment.secret_key()
    environment.encryption_keys()
    environment.finish()


def test_one_state_has_one_holder(tmp_path: Path) -> None:
    first, second = State(tmp_path / "var"), State(tmp_path / "var")
    first.lock()
    with pytest.raises(StateFault, match=f"process {os.getpid()}"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateFault, match=r"cannot be written \(not a directory\).*KVAUDIT_STATE"):
        State(tmp_path / "file" / "var")


def test_an_overlong_log_is_put_aside(tmp_path: Path) -> None:
    state = State(tmp_path / "var")
    with (state.logs / "web.log").open("wb") as file:
        file.truncate(20_000_001)
    with state.open_log("web") as log:
        log.write(b"new\n")
    assert (state.logs / "web.log").read_bytes() == b"new\n"
    assert (state.logs / "web.log.old").stat().st_size == 20_000_001


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder whose environment names a database and a secret."""
    state = State(tmp_path / "var")
    state.write_local_environment(
        {"DATABASE_URL": "postgres://a@b/c", "SECRET_KEY_FILE": "/s", "ALLOWED_HOSTS": "x=y"}
    )
    monkeypatch.setenv("KVAUDIT_STATE", str(state.folder))
    for name in ("DATABASE_URL", "DATABASE_URL_FILE", "SECRET_KEY", "SECRET_KEY_FILE", "ALLOWED_HOSTS"):
        monkeypatch.setenv(name, "")  # so that what the test sets is undone
        monkeypatch.delenv(name)
    return state.folder


def test_manage_finds_the_servers_of_this_machine(local: Path) -> None:
    assert default_state() == local
    adopt_local_environment()
    assert os.environ["DATABASE_URL"] == "postgres://a@b/c"
    assert os.environ["SECRET_KEY_FILE"] == "/s"
    assert os.environ["ALLOWED_HOSTS"] == "x=y"


def test_what_is_set_stays(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "mine")
    adopt_local_environment()
    assert "SECRET_KEY_FILE" not in os.environ
    monkeypatch.setenv("DATABASE_URL", "postgres://other@h/d")
    monkeypatch.delenv("ALLOWED_HOSTS")
    adopt_local_environment()
    assert "ALLOWED_HOSTS" not in os.environ, "somebody else's database: nothing of ours is mixed in"


def test_without_a_state_folder_nothing_happens(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVAUDIT_STATE", str(local / "none"))
    adopt_local_environment()
    assert "DATABASE_URL" not in os.environ
