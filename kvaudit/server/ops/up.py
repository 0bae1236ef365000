"""``kvaudit up``: the whole product on one machine, in one tree of processes.

Order: lock, port, PostgreSQL and Valkey (unless DATABASE_URL and BROKER_URL name others),
``initialise``, lab, workers, beat, web; then watch. Stopping goes the opposite way. Nothing is
orphaned: every child dies with this process, and what an earlier start left is ended first.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kvaudit.server.disk import NO_ROOM
from kvaudit.server.ops import launch as launching
from kvaudit.server.ops.addons import ADDONS, Addon, fulfil, lab_ports_file, request_file
from kvaudit.server.ops.embedded import (
    APP_ROLE,
    OWNER_ROLE,
    RETENTION_ROLE,
    EmbeddedFault,
    Postgres,
    Valkey,
    postgres_home,
)
from kvaudit.server.ops.environment import Environment, EnvironmentFault
from kvaudit.server.ops.evidence_expiry import Retaining
from kvaudit.server.ops.launch import Launch, child_environment
from kvaudit.server.ops.one_shot import manage
from kvaudit.server.ops.own_variables import own_variables, private_half
from kvaudit.server.ops.process import Child, follow_parent
from kvaudit.server.ops.progress import Progress
from kvaudit.server.ops.ready import answers, refusal
from kvaudit.server.ops.stale_processes import end_leftovers
from kvaudit.server.ops.state import State, StateFault, default_state
from kvaudit.server.ops.supervisor import StartFault, Stopped, Supervisor

WAITING = 2048
"""Connections that wait until the web takes them, as many as gunicorn would let wait."""


class UpFault(RuntimeError):
    """kvaudit cannot start here; the text says why and what to do."""


def main(argv: Sequence[str]) -> int:
    """Run until stopped; exit code 0 after a stop that was asked for, 3 when it could not start."""
    parser = argparse.ArgumentParser(
        prog="kvaudit up", description="Start the whole product on this machine."
    )
    parser.add_argument(
        "--state", type=Path, default=None, help="folder of everything that lasts (KVAUDIT_STATE)"
    )
    parser.add_argument(
        "--host", default=os.environ.get("KVAUDIT_HOST") or "127.0.0.1", help="address to listen on"
    )
    parser.add_argument(
        "--port", default=os.environ.get("KVAUDIT_PORT") or "8000", help="port (KVAUDIT_PORT, 8000)"
    )
    parser.add_argument("--concurrency", type=int, default=2, help="processes of each worker")
    parser.add_argument("--no-lab", action="store_true", help="without the lab fleet")
    parser.add_argument(
        "--accept-rollback", action="store_true", help="start although the database was rolled back; recorded"
    )
    parser.add_argument("--with-parent", action="store_true", help="stop when the parent process ends")
    options = parser.parse_args(argv)
    if options.with_parent:
        follow_parent()
    without = {"lab"} if options.no_lab else set()
    try:
        return _run(options, without)
    except (UpFault, StateFault, EmbeddedFault, StartFault, EnvironmentFault) as fault:
        for sentence in str(fault).splitlines():
            print(f"kvaudit up: {sentence}", file=sys.stderr)
        return 3
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        print(
            f"kvaudit up: {error.filename or 'Something'} cannot be written, for its disk is full: make room on it, "
            "then start again.",
            file=sys.stderr,
        )
        return 3


def _run(options: argparse.Namespace, without: set[str]) -> int:
    port = _port_number(options.port)
    state = State((options.state or default_state()).resolve())
    disks = _disks(state)
    state.require_room(disks)
    state.lock()
    progress = Progress()
    register = state.folder / "run" / "children.json"
    supervisor = Supervisor(progress, register, with_parent=options.with_parent, disks=disks)
    supervisor.listen()
    try:
        left = end_leftovers(register)
        if left:
            progress.say(f"ended what an earlier start left behind: {', '.join(left)}")
        launch = Launch(state, options.host, port, {}, options.concurrency, listen(options.host, port))
        left_out = [addon for addon in ADDONS if addon.name in without]
        chosen = [addon for addon in ADDONS if addon.name not in without]
        _start_everything(supervisor, launch, chosen, accept_rollback=options.accept_rollback)
        retaining = Retaining(launch, progress)

        def also() -> None:
            fulfil(launch, supervisor, left_out)
            retaining.look()

        try:
            supervisor.watch(also)
        finally:
            retaining.end()
    except Stopped:
        pass
    finally:
        if supervisor.children:
            progress.say("stopping")
            supervisor.stop()
            progress.say("stopped")
        state.unlock()
        progress.close()
    return 0


def _disks(state: State) -> list[Path]:
    """Folders in which something is written while it runs: the state's, and PostgreSQL's where that is another."""
    own_server = not (os.environ.get("DATABASE_URL") or os.environ.get("DATABASE_URL_FILE"))
    return sorted({state.folder, postgres_home(state.folder)} if own_server else {state.folder})


def _start_everything(
    supervisor: Supervisor, launch: Launch, extras: list[Addon], *, accept_rollback: bool
) -> None:
    progress = supervisor.progress
    composed = _start_servers(supervisor, launch.state)
    composed |= own_variables(launch, composed)
    owner_side = {**os.environ, **composed}
    launch.env = child_environment(composed)
    launch.retention_url = Environment(owner_side).text("DATABASE_RETENTION_URL")
    if not launch.retention_url:
        progress.say("old evidence is kept for good: DATABASE_RETENTION_URL names no role that may drop it")
    launch.for_web = private_half(launch.state)
    request_file(launch).unlink(missing_ok=True)
    lab_ports_file(launch).unlink(missing_ok=True)
    if len(extras) < len(ADDONS):
        launch.for_web["LAB_WISH_FILE"] = str(request_file(launch))
    launch.state.write_local_environment(composed)
    with progress.step("preparing the database", "database prepared"):
        more = ["--accept-rollback"] if accept_rollback else []
        password = _initialise(supervisor, launch.state, owner_side, more)
    for addon in extras:
        for child in addon.children(launch):
            supervisor.start(child)
    waiting = [launching.worker(launch, queue) for queue in ("passive", "active")]
    waiting += [launching.beat(launch)]
    web = launching.web(launch)
    for child in (*waiting, web):
        supervisor.start(child)
    for addon in extras:
        addon.set_up(launch, supervisor)
    with progress.step("starting web, workers and beat", "web, two workers and beat answer"):
        probe = f"{launch.url}/readyz"
        supervisor.wait(web, lambda: answers(probe), seconds=120, why=lambda: refusal(probe))
        for child in waiting:
            supervisor.wait(child, launch.alive_file(child.name).exists)
    progress.plain(f"ready {launch.url} user admin password {password or '(unchanged)'}")
    _unseen(launch.state).unlink(missing_ok=True)


def _start_servers(supervisor: Supervisor, state: State) -> dict[str, str]:
    """Start the embedded servers that the environment does not replace; gives the URLs."""
    composed: dict[str, str] = {}
    environment = Environment(os.environ)
    servers: list[Postgres | Valkey] = []
    if environment.text("DATABASE_URL"):
        environment.postgres_url("DATABASE_URL")
        environment.postgres_url("DATABASE_OWNER_URL")
    else:
        postgres = Postgres(state.folder)
        if not postgres.folder.is_relative_to(state.folder):
            supervisor.progress.say(
                f"PostgreSQL's files are in {postgres.folder}: the user it runs as cannot enter {state.folder}"
            )
        composed["DATABASE_URL"] = postgres.url(APP_ROLE)
        composed["DATABASE_OWNER_URL"] = postgres.url(OWNER_ROLE)
        composed["DATABASE_RETENTION_URL"] = postgres.url(RETENTION_ROLE)
        servers.append(postgres)
    if environment.text("BROKER_URL"):
        environment.broker_url()
    else:
        valkey = Valkey(state.folder)
        composed["BROKER_URL"] = valkey.url()
        servers.append(valkey)
    environment.finish()
    running = []
    for server in servers:
        with supervisor.progress.step(f"starting {server.name}", f"{server.name} started"):
            server.initialise()
            running.append((supervisor.start(_server_child(server, state)), server.ready))
    for child, ready in running:
        supervisor.wait(child, ready)
    return composed


def _server_child(server: Postgres | Valkey, state: State) -> Child:
    def start() -> subprocess.Popen[bytes]:
        with state.open_log(server.name) as log:
            return server.start(log)

    return Child(
        server.name,
        start,
        stop_signal=server.stop_signal,
        grace=20.0,
        log_path=state.logs / f"{server.name}.log",
        tier=launching.SERVERS,
    )


def _initialise(supervisor: Supervisor, state: State, env: dict[str, str], more: Sequence[str]) -> str:
    """Run ``manage.py initialise``; gives the administrator's password when it may be shown."""
    arguments = ["initialise", "--json", "--static", "--wait", "15", *more]
    given = bool(env.get("KVAUDIT_ADMIN_PASSWORD") or env.get("KVAUDIT_ADMIN_PASSWORD_FILE"))
    if given:
        arguments.append("--set-password")
    done = manage(arguments, env, supervisor.asked_to_stop)
    rows = [json.loads(line) for line in done.out.splitlines() if line.startswith("{") and line.endswith("}")]
    password = "".join(str(row["password"]) for row in rows if "password" in row)
    if password and not given:
        _write_unseen(state, password)
    if done.stopped:
        raise Stopped
    if done.code:
        raise UpFault(done.errors.strip() or f"the database could not be prepared (exit code {done.code}).")
    return password or _read_unseen(state)


def _unseen(state: State) -> Path:
    """Holds a one-time password from the moment it is drawn until somebody has seen it."""
    return state.secrets / "unseen_password"


def _write_unseen(state: State, password: str) -> None:
    handle = os.open(_unseen(state), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(password)


def _read_unseen(state: State) -> str:
    try:
        return _unseen(state).read_text(encoding="utf-8")
    except OSError:
        return ""


def _port_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise UpFault(f"KVAUDIT_PORT must be a number from 1 to 65535, not {text!r}.")
    return int(text)


def listen(host: str, port: int) -> socket.socket:
    """Take the port, for as long as this process lives: the web is given it, and keeps it when it is started again.
    Raises `UpFault` when the port is taken or the address is not of this machine."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        taken = socket.socket(family, kind, proto)
        try:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is no hindrance
            taken.bind(address)
            # At once: two that have only bound it would both hold it.
            taken.listen(WAITING)
        except OSError:
            taken.close()
            raise
    except PermissionError:
        raise UpFault(
            f"Port {port} needs more rights than this user has: choose one above 1023, like "
            "KVAUDIT_PORT=8000 make up."
        ) from None
    except OSError as error:
        other = port + 1 if port < 65535 else 8000
        if error.errno == errno.EADDRINUSE:
            raise UpFault(
                f"Port {port} on {host} is taken by another program: stop that program, or choose another "
                f"port, like KVAUDIT_PORT={other} make up."
            ) from None
        raise UpFault(
            f"kvaudit cannot listen on {host}: {error.strerror}. Choose another KVAUDIT_HOST."
        ) from None
    return taken
