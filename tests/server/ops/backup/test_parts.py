"""The parts of backups that need no database: the file, the manifest, the keys, the tools."""

from __future__ import annotations

import errno
import os
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kvaudit.server.ops.backup import archive, command, keys, pg_tools
from kvaudit.server.ops.backup.faults import BackupFault
from kvaudit.server.ops.backup.manifest import NO_KEY, TENANT_KEYS, Manifest
from kvaudit.server.ops.state import State
from tests.server.ops.running import REPOSITORY

DUMP = os.urandom(3_000_000)


def manifest(**changed: Any) -> Manifest:
    fields = {
        "made_at": "2026-12-01T12:00:00+00:00",
        "product": "0.1.0",
        "server_version": 18,
        "tool_version": 18,
        "migrations": ["fleet.0001_initial"],
        "head": {"sequence": 3, "hash": "a" * 64, "at": "2026-12-01T11:00:00+00:00"},
        "counts": {"ledger_entry": 3},
        "sealed": {TENANT_KEYS: {"k1": 2, "k2": 1, NO_KEY: 4}, "notify_channel.secret_sealed": {"k2": 5}},
        "keys": {"ENCRYPTION_KEYS": ["k1", "k2"]},
        "database_bytes": 1,
    } | changed
    return Manifest(**fields)


def written(path: Path) -> Path:
    def in_two(take: Callable[[bytes], None]) -> None:
        take(DUMP[:1_000])
        take(DUMP[1_000:])

    archive.write(path, manifest(), in_two)
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = archive.opened(written(tmp_path / "a"))
    assert found.manifest.head_sequence == 3
    assert found.manifest.dump_bytes == len(DUMP)
    with found.dump() as pieces:
        assert b"".join(pieces) == DUMP
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_an_empty_dump_is_a_file_too(tmp_path: Path) -> None:
    archive.write(tmp_path / "a", manifest(), lambda take: None)
    assert archive.opened(tmp_path / "a").manifest.dump_bytes == 0


def last_member(content: bytearray) -> int:
    return content.rindex(b"manifest.sha256")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.__setitem__(600, content[600] ^ 1),
        lambda content: content.__setitem__(3_000_000, content[3_000_000] ^ 1),
        lambda content: content.__setitem__(content.index(b'"product"') + 13, ord("9")),
        lambda content: content.__delitem__(slice(2_000_000, None)),
        lambda content: content.__delitem__(slice(content.rindex(b"manifest.json\0"), None)),
        lambda content: content.__delitem__(slice(content.rindex(b"manifest.json\0") + 700, None)),
        lambda content: content.__delitem__(slice(last_member(content), None)),
        lambda content: content.__delitem__(slice(10, None)),
        lambda content: content.__setitem__(slice(0, 512), bytes(512)),
        lambda content: content.clear(),
    ],
    ids=["dump begins", "dump ends", "manifest", "cut in dump", "cut before manifest", "cut in manifest",
         "cut before digest", "cut in header", "interrupted", "empty"],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[bytearray], None]) -> None:
    content = bytearray(written(tmp_path / "a").read_bytes())
    damage(content)
    (tmp_path / "b").write_bytes(content)
    with pytest.raises(BackupFault, match=r"is damaged|is not a backup"):
        archive.opened(tmp_path / "b")


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    for name, content in (("text", b"hello\n" * 500), ("dump", b"PGDMP" + bytes(5_000))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BackupFault, match=f"{name} is not a backup that kvaudit made"):
            archive.opened(tmp_path / name)
    with pytest.raises(BackupFault, match="dump of pg_dump alone"):
        archive.opened(tmp_path / "dump")
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(BackupFault, match="cannot be read"):
            archive.opened(missing)


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "full"), BackupFault("busy"), KeyboardInterrupt()])
def test_an_interrupted_backup_leaves_nothing(tmp_path: Path, fault: BaseException) -> None:
    def produce(take: Callable[[bytes], None]) -> None:
        take(b"half")
        raise fault

    with pytest.raises(type(fault)):
        archive.write(tmp_path / "a", manifest(), produce)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(BackupFault, match="is there already"):
        written(tmp_path / "a")

    def meanwhile(take: Callable[[bytes], None]) -> None:
        (tmp_path / "b").write_text("old")

    with pytest.raises(BackupFault, match="is there already"):
        archive.write(tmp_path / "b", manifest(), meanwhile)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"a": "old", "b": "old"}


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (["k1", "k2"], ""),
        (["k1", "k2", "k3"], ""),
        (
            ["k1"],
            "The credentials of 1 tenants and 5 other secrets would not open: they were sealed with key k2",
        ),
        (["k2"], "The credentials of 2 tenants and 0 other"),
        ([], "key k1 and k2"),
    ],
)
def test_missing_keys_are_counted(held: list[str], said: str) -> None:
    found = manifest().missing_keys(held)
    assert bool(found) == bool(said)
    assert said in found


def test_a_key_that_opens_nothing_any_more_is_not_missed() -> None:
    assert manifest(sealed={TENANT_KEYS: {"k2": 1}}).missing_keys(["k2"]) == ""


def test_what_was_not_counted_is_not_taken_for_none() -> None:
    assert "was not counted" in manifest(sealed=None).missing_keys(["k1"])
    assert manifest(sealed=None).missing_keys(["k1", "k2"]) == ""


def test_a_manifest_of_a_later_release_is_refused() -> None:
    with pytest.raises(BackupFault, match=r"'kvaudit.backup/2', and this release reads kvaudit.backup/1"):
        Manifest.from_json(manifest(schema="kvaudit.backup/2").as_json())
    for text in (b"{}", b"[]", b"", b'{"schema": "kvaudit.backup/1"}'):
        with pytest.raises(BackupFault, match="cannot be read"):
            Manifest.from_json(text)


def test_keys_are_kept_for_their_owner_and_named_without_showing(tmp_path: Path) -> None:
    keys.write(tmp_path / "keys", {"ENCRYPTION_KEYS": "one,two", "SECRET_KEY": "s=="})
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
    assert keys.read(tmp_path / "keys") == {"ENCRYPTION_KEYS": "one,two", "SECRET_KEY": "s=="}
    assert len(keys.key_id("one")) == 16
    assert keys.key_id("one") != keys.key_id("two")
    for text in ("", "hello", "PATH=/bin\nENCRYPTION_KEYS=x\n"):
        (tmp_path / "wrong").write_text(text)
        with pytest.raises(BackupFault, match="is not a file of keys"):
            keys.read(tmp_path / "wrong")


def test_a_replaced_key_is_put_aside(tmp_path: Path) -> None:
    state = State(tmp_path / "var")
    first = state.secret("encryption_key").read_text().strip()
    assert state.replace_secret("encryption_key", first) is None
    for number, (old, new) in enumerate([(first, "second"), ("second", "third")], start=1):
        aside = state.replace_secret("encryption_key", new)
        assert aside == state.secrets / f"encryption_key.before-{number}"
        assert aside.read_text().strip() == old
        assert state.secret("encryption_key").read_text().strip() == new
        assert state.secret("encryption_key").stat().st_mode & 0o777 == 0o600


def a_tool(folder: Path, version: str) -> Path:
    folder.mkdir()
    path = folder / "pg_dump"
    path.write_text(f"#!/bin/sh\necho 'pg_dump (PostgreSQL) {version} (Debian {version}-1)'\n")
    path.chmod(0o755)
    return path


def test_the_tool_of_the_server_s_version_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [a_tool(tmp_path / str(major), f"{major}.2") for major in (15, 16, 17, 18)]
    monkeypatch.setattr(pg_tools, "_candidates", lambda name, own: [*made, tmp_path / "none"])
    assert pg_tools.find("pg_dump", 16).path == made[1]
    made.remove(made[1])
    assert pg_tools.find("pg_dump", 16).major == 17
    with pytest.raises(BackupFault, match="install the package postgresql-client-19"):
        pg_tools.find("pg_dump", 19)


def test_a_full_disk_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert command._said("kvaudit backup", full) == 3
    assert (
        capsys.readouterr().err
        == "kvaudit backup: The disk is full, so it was not done: make room, then try again.\n"
    )
    assert "disk of the database is full" in pg_tools._meaning(
        "could not extend file: No space left on device"
    )


def test_commands_of_the_project_lead_somewhere() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    commands = project["project"]["entry-points"]["kvaudit.commands"]
    assert {"backup", "restore", "ledger", "up"} <= set(commands)
    for target in commands.values():
        module, _, name = target.partition(":")
        assert callable(getattr(import_module(module), name))
