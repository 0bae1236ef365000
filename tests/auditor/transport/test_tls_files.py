"""TLS files: whatever a path leads to, nothing waits, nothing crashes, and the server says the same of all."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme

from kvaudit.auditor.transport import Client, DeadlineExceeded, Limits, TLSFailed, tls
from tests import servers

NAMES = ("ca_file", "client_cert", "client_key")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every path that is opened with `os.open`."""
    seen: list[str] = []
    real = os.open

    def noting(path: Any, *arguments: Any, **more: Any) -> int:
        seen.append(os.fspath(path))
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", noting)
    return seen


@pytest.fixture
def team(tmp_path: Path, authority: trustme.CA) -> Path:
    """KVAUDIT_TLS_FOLDER/red with a good CA and all that must not be taken from it."""
    folder = tmp_path / "tls" / "red"
    folder.mkdir(parents=True)
    (tmp_path / "tls" / "blue").mkdir()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "tls" / "blue" / "ca.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "outside.pem"))
    os.mkfifo(folder / "fifo.pem")
    (folder / "folder.pem").mkdir()
    (folder / "empty.pem").write_bytes(b"")
    (folder / "text.pem").write_text("no certificate")
    (folder / "out.pem").symlink_to(tmp_path / "outside.pem")
    (folder / "blue.pem").symlink_to(tmp_path / "tls" / "blue" / "ca.pem")
    (folder / "device.pem").symlink_to("/dev/zero")
    (folder / "circle.pem").symlink_to("circle.pem")
    (folder / "within.pem").symlink_to("ca.pem")
    with (folder / "huge.pem").open("wb") as huge:
        huge.truncate(tls.LARGEST + 1)
    return folder


def unusable(tmp_path: Path, kind: str) -> str:
    path = tmp_path / "given.pem"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "huge":
            with path.open("wb") as huge:
                huge.truncate(2**40)
        case "link to a fifo":
            os.mkfifo(tmp_path / "fifo")
            path.symlink_to(tmp_path / "fifo")
        case "circle":
            path.symlink_to(path)
        case "text":
            path.write_text("no certificate")
        case "half":
            path.write_text("-----BEGIN CERTIFICATE-----\n" * 20_000)
        case "missing":
            pass
        case _:
            return kind
    return str(path)


DEVICES = ["/dev/ptmx", "/dev/zero", "/dev/random", "/dev/null", "/dev/tty"]
KINDS = [
    *DEVICES,
    "fifo",
    "folder",
    "huge",
    "link to a fifo",
    "circle",
    "text",
    "half",
    "missing",
    "nul\0byte",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_on_the_command_line_every_path_ends_in_a_sentence(
    tmp_path: Path, kind: str, name: str, authority: trustme.CA, opened: list[str]
) -> None:
    """The old code never returned from /dev/ptmx and a FIFO, and read /dev/zero until memory ended."""
    path = unusable(tmp_path, kind)
    own = tmp_path / "own.pem"
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(str(own))
    given = {"client_cert": str(own)} if name == "client_key" else {}
    with pytest.raises(TLSFailed, match=r"\.$"):
        tls.context(**{**given, name: path})
    assert not [each for each in opened if each == path and kind not in ("text", "half")]


OUTSIDE = [
    "/etc/shadow",
    "/dev/ptmx",
    "/dev/zero",
    "../blue/ca.pem",
    "..",
    ".",
    "./ca.pem",
    ".hidden",
    "a/b",
    "~/x",
]
INSIDE = ["fifo.pem", "folder.pem", "empty.pem", "text.pem", "out.pem", "blue.pem", "device.pem", "circle.pem",
          "huge.pem", "missing.pem"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_server_says_the_same_of_every_file_that_it_does_not_take(
    team: Path, name: str, opened: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    said = set()
    for file in (*OUTSIDE, *INSIDE, "new\nline.pem"):
        given = {"client_cert": "ca.pem"} if name == "client_key" else {}
        with pytest.raises(TLSFailed) as caught:
            tls.context(**{**given, name: file}, folder=str(team))
        said.add(str(caught.value).replace(repr(file), "NAME"))
    assert len(said) == 1
    assert "KVAUDIT_TLS_FOLDER" in said.pop()
    assert str(team.parent) not in "".join(said)
    assert set(map(os.path.basename, opened)) <= {"ca.pem", "text.pem", "empty.pem"}
    assert all(Path(path).parent == team for path in opened)
    assert "is a link out of its folder" in caplog.text, "the operator is told the reason"


@pytest.mark.parametrize("folder", ["", "nowhere", "linked"])
def test_without_a_folder_nothing_is_taken(team: Path, folder: str, opened: list[str]) -> None:
    (team.parent / "linked").symlink_to(team)
    place = str(team.parent / folder) if folder else ""
    with pytest.raises(TLSFailed, match="KVAUDIT_TLS_FOLDER"):
        tls.context(ca_file="ca.pem", folder=place)
    assert opened == []


@pytest.mark.parametrize("file", ["ca.pem", "within.pem"])
def test_a_file_of_the_teams_folder_is_taken(team: Path, file: str) -> None:
    assert tls.context(ca_file=file, folder=str(team)).cert_store_stats()["x509_ca"] == 1


def test_remarks_between_certificates_do_no_harm(tmp_path: Path, authority: trustme.CA) -> None:
    pem = authority.cert_pem.bytes()
    (tmp_path / "two.pem").write_bytes("# Zertifizierungsstelle für alle\n".encode() + pem + b"\xff\n" + pem)
    assert tls.context(ca_file=str(tmp_path / "two.pem")).cert_store_stats()["x509_ca"] == 1


def test_files_that_hang_end_at_the_deadline_and_stop_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is gone: the loop goes on, and the request ends with its limit."""
    release = threading.Event()
    monkeypatch.setattr(tls, "context", lambda *files: release.wait(60))

    async def main() -> int:
        limits = Limits(total=0.3)
        async with (
            servers.serving(servers.html()) as server,
            Client("https://127.0.0.1:1", allow={("GET", "/")}, ca_file="x", limits=limits) as stuck,
            Client(f"http://127.0.0.1:{server.port}", allow={("GET", "/")}) as other,
        ):
            waiting = asyncio.create_task(stuck.get("/"))
            status = (await other.get("/")).status
            with pytest.raises(DeadlineExceeded):
                await waiting
            return status

    try:
        assert asyncio.run(main()) == 200
    finally:
        release.set()
