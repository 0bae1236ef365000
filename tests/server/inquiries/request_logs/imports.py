"""A small log, and its import begun by an auditor of the deployment's team."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

from kvaudit.server.inquiries.models import LogImport
from kvaudit.server.inquiries.request_logs import upload
from kvaudit.server.inquiries.request_logs.classification import Zone
from tests.factories import a_deployment, a_user

ZERO = datetime(2026, 9, 1, tzinfo=UTC)
ZONE = Zone(ZERO + timedelta(days=1), ZERO + timedelta(days=5), 681_274, 1_048_570)
HEAD = b"time,prompt_tokens,tenant,id\n"
LOG = HEAD + b"".join(b"2026-09-03T00:00:0%dZ,700000,acme,r-%d\n" % (n, n) for n in range(3))


def begun(body: bytes, *, deployment: Any = None, actor: Any = None) -> LogImport:
    deployment = deployment or a_deployment()
    actor = actor or a_user(team=deployment.team, role="auditor")
    return upload.receive(
        deployment=deployment, file=io.BytesIO(body), name="requests.csv", since=ZERO,
        until=ZERO + timedelta(days=10), zones=[ZONE], actor=actor,
    )  # fmt: skip
