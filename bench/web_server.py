"""Pages a second with the web server as it is and with gunicorn's own threads, in turns, and with slow clients.

Starts the product without the lab, and beside its web process one with the other worker on the same database.
``--seconds`` of each measurement (5), ``--rounds`` (3). Numbers move with the machine: compare within one round.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.server.ops.running import Up, free_port, members, new_state, status_of, until

CLIENTS, SLOW = 50, 200
PAGES = ("/", "/plans/", "/incidents/", "/settings/")
PASSWORD = "only-for-this-measurement"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    up = Up(new_state(), free_port(), KVAUDIT_ADMIN_PASSWORD=PASSWORD)
    other: subprocess.Popen[bytes] | None = None
    try:
        up.ready()
        port = free_port()
        other = threads_of_gunicorn(up, port)
        until(lambda: status_of(f"http://127.0.0.1:{port}/login/") == 200, 60, "the other server answers")
        cookie = login(up.port)
        for number in range(given.rounds):
            for name, each in (("waitress", up.port), ("gthread ", port)):
                pages, page = (
                    asked(each, PAGES, cookie, given.seconds),
                    asked(each, ("/login/",), "", given.seconds),
                )
                print(f"round {number + 1}  {name}  pages {pages}  login page {page}", flush=True)
        for kind in ("heads", "bodies", "readers"):
            slow = [slow_client(up.port, kind) for _ in range(SLOW)]
            print(
                f"{SLOW} slow {kind}, waitress: pages {asked(up.port, PAGES, cookie, given.seconds)}",
                flush=True,
            )
            for each in slow:
                each.close()
    finally:
        if other is not None:
            other.terminate()
            other.wait(30)
        up.destroy()


def threads_of_gunicorn(up: Up, port: int) -> subprocess.Popen[bytes]:
    """The same application, environment and settings, with the worker class of before."""
    pid = members(up.groups()["web"])[0]
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair) | {"KVAUDIT_PORT": str(port)}
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "-c",
        "python:kvaudit.server.ops.gunicorn_conf",
        "-k",
        "gthread",
    ]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def login(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/login/")
    answer = connection.getresponse()
    csrf = answer.headers["Set-Cookie"].partition(";")[0].strip()
    token = re.search(r'csrfmiddlewaretoken" value="([^"]+)"', answer.read().decode())
    assert token is not None
    body = urlencode({"csrfmiddlewaretoken": token[1], "username": "admin", "password": PASSWORD})
    kind = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": csrf}
    connection.request("POST", "/login/", body, kind)
    answer = connection.getresponse()
    answer.read()
    return next(
        each.partition(";")[0] for each in answer.headers.get_all("Set-Cookie", []) if "sessionid" in each
    )


def asked(port: int, paths: tuple[str, ...], cookie: str, seconds: float) -> str:
    """``CLIENTS`` with connections that are kept ask as fast as they are answered."""
    times: list[float] = []
    failed: list[str] = []
    ends = time.monotonic() + seconds

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while time.monotonic() < ends:
            number += 1
            begun = time.monotonic()
            try:
                connection.request(
                    "GET", paths[number % len(paths)], headers={"Cookie": cookie} if cookie else {}
                )
                answer = connection.getresponse()
                answer.read()
            except OSError as fault:
                failed.append(repr(fault))
                connection.close()
                continue
            if answer.status != 200:
                failed.append(str(answer.status))
            times.append(time.monotonic() - begun)
        connection.close()

    people = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    times.sort()
    p95 = times[int(len(times) * 0.95)] * 1000
    return f"{len(times) / seconds:4.0f}/s, p95 {p95:5.0f} ms, {len(failed)} failed (load {os.getloadavg()[0]:.0f})"


def slow_client(port: int, kind: str) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    first = {
        "heads": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        "bodies": b"POST /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n",
        "readers": b"GET /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50,
    }[kind]
    client.sendall(first)
    return client


if __name__ == "__main__":
    main()
