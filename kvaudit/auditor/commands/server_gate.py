"""Asks a kvaudit server what only history knows: quarantine, drift, an edge limit seen refusing.

``POST /api/v1/deployments/{slug}/gate`` with our report as body and a bearer token. Whatever keeps the
answer away is an *error*: a pipeline must not pass because the record could not be asked.
"""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from kvaudit.auditor.commands.arguments import UsageError
from kvaudit.auditor.transport import Client, Limits, TransportError, parse_base_url
from kvaudit.auditor.verdict import Verdict

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask, about what, and as whom."""

    url: str
    slug: str
    token: str = field(repr=False)
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class ServerVerdict:
    """What the server answered, or the sentence why it did not."""

    verdict: Verdict
    summary: str
    body: Mapping[str, Any] = field(default_factory=dict)

    def as_report(self) -> dict[str, Any]:
        return {**self.body, "verdict": self.verdict.value, "summary": self.summary}


def server_of(given: Namespace, environ: Mapping[str, str] | None = None) -> Server:
    """The server that the flags describe; `UsageError` with a sentence."""
    environ = os.environ if environ is None else environ
    if not given.deployment:
        raise UsageError("--server needs --deployment SLUG: which deployment is this?")
    if not _SLUG.fullmatch(given.deployment):
        raise UsageError(
            f"--deployment {given.deployment[:60]!r} is no slug (letters, digits, '-', '_', '.')."
        )
    if not given.token_env:
        raise UsageError("--server needs --token-env NAME, the variable that holds an API token.")
    token = environ.get(given.token_env, "").strip()
    if not token:
        raise UsageError(
            f"The environment variable {given.token_env[:80]} (--token-env) is not set or empty."
        )
    try:
        parse_base_url(given.server)
    except TransportError as error:
        raise UsageError(f"--server: {error}") from None
    return Server(given.server, given.deployment, token, given.ca_file)


async def ask(server: Server, document: Mapping[str, Any]) -> ServerVerdict:
    """Send our report and take the server's verdict; unreachable, refused or unreadable is *error*."""
    path = f"/api/v1/deployments/{server.slug}/gate"
    try:
        client = Client(
            server.url,
            allow={("POST", path)},
            headers=(("Authorization", f"Bearer {server.token}"),),
            ca_file=server.ca_file,
            limits=Limits(total=10.0, connect=3.0, read=10.0),
        )
        async with client:
            answer = await client.request("POST", path, content=orjson.dumps(document, default=str))
    except TransportError as error:
        return ServerVerdict(Verdict.ERROR, f"The kvaudit server could not be asked: {error}")
    where = f"{server.url}{path}"
    if answer.status in (401, 403):
        return ServerVerdict(
            Verdict.ERROR, f"{where} answered {answer.status}: the token behind --token-env is refused."
        )
    if answer.status == 404:
        return ServerVerdict(
            Verdict.ERROR, f"{where} answered 404: no deployment {server.slug!r} that this token may see."
        )
    try:
        body = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        body = None
    if answer.status != 200 or not isinstance(body, dict) or "verdict" not in body:
        return ServerVerdict(
            Verdict.ERROR, f"{where} answered {answer.status} without a verdict: is that a kvaudit server?"
        )
    verdict = Verdict.parse(body["verdict"])
    summary = body.get("summary")
    said = summary if isinstance(summary, str) and summary else f"the server says {verdict.value}."
    return ServerVerdict(verdict, said, body)
