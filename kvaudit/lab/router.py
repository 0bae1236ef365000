"""Stands in for the router in front (SMG, sgl-model-gateway): checks tenants' keys, and splits a request into
legs.

It overwrites room and salt in the client's body, posts the same body to one prefill and one decode
worker and waits for both heads; a decode error is passed on as it is, a prefill error is wrapped.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request as HTTPRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kvaudit.lab import customers
from kvaudit.lab import http_base as base
from kvaudit.lab.config import LabConfig
from kvaudit.lab.faults.base import Faults
from kvaudit.lab.gateway import Asked
from kvaudit.lab.node import Node
from kvaudit.lab.request import Refused


class NodeApi(Protocol):
    """A node's HTTP API, as the router uses it."""

    node: Node
    port: int

    async def answer(self, path: str, body: dict[str, Any]) -> Response: ...

    def error(self, path: str, message: str, status: int) -> Response: ...

    def document(self, path: str) -> Any: ...

    def tokenize(self, body: dict[str, Any]) -> Response: ...

    def application(self) -> ASGIApp: ...

    def exposition(self) -> str: ...


class Router:
    """The application in front. ``apis``: the workers behind it, prefill first."""

    def __init__(self, config: LabConfig, faults: Faults, apis: list[NodeApi], seed: int = 0) -> None:
        self.config, self.faults, self.apis = config, faults, apis
        self.random = random.Random(seed)
        self.tenant_of_room: dict[int, str] = {}
        self.stray: Router | None = None
        self.served = self.customers = 0
        self.after_request: list[Any] = []

    def tenant(self, http: HTTPRequest) -> str | None:
        """The tenant of a request by its key; None = unknown. Without key checks everybody is one."""
        key = base.bearer(http.scope)
        for tenant in self.config.tenants:
            if key == tenant.key:
                return tenant.name
        return None if self.faults.router_requires_key() else "anonymous"

    async def generation(self, http: HTTPRequest) -> Response:
        """POST /generate, /v1/completions, /v1/chat/completions of a tenant."""
        tenant = self.tenant(http)
        if tenant is None:
            return base.json_response({"error": "Unauthorized"}, 401)
        path = http.url.path
        try:
            body = await base.body_of(http)
        except Refused as refused:
            return self.apis[0].error(path, refused.message, refused.status)
        asked = Asked(tenant, path, body)
        sent = self.faults.at_gateway(asked, lambda body: self.route(tenant, path, body))
        try:
            answer = await base.unless_gone(http.receive, sent)
        except Refused as refused:
            return self.apis[0].error(path, refused.message, refused.status)
        return answer or Response(status_code=499)

    async def route(self, tenant: str, path: str, body: dict[str, Any]) -> Response:
        """Send one request through the workers, other customers' first, or to a replica that is on nobody's list."""
        if self.stray is not None and self.faults.strays(path, body):
            return await self.stray.route(tenant, path, body)
        self.served += 1
        for hook in self.after_request:
            hook(self.served)
        for _ in range(self.config.customers):
            self.customers += 1
            text = customers.prompt(self.customers)
            others = {"model": self.config.model, "prompt": text, "max_tokens": 4, "temperature": 0.0}
            await self._through(customers.CUSTOMER, "/v1/completions", others)
        return await self._through(tenant, path, body)

    async def _through(self, tenant: str, path: str, body: dict[str, Any]) -> Response:
        room = self.random.getrandbits(62)
        salt = body.get("cache_salt") or ""
        namespace = (
            self.faults.router_salt(tenant, str(salt)) if self.config.prefix_cache == "salted" else salt
        )
        body = {
            **body,
            "client_salt": body.get("cache_salt"),
            "cache_salt": namespace,
            "bootstrap_room": room,
        }
        body.pop(
            "extra_key", None
        )  # SGLang's other name of the salt: a client must not bring its own past us
        self.tenant_of_room[room] = tenant
        try:
            if len(self.apis) == 1:
                return await self.apis[0].answer(path, body)
            return await self._both_legs(path, body)
        finally:
            self.tenant_of_room.pop(room, None)

    async def _both_legs(self, path: str, body: dict[str, Any]) -> Response:
        prefill, decode = self.apis
        quiet = {**body, "stream": False}
        first = asyncio.ensure_future(prefill.answer(path, quiet))
        second = asyncio.ensure_future(decode.answer(path, body))
        try:
            answer = await second
            refused = await first  # both heads; decode's stream has nothing to say before prefill is done
            if isinstance(answer, base.EventStream):
                if refused.status_code < 400:
                    return answer
                answer.leave()
                return _prefill_error(refused)
        except BaseException:
            for leg in (first, second):
                leg.cancel()
            for made in await asyncio.gather(first, second, return_exceptions=True):
                if isinstance(made, base.EventStream):
                    made.leave()
            raise
        if answer.status_code >= 400:
            return answer
        if refused.status_code >= 400:
            return _prefill_error(refused)
        return answer

    def workers(self) -> dict[str, Any]:
        """``GET /workers`` (SMG crates/protocols/src/worker.rs)."""
        kinds = {"unified": "regular", "prefill": "prefill", "decode": "decode"}
        listed = []
        for number, api in enumerate(self.apis):
            worker = {
                "id": f"00000000-0000-4000-8000-{number:012d}",
                "url": f"http://127.0.0.1:{api.port}",
                "model_id": self.config.model,
                "worker_type": kinds[api.node.role],
                "connection_mode": "http",
                "runtime_type": self.config.flavour,
                "labels": {},
                "priority": 50,
                "cost": 1.0,
                "is_healthy": True,
                "status": "ready",
                "load": api.node.running + api.node.waiting,
            }
            if api.node.role == "prefill":
                worker["bootstrap_port"] = 8998
            listed.append(worker)
        by_type = {kind: sum(each["worker_type"] == kind for each in listed) for kind in kinds.values()}
        stats = {
            "total_workers": len(listed),
            "healthy_workers": len(listed),
            "total_models": 1,
            "total_load": sum(int(str(each["load"])) for each in listed),
            "by_type": by_type,
        }
        return {"workers": listed, "total": len(listed), "stats": stats}

    def application(self) -> ASGIApp:
        """The routes of a gateway; everything else is 404."""

        async def readiness(http: HTTPRequest) -> Response:
            count = len(self.apis)
            return base.json_response({"status": "ready", "healthy_workers": count, "total_workers": count})

        async def alive(http: HTTPRequest) -> Response:
            return PlainTextResponse("OK")

        async def list_workers(http: HTTPRequest) -> Response:
            if base.bearer(http.scope) != self.config.router_key and self.faults.router_requires_key():
                return base.json_response({"error": "Unauthorized"}, 401)
            return base.json_response(self.workers())

        async def proxied(http: HTTPRequest) -> Response:
            """Answered by the first worker, without any sign that it is a proxied answer."""
            api = self.apis[0]
            return base.json_response(self.faults.disclose(http.url.path, api.document(http.url.path)))

        async def engine_metrics(http: HTTPRequest) -> Response:
            return PlainTextResponse("".join(api.exposition() for api in self.apis))

        async def keyed(http: HTTPRequest) -> Response:
            """Tokenizer routes, for tenants."""
            if self.tenant(http) is None:
                return base.json_response({"error": "Unauthorized"}, 401)
            return await self.tokenizer(http)

        posts = ["/v1/completions", "/v1/chat/completions"]
        documents = ["/v1/models"]
        if self.config.flavour == "sglang":
            posts.insert(0, "/generate")
            documents += ["/model_info", "/get_model_info", "/server_info", "/get_server_info"]
        routes = [
            *[Route(path, alive) for path in ("/liveness", "/health", "/health_generate")],
            Route("/readiness", readiness),
            Route("/workers", list_workers),
            Route("/engine_metrics", engine_metrics),
            *[Route(path, proxied) for path in documents],
            *[Route(path, keyed, methods=["POST"]) for path in ("/tokenize", "/v1/tokenize")],
            *[Route(path, self.generation, methods=["POST"]) for path in posts],
        ]
        application = Starlette(routes=routes)
        return base.LabHeader(self.faults.wrap(application))

    async def tokenizer(self, http: HTTPRequest) -> Response:
        try:
            return self.apis[0].tokenize(await base.body_of(http))
        except Refused as refused:
            return self.apis[0].error("/v1/completions", refused.message, refused.status)


def _prefill_error(refused: Response) -> Response:
    """SMG's answer when decode is well and prefill is not: a stream never begins."""
    message = f"Prefill server error ({refused.status_code}): {bytes(refused.body).decode()}"
    error = {"type": "Bad Request", "code": "prefill_bad_request", "message": message}
    return base.json_response({"error": error}, refused.status_code)
