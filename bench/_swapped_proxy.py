"""Stands before a real server and swaps parts of prompts for another tenant's: what an engine does that reads
stale pages, to a model that nobody here wrote.

    bench/_swapped_proxy.py PORT UPSTREAM "all|half|all but the last page|middle" [/v1/completions|/chat/completions]

A part is counted in tokens where the prompt is token ids, else in characters (four a token). With a route only its
prompts are swapped, and only among each other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import httpx
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

PAGE = 64
LEAST = 600
"""Shorter prompts are left alone: health and calibration."""

Part = list[int] | str


def swapped(own: Any, other: Any, how: str, page: int) -> Any:
    """``own`` with the pages of ``how`` taken from ``other``; what ``other`` lacks in length stays own."""
    length = min(len(own), len(other))
    if how == "all":
        return other
    if how == "half":
        return other[: length // 2] + own[length // 2 :]
    if how == "all but the last page":
        return other[: max(0, length - page)] + own[max(0, length - page) :]
    if how == "middle":
        third = length // 3
        return own[:third] + other[third : 2 * third] + own[2 * third :]
    return own


class Proxy:
    def __init__(self, upstream: str, how: str, route: str = "completions") -> None:
        self.how, self.route = how, route
        self.client = httpx.AsyncClient(base_url=upstream, timeout=400)
        self.last: dict[tuple[str, str], Sequence[Any]] = {}

    def _meddle(self, path: str, key: str, body: dict[str, Any]) -> None:
        prompt = body["messages"][-1]["content"] if "messages" in body else body.get("prompt")
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], list):
            prompt = prompt[0]
        kind, page = (path, PAGE) if isinstance(prompt, list) else (path + " text", 4 * PAGE)
        if not prompt or len(prompt) < LEAST * (1 if isinstance(prompt, list) else 4):
            return
        other = next((said for (name, k), said in self.last.items() if name != key and k == kind), None)
        self.last[key, kind] = prompt
        if other is not None:
            new = swapped(prompt, other, self.how, page)
            if "messages" in body:
                body["messages"][-1]["content"] = new
            else:
                body["prompt"] = new

    async def handle(self, request: Request) -> Response:
        body = await request.body()
        path = request.url.path
        headers = {
            name: request.headers[name]
            for name in ("authorization", "content-type")
            if name in request.headers
        }
        if request.method == "POST" and path.endswith(self.route):
            document = orjson.loads(body)
            self._meddle(path, headers.get("authorization", ""), document)
            body = orjson.dumps(document)
        upstream = self.client.build_request(request.method, path, content=body, headers=headers)
        answer = await self.client.send(upstream, stream=True)
        kind = answer.headers.get("content-type", "application/json")
        if kind.startswith("text/event-stream"):
            return StreamingResponse(answer.aiter_raw(), answer.status_code, media_type=kind)
        return Response(await answer.aread(), answer.status_code, media_type=kind)


if __name__ == "__main__":
    port, upstream, how, *route = sys.argv[1:]
    routes = [Route("/{path:path}", Proxy(upstream, how, *route).handle, methods=["GET", "POST"])]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=int(port), log_level="warning")
