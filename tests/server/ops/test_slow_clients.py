"""Slow clients keep nobody waiting: real processes, real sockets. Each of these stops a server whose threads read and
write the sockets themselves."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.ops.running import REPOSITORY, Up, clean_environment, free_port, new_state, status_of
from tests.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes through /proc"),
]

HEAD = b"GET /fast HTTP/1.1\r\nHost: here\r\n"
POST = b"POST /fast HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n"
CHUNKED = b"POST /fast HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
EXPECTING = b"POST /fast HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n"
PAGE = b"GET /page HTTP/1.1\r\nHost: here\r\n\r\n"

KINDS = {
    "nothing at all": b"",
    "a head without end": HEAD,
    "a head of one byte": b"G",
    "blank lines": b"\r\n",
    "a body without end": POST,
    "a chunked body without end": CHUNKED,
    "a body after 100-continue": EXPECTING,
    "a page that is not read": PAGE,
    "pages that are not read, in one go": PAGE * 5,
    "a slow second request": b"GET /fast HTTP/1.1\r\nHost: here\r\n\r\nGET /fa",
}


class Served:
    """gunicorn with the product's worker and a small application."""

    def __init__(self, *, workers: int = 1, threads: int = 2, **variables: object) -> None:
        self.port = free_port()
        self.clients: list[socket.socket] = []
        self.log = Path(tempfile.mkdtemp(prefix="kvaudit-web-")) / "log"
        command = [
            sys.executable,
            "-m",
            "gunicorn",
            "-k",
            "kvaudit.server.ops.web_worker.WaitressWorker",
            "-w",
            str(workers),
        ]
        command += ["--threads", str(threads), "-b", f"127.0.0.1:{self.port}", "--graceful-timeout", "60"]
        command += ["--no-control-socket", "tests.server.ops.slow_app:application"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=clean_environment() | {name: str(value) for name, value in variables.items()},
                stdout=log,
                stderr=log,
            )
        until(lambda: status_of(self.url("/fast")) == 200, "the server answers")

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def connect(self, first: bytes = b"", *, window: int = 0) -> socket.socket:
        client = socket.socket()
        if window:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", self.port))
        self.clients.append(client)
        client.sendall(first)
        return client

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            return dict(json.loads(answer.read()))
        finally:
            connection.close()

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def begin(**options: Any) -> Served:
        started.append(Served(**options))
        return started[-1]

    yield begin
    for each in started:
        each.stop()


@pytest.fixture(scope="module")
def patient() -> Iterator[Served]:
    """Deadlines far away: what holds here holds while slow clients are still there."""
    served = Served(HEAD_SECONDS=600, GRACE_SECONDS=600, IDLE_SECONDS=600, PRESSED_SECONDS=600)
    yield served
    served.stop()


@pytest.fixture(scope="module")
def strict() -> Iterator[Served]:
    served = Served(HEAD_SECONDS=0.5, GRACE_SECONDS=0.5, IDLE_SECONDS=0.5, PRESSED_SECONDS=0.5)
    yield served
    served.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_crowd_of_slow_clients_holds_up_nobody(patient, kind):
    crowd = [patient.connect(KINDS[kind], window=4096) for _ in range(60)]
    try:
        for _ in range(20):
            assert patient.ask("GET", "/fast")["path"] == "/fast"
        assert patient.ask("POST", "/fast", b"abc")["count"] == 3
    finally:
        for each in crowd:
            each.close()


@pytest.mark.parametrize("kind", KINDS)
def test_each_of_them_is_shown_the_door(strict, kind):
    client = strict.connect(KINDS[kind], window=4096)
    drips = threading.Event()

    def drip() -> None:  # a byte now and then is no excuse
        while not drips.wait(0.1):
            try:
                client.send(b"a")
            except OSError:
                return

    thread = threading.Thread(target=drip)
    if "read" not in kind and kind != "nothing at all":
        thread.start()
    try:
        if "read" in kind:
            until(lambda: not _established(strict.port, client), "the server gives up")
        else:
            assert _ends(client)
    finally:
        drips.set()
        if thread.ident:
            thread.join()
        client.close()


def test_a_reader_that_holds_a_thread_goes_when_others_wait(serve):
    served = serve(threads=1, GRACE_SECONDS=600, PRESSED_SECONDS=0.5)
    slow = [served.connect(b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n", window=4096) for _ in range(3)]
    assert served.ask("GET", "/fast")["path"] == "/fast"
    for each in slow:
        each.close()


def test_a_reader_that_reads_gets_all_of_it(serve):
    served = serve(threads=1, GRACE_SECONDS=60, PRESSED_SECONDS=60)
    client = served.connect(b"GET /large HTTP/1.0\r\n\r\n")
    got = 0
    while piece := client.recv(1_000_000):
        got += len(piece)
    client.close()
    assert got > 40_000_000


def test_a_large_body_goes_to_the_application_as_it_comes(patient):
    body = os.urandom(1_000_003) * 20
    said = patient.ask("POST", "/upload", body)
    assert (said["count"], said["digest"]) == (len(body), hashlib.sha256(body).hexdigest())
    said = patient.ask("POST", "/upload", body, Expect="100-continue")
    assert said["digest"] == hashlib.sha256(body).hexdigest()


def test_a_large_body_that_stops_is_given_up(strict):
    client = strict.connect(b"POST /upload HTTP/1.1\r\nHost: here\r\nContent-Length: 99000000\r\n\r\nabc")
    said = b""
    while piece := client.recv(65_536):
        said += piece
    client.close()
    assert b"did not come in time" in said
    # Its deadlines are shorter than a pause of this machine may be, so one question may fail.
    until(lambda: status_of(strict.url("/fast")) == 200, "it answers others")


def test_a_chunked_body_has_a_limit(patient):
    def pieces(count: int) -> Iterator[bytes]:
        yield from (b"x" * 100_000 for _ in range(count))

    assert patient.ask("POST", "/fast", pieces(30))["count"] == 3_000_000
    connection = http.client.HTTPConnection("127.0.0.1", patient.port, timeout=PATIENCE)
    try:
        connection.request(
            "POST", "/fast", pieces(400), {"Transfer-Encoding": "chunked"}, encode_chunked=True
        )
        status = connection.getresponse().status
    except OSError:  # the connection was closed while we were still sending
        status = 413
    assert status == 413
    connection.close()


def test_where_there_are_too_many_the_oldest_goes(serve):
    served = serve(MOST_CONNECTIONS=20, HEAD_SECONDS=600, IDLE_SECONDS=600)
    crowd = [served.connect(HEAD) for _ in range(60)]
    assert served.ask("GET", "/fast")["path"] == "/fast"
    assert _ends(crowd[0])
    for each in crowd:
        each.close()


def test_what_is_kept_has_a_limit(serve):
    served = serve(MOST_SPOOLED=1_000_000, GRACE_SECONDS=600)
    page = PAGE.replace(
        b"/page", b"/page?12000000"
    )  # the kernel keeps up to 4 MB of it, more or less of them
    crowd = [served.connect(page, window=4096) for _ in range(20)]
    until(lambda: sum(_established(served.port, each) for each in crowd) <= 10, "the largest go")
    assert served.ask("GET", "/fast")["path"] == "/fast"
    for each in crowd:
        each.close()


def test_headers_of_a_proxy_change_nothing_of_the_address(patient):
    said = patient.ask(
        "GET", "/fast", None, **{"SCRIPT_NAME": "/evil", "Script-Name": "/evil", "X-Forwarded-Proto": "https",
                                 "X-Forwarded-Prefix": "/evil", "X-Forwarded-Ssl": "on"},
    )  # fmt: skip
    assert (said["script"], said["scheme"], said["path"]) == ("", "http", "/fast")


def test_a_stop_lets_answers_be_finished(serve, tmp_path):
    served = serve()
    go = tmp_path / "go"
    client = served.connect(f"GET /wait?{go} HTTP/1.0\r\n\r\n".encode())
    idle = served.connect()
    served.ask("GET", "/fast")
    served.process.send_signal(signal.SIGTERM)
    assert _ends(idle), "nobody waits for a connection that asks nothing"
    go.touch()
    said = b""
    while piece := client.recv(65_536):
        said += piece
    client.close()
    assert b"200 OK" in said
    assert b'"path": "/wait"' in said
    assert served.process.wait(PATIENCE) == 0


def test_processes_end_with_gunicorn_itself(serve):
    served = serve(workers=2)
    pid = served.ask("GET", "/fast")["pid"]
    served.process.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the worker notices that it is alone")


def _ends(client: socket.socket) -> bool:
    """Whether the server closes the connection (an answer may come before)."""
    try:
        while client.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


def _established(port: int, client: socket.socket) -> bool:
    """Whether the server still has its end of the connection, by /proc: this end learns of it only by reading."""
    mine = f":{client.getsockname()[1]:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        if local.endswith(f":{port:04X}") and remote.endswith(mine):
            return state == "01"
    return False


@pytest.mark.drill
def test_the_product_serves_fifty_people_while_two_hundred_are_slow():
    """Sixteen slow connections used to stop it: eight threads read heads and bodies themselves."""
    up = Up(new_state(), free_port(), KVAUDIT_ADMIN_PASSWORD="a-password-for-drills")
    slow: list[socket.socket] = []
    try:
        up.ready()
        for number in range(200):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", up.port))
            login = b"POST /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n"
            client.sendall([HEAD, login, b"GET /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 40][number % 3])
            slow.append(client)
        answers: list[int] = []

        def person() -> None:
            for _ in range(6):
                answers.append(status_of(up.url + "/login/", PATIENCE))

        people = [threading.Thread(target=person) for _ in range(50)]
        for each in people:
            each.start()
        while any(each.is_alive() for each in people):
            for client in slow:
                try:
                    client.send(b"a")
                except OSError:
                    continue
            people[0].join(1)
        assert answers == [200] * 300, "nobody of the fifty waits for one of the two hundred"
    finally:
        for client in slow:
            client.close()
        up.destroy()
