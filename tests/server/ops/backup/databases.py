"""Databases of a test's own in the session's server, and the two commands over them, each in a process of its own."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from kvaudit.server.ops import embedded
from tests.server.ops.running import REPOSITORY, clean_environment

FILL = """
import django
django.setup()
from kvaudit.server.fleet import services
from kvaudit.server.fleet.models import Deployment, Tenant
from kvaudit.server.accounts.models import Team
team = Team.objects.create(slug="infer", name="Inference")
deployment = Deployment.objects.create(slug="glm-prod", team=team, engine="sglang", entry="https://llm.example.com",
    model="glm", context=1024)
for name in "abc":
    tenant = Tenant.objects.create(deployment=deployment, name=name)
    services.set_tenant_key(tenant=tenant, key=f"key-of-{name}", actor="system:tests")
"""
ACT = """
import django
django.setup()
from kvaudit.server.ledger.services import record
record(actor="system:tests", kind="plan.changed", subject="plan:1")
"""


def new_key() -> str:
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


@dataclass
class Database:
    """One installation: its database and its variables, as an operator would set them."""

    name: str
    server: embedded.Postgres
    env: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, code: int = 0, **more: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=REPOSITORY,
            env=clean_environment() | self.env | more,
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert "Traceback" not in said
        return said

    def command(self, *arguments: str, code: int = 0, **more: str) -> str:
        return self.run("-m", "kvaudit.server.ops.backup.command", *arguments, code=code, **more)

    def initialise(self, *arguments: str, code: int = 0) -> str:
        return self.run("manage.py", "initialise", *arguments, code=code)

    def connect(self, name: str = "") -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self.server.socket), user=embedded.OWNER_ROLE, dbname=name or self.name, autocommit=True
        )

    def one(self, query: str) -> Any:
        with self.connect() as connection:
            row = connection.execute(query.encode()).fetchone()
            assert row
            return row[0]

    def beside(self) -> list[str]:
        """Other databases whose names begin with ours."""
        with self.connect("postgres") as connection:
            rows = connection.execute(
                "SELECT datname FROM pg_database WHERE datname LIKE %s AND datname <> %s",
                [f"{self.name}%", self.name],
            ).fetchall()
        return [str(row[0]) for row in rows]

    def head(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(self.env["LEDGER_HEAD_FILE"]).read_text())
        return found


@contextmanager
def database(cluster: Any, folder: Path, template: str = "template1", **env: str) -> Iterator[Database]:
    """An empty one, or a copy of the database ``template``, which nobody may be using."""
    name = f"backup_{secrets.token_hex(4)}"
    found = Database(name, cluster.server)
    found.env = {
        "DJANGO_SETTINGS_MODULE": "kvaudit.settings",
        "SECRET_KEY": secrets.token_urlsafe(64),
        "ENCRYPTION_KEY": new_key(),
        "ALLOWED_HOSTS": "127.0.0.1",
        "DATABASE_URL": cluster.url(embedded.APP_ROLE, name),
        "DATABASE_OWNER_URL": cluster.url(embedded.OWNER_ROLE, name),
        "BROKER_URL": "redis://127.0.0.1:1",
        "LEDGER_HEAD_FILE": str(folder / f"{name}.head"),
        "KVAUDIT_STATE": str(folder / "no-state"),
        "LOG_LEVEL": "ERROR",
    } | env
    with found.connect("postgres") as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
    try:
        yield found
    finally:
        others = found.beside()
        with found.connect("postgres") as connection:
            for each in (name, *others):
                connection.execute(f"DROP DATABASE IF EXISTS {each} WITH (FORCE)".encode())
