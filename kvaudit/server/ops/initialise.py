"""Makes a database usable: the application's role, the tables, what the role may do, the administrator.

Everything runs as the owner (DATABASE_OWNER_URL) and may run again at any time; two at once wait for
each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dj_database_url
import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import OperationalError, connection, transaction
from psycopg import sql

from kvaudit.server.accounts.models import User
from kvaudit.server.accounts.services import change_password, ensure_admin
from kvaudit.server.audits.state import wrong_clock_repair
from kvaudit.server.ledger import noted_head
from kvaudit.server.ledger.grants import grant_statements, retention_statements
from kvaudit.server.ledger.services import record

ADMIN = "admin"
_ACTOR = "command:initialise"
_LOCK = 0x6B7661756469  # "kvaudi": any number that nobody else takes


class InitialiseFault(RuntimeError):
    """The database cannot be made usable; the text says why and what to do."""


@dataclass(frozen=True)
class Administrator:
    """The account that was found or made; ``password`` is empty when only its owner knows it."""

    username: str
    password: str


def initialise(
    *,
    admin_password: str = "",
    set_password: bool = False,
    wait: float = 0,
    accept_rollback: bool = False,
    say: Callable[[str], None],
) -> Administrator:
    """Role, migrations, grants, a look at the ledger's head, administrator, in this order.

    ``admin_password`` is used for a new account (else one is drawn); ``set_password`` gives it to an
    existing one too. ``wait``: seconds to wait for the server. A ledger that ends before the head kept outside is a
    fault, unless ``accept_rollback``, which goes into the ledger.
    """
    with prepared(wait, say):
        _compare_head(accept_rollback, say)
        return _administrator(admin_password, set_password, say)


@contextmanager
def prepared(wait: float, say: Callable[[str], None]) -> Iterator[None]:
    """The database with roles, tables and grants, and Django's connection as the owner of the tables."""
    owner, app = _roles()
    retention = _retention(owner, app)
    with as_owner(owner):
        _wait_for_server(wait)
        with connection.cursor() as cursor:
            # Of the session: held across the transactions of the migrations, gone with the connection.
            cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        _ensure_role(app["USER"], app["PASSWORD"])
        say("database role ready")
        call_command("migrate", interactive=False, verbosity=0)
        say("migrations applied")
        statements = grant_statements(app["USER"])
        if retention:
            _ensure_role(retention["USER"], retention["PASSWORD"])
            statements += retention_statements(retention["USER"])
        with transaction.atomic(), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        say("permissions of the database role set")
        mended = wrong_clock_repair.mend()
        if mended.moments or mended.fails:
            say(
                f"a worker's clock was wrong: {mended.moments} moments that lay ahead brought back, "
                f"{mended.fails} fails that were passed over now stand"
            )
        yield


def _compare_head(accept_rollback: bool, say: Callable[[str], None]) -> None:
    """Raises `InitialiseFault` for a database that was rolled back."""
    try:
        noted = noted_head.read()
    except noted_head.HeadUnreadable as fault:
        raise InitialiseFault(str(fault)) from None
    if noted is None or not (problem := noted_head.problem(noted)):
        return
    if not accept_rollback:
        raise InitialiseFault(
            f"{problem} Restore the newest backup (kvaudit restore), or start once with --accept-rollback, which is "
            "recorded."
        )
    note_rollback(noted, _ACTOR)
    noted_head.write(noted_head.current())
    say(f"accepted and recorded: {problem}")


def note_rollback(lost: noted_head.Head, actor: str) -> None:
    """The ledger says itself up to where an earlier one had come."""
    record(actor=actor, kind="ledger.rolled_back", subject=f"ledger:{lost.sequence}", digest=lost.hash)


def _roles() -> tuple[dict[str, str], dict[str, str]]:
    """Connection settings of owner and application, which must be two roles on one database."""
    if not settings.DATABASE_OWNER_URL:
        raise InitialiseFault(
            "DATABASE_OWNER_URL is not set: give the URL of the role that owns the tables, which is not the "
            "role of DATABASE_URL."
        )
    owner = {
        key: str(value or "") for key, value in dj_database_url.parse(settings.DATABASE_OWNER_URL).items()
    }
    app = {key: str(value or "") for key, value in settings.DATABASES["default"].items() if key != "OPTIONS"}
    if owner["USER"] == app["USER"]:
        raise InitialiseFault(
            f"DATABASE_URL and DATABASE_OWNER_URL both name the role {owner['USER']}: the application "
            "needs a role of its own, or it could rewrite the ledger."
        )
    if owner["NAME"] != app["NAME"]:
        raise InitialiseFault(
            f"DATABASE_URL names the database {app['NAME']} and DATABASE_OWNER_URL names {owner['NAME']}: "
            "they must be one."
        )
    return owner, app


def _retention(owner: dict[str, str], app: dict[str, str]) -> dict[str, str]:
    """Connection settings of the role that drops old evidence; {} where none is named, and all evidence stays."""
    if not settings.DATABASE_RETENTION_URL:
        return {}
    found = {
        key: str(value or "") for key, value in dj_database_url.parse(settings.DATABASE_RETENTION_URL).items()
    }
    if found["USER"] in (owner["USER"], app["USER"]):
        raise InitialiseFault(
            f"DATABASE_RETENTION_URL names the role {found['USER']}, which another URL names too: retention needs a "
            "role of its own, since it alone may delete evidence."
        )
    if found["NAME"] != app["NAME"]:
        raise InitialiseFault(
            f"DATABASE_URL names the database {app['NAME']} and DATABASE_RETENTION_URL names {found['NAME']}: they "
            "must be one."
        )
    return found


@contextmanager
def as_owner(owner: dict[str, str]) -> Iterator[None]:
    """Django's connection, as the owner of the tables, while it lasts."""
    keys = ("NAME", "USER", "PASSWORD", "HOST", "PORT")
    before = {key: connection.settings_dict[key] for key in keys}
    connection.close()
    connection.settings_dict.update({key: owner[key] for key in keys})
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


def _wait_for_server(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.ensure_connection()
        except OperationalError as error:
            if time.monotonic() >= deadline:
                raise InitialiseFault(
                    f"PostgreSQL does not let {connection.settings_dict['USER']} in: {str(error).strip()}"
                ) from error
            time.sleep(0.5)
        else:
            return


def _ensure_role(role: str, password: str) -> None:
    """The role may log in and nothing else; its password follows DATABASE_URL."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
        verb = "ALTER" if cursor.fetchone() else "CREATE"
        statement = sql.SQL(
            verb + " ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
        )
        parts = [statement.format(sql.Identifier(role))]
        if password:
            parts.append(sql.SQL("PASSWORD {}").format(sql.Literal(password)))
        try:
            cursor.execute(sql.SQL(" ").join(parts).as_string(cursor.cursor))
        except psycopg.Error as error:
            raise InitialiseFault(f"The role {role} cannot be made: {error}") from None


def _administrator(password: str, set_password: bool, say: Callable[[str], None]) -> Administrator:
    user, one_time = ensure_admin(username=ADMIN, actor=_ACTOR, password=password)
    if one_time:
        return Administrator(ADMIN, one_time)
    if set_password and password:
        known: User = user
        if not known.check_password(password):
            say(f"setting the password of {ADMIN}: their sessions end and their API tokens are revoked")
            say(f"password of {ADMIN} set: {change_password(user=known, password=password, actor=_ACTOR)}")
        return Administrator(ADMIN, password)
    return Administrator(ADMIN, "")
