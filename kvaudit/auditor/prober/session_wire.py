"""Sends the declared steps of a session API as two accounts, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpcore
import orjson

from kvaudit.auditor.checks.prober_protocol import Stop
from kvaudit.auditor.checks.session.api import Answer, Fill, SessionPlan, Step, fits, render_body, render_path
from kvaudit.auditor.engines.generic.pointers import follow
from kvaudit.auditor.prober.silence import until_stopped
from kvaudit.auditor.targets import Credentials, Target
from kvaudit.auditor.text.markers import Draw, seeded
from kvaudit.auditor.transport import Client, Limits, TransportError, secrets_of
from kvaudit.auditor.verdict import Evidence

ANSWER_SECONDS = 30.0
PATIENCE = 60.0
MOST_REQUESTS = 20_000
"""Of one run: a pool of any size is told apart by then."""


class StepClient(Client):
    """A client whose allow-list is the templates of the declared steps: a path passes when it is one
    of them with an encoded value in every hole."""

    def __init__(self, url: str, *, templates: Iterable[tuple[str, str]], **options: Any) -> None:
        super().__init__(url, allow=(), **options)
        self._templates = frozenset(templates)

    def _build(
        self,
        method: str,
        path: str,
        content: bytes | None,
        content_type: str,
        headers: tuple[tuple[str, str], ...],
        limits: Limits,
    ) -> httpcore.Request:
        known = any(method == verb and fits(template, path) for verb, template in self._templates)
        self.allow = frozenset({(method, path)} if known else ())
        return super()._build(method, path, content, content_type, headers, limits)


class SessionClient:
    """`kvaudit.auditor.checks.session.api.SessionWire` over real connections. Close it with `aclose`.

    ``accounts`` are (name, credentials) of A and B; ``stopped`` gives the sentence why nothing more
    may be sent, or "". Each account has a client of its own; a third one is for both, so that its
    kept-alive connection carries requests of A and B in turn, as a proxy's would.
    """

    def __init__(
        self,
        plan: SessionPlan,
        accounts: Sequence[tuple[str, Credentials]],
        *,
        draw: Draw | None = None,
        stopped: Callable[[], str] = lambda: "",
        most_requests: int = MOST_REQUESTS,
        patience: float = PATIENCE,
    ) -> None:
        self._plan, self._accounts, self._stopped = plan, tuple(accounts), stopped
        self._draw = draw or seeded(None)
        self._left = most_requests
        self.requests = 0
        self.patience = patience
        self._key = secrets.token_bytes(32)
        templates = [(step.method, step.path) for _, steps in plan.steps for step in steps]
        if plan.pool_path:
            templates.append(("GET", plan.pool_path))
        secret = [each for _, given in accounts for each in secrets_of(given.headers)]
        self._own = [
            self._client(templates, given, secret, given.headers_for(plan.url)) for _, given in self._accounts
        ]
        self._both = self._client(templates, self._accounts[0][1], secret, ())

    def _client(
        self,
        templates: Sequence[tuple[str, str]],
        given: Credentials,
        secret: Sequence[str],
        headers: Iterable[tuple[str, str]],
    ) -> StepClient:
        return StepClient(
            self._plan.url,
            templates=templates,
            headers=headers,
            ca_file=given.ca_file,
            client_cert=given.client_cert,
            client_key=given.client_key,
            tls_folder=given.tls_folder,
            redact=secret,
            limits=Limits(total=ANSWER_SECONDS, read=ANSWER_SECONDS),
        )

    async def __aenter__(self) -> SessionClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        for client in (*self._own, self._both):
            await client.aclose()

    @property
    def accounts(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._accounts)

    @property
    def plan(self) -> SessionPlan:
        return self._plan

    @property
    def draw(self) -> Draw:
        return self._draw

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def pool(self) -> Answer:
        return await self.call(0, Step("GET", self._plan.pool_path), _nothing)

    async def call(
        self, account: int, step: Step, fill: Fill, *, shared: bool = False, cut: float | None = None
    ) -> Answer:
        if reason := self._stopped():
            raise Stop(reason)
        if self.requests >= self._left:
            raise Stop(f"{self.requests:,} requests were sent, which is the ceiling of one run.")
        path = render_path(step.path, fill)
        content = render_body(step.body, fill)
        self.requests += 1
        client = self._both if shared else self._own[account]
        headers = self._accounts[account][1].headers if shared else ()
        status, text, problem, left = 0, "", "", False

        async def exchange() -> None:
            nonlocal status, text, left
            async with (
                asyncio.timeout(cut or None),
                client.stream(step.method, path, content=content, headers=headers) as answer,
            ):
                status = answer.status
                if cut is None:
                    text = (await answer.read()).body.decode("utf-8", "replace")
                else:
                    left = True

        try:
            await until_stopped(exchange(), self._stopped)
        except TimeoutError:
            left = True
        except TransportError as failure:
            problem = str(failure)
            status = 0
        captured = _captured(text, step) if 200 <= status < 300 and not left else {}
        evidence = self._evidence(account, step, status, text, problem, left)
        return Answer(status, text, captured, problem, left, self.now(), (evidence,))

    def _evidence(
        self, account: int, step: Step, status: int, text: str, problem: str, left: bool
    ) -> Evidence:
        """What was asked, and of the answer only its length and keyed hash: it may hold customers' words."""
        body = orjson.dumps(
            {
                "account": self.accounts[account],
                "step": f"{step.method} {step.path}",
                "status": status,
                "problem": problem,
                "left_early": left,
                "length": len(text),
                "hmac_sha256": hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest(),
            },
            option=orjson.OPT_SORT_KEYS,
        )
        source = f"{step.method} {self._plan.url}{step.path}"
        return Evidence("response", hashlib.sha256(body).hexdigest(), source, body, "application/json")


def _captured(text: str, step: Step) -> dict[str, str]:
    """Strings and numbers at the step's pointers; what is not there is left out."""
    if not step.capture:
        return {}
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    found = {name: follow(document, pointer) for name, pointer in step.capture}
    return {
        name: str(value)
        for name, value in found.items()
        if isinstance(value, str | int) and not isinstance(value, bool)
    }


def _nothing(name: str) -> str:
    raise KeyError(name)


def session_for(
    target: Target, *, stopped: Callable[[], str] = lambda: "", seed: int | None = None
) -> tuple[SessionClient | None, str]:
    """What `Audit.session` and `Audit.why_no_session` hold for this target: a wire (close it with
    `aclose`), or None and the sentence that says what is missing. The first two tenants are A and B."""
    if target.session_held:
        return None, target.session_held
    if target.session is None:
        return None, "The target does not describe a session API (session: in the fleet file)."
    if len(target.tenants) < 2:
        return None, "Two tenants with keys of their own are needed, to be the accounts A and B."
    accounts = [(tenant.name, tenant.credentials) for tenant in target.tenants[:2]]
    return SessionClient(target.session, accounts, draw=seeded(seed), stopped=stopped), ""
