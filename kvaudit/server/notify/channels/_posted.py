"""Kinds whose message is one POST: the address is a URL, and its path is often a password."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import urlsplit

from kvaudit.auditor.transport import Limits, TransportError, egress, origin_of, parse_base_url
from kvaudit.server.notify.channels._kind import BadChannel, Kind, Letter

LIMITS = Limits(total=10.0, connect=3.0, read=10.0, body=65_536)


@dataclass(frozen=True, slots=True)
class Post:
    """Body and further headers of one POST."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


class PostedKind(Kind):
    """What a kind that posts adds is the body and its headers."""

    whose: ClassVar[str] = "channel's"
    """For sentences about its address."""

    @abstractmethod
    def post(self, letter: Letter) -> Post:
        """What is sent to the letter's address."""

    def shown(self, address: str) -> str:
        """Scheme and host."""
        text = address.strip()
        origin, _ = self._split(text)
        try:
            base = parse_base_url(origin)
        except TransportError as problem:
            raise BadChannel(f"The {self.whose} address cannot be used. {problem}") from None
        if why := egress.current().refusal_now(base.host, base.port):
            raise BadChannel(f"The {self.whose} address cannot be used. {base.host}:{base.port} is {why}.")
        parts = urlsplit(text)
        return f"{origin}/..." if parts.path.strip("/") or parts.query else origin

    def origins(self, address: str) -> frozenset[str]:
        return frozenset({origin_of(address)})

    def send(self, letters: Sequence[Letter]) -> list[str]:
        """Side by side."""
        return asyncio.run(self._send(letters))

    async def _send(self, letters: Sequence[Letter]) -> list[str]:
        return list(await asyncio.gather(*map(self._send_one, letters)))

    async def _send_one(self, letter: Letter) -> str:
        from kvaudit.auditor.transport import over_httpx  # a quarter of a second that only a sender pays

        try:
            origin, path = self._split(letter.address)
            sent = self.post(letter)
            headers = {"Content-Type": sent.content_type, **sent.headers}
            as_given = {"target": path.encode()}  # httpx would spell it anew
            async with over_httpx.client(
                over_httpx.PinnedTransport(limits=LIMITS, redact=[letter.secret])
            ) as client:
                answer = await client.post(origin, content=sent.body, headers=headers, extensions=as_given)
        except BadChannel as problem:
            return str(problem)
        except TransportError as problem:
            whole = str(problem).replace(origin + path, letter.shown)
            return whole.replace(path, "/...") if len(path) > 1 else whole
        if 200 <= answer.status_code < 300:
            return ""
        return f"{letter.shown} answered {answer.status_code}; 2xx means delivered."

    def _split(self, url: str) -> tuple[str, str]:
        """(origin, path with query). Raises `BadChannel`."""
        no_url = f"The {self.whose} address is no URL; write it like https://host/path."
        try:
            parts = urlsplit(url)
        except ValueError:
            raise BadChannel(no_url) from None
        if parts.scheme not in ("http", "https") or not parts.netloc or len(url) > 2_000:
            raise BadChannel(no_url)
        if parts.fragment or not url.isascii() or any(ord(char) <= 32 for char in url):
            raise BadChannel(f"The {self.whose} address must be plain ASCII without spaces and without '#'.")
        return f"{parts.scheme}://{parts.netloc}", (parts.path or "/") + (
            f"?{parts.query}" if parts.query else ""
        )
