"""Walks through an upgraded installation as its users would, and prints what it found as one line of JSON.

Run as ``python -m tests.upgrade.walk`` with the environment of the product's web process. Every address of the URL conf
is visited that takes no arguments, that a page links to, or whose arguments other addresses have shown.
"""

from __future__ import annotations

import html
import json
import re
import sys
from collections import defaultdict, deque
from itertools import islice, product
from typing import Any

import django

MOST = 8
"""Addresses visited of one kind."""

TRIED = 24
"""Combinations of arguments tried for a kind that no page leads to."""

_LINKS = re.compile(r'(?:href|action|data-figure|hx-get)="(/[^"#]*)')


def patterns() -> dict[str, Any]:
    """View name -> its pattern, of the whole URL conf."""
    from django.urls import URLPattern, get_resolver

    found: dict[str, Any] = {}

    def look(resolver: Any, prefix: str) -> None:
        for pattern in resolver.url_patterns:
            if isinstance(pattern, URLPattern):
                if pattern.name:
                    found[prefix + pattern.name] = pattern
            else:
                look(pattern, prefix + (f"{pattern.namespace}:" if pattern.namespace else ""))

    look(get_resolver(), "")
    return found


class Walk:
    """Breadth first through what a visitor can reach; ``seen`` holds view name -> {address: status}."""

    def __init__(self, client: Any, token: str) -> None:
        self.client, self.token = client, token
        self.seen: dict[str, dict[str, int]] = defaultdict(dict)
        self.values: dict[str, list[Any]] = defaultdict(list)
        self.waiting: deque[str] = deque()

    def go_on(self) -> None:
        from django.urls import Resolver404, resolve

        while self.waiting:
            address = self.waiting.popleft()
            try:
                match = resolve(address.partition("?")[0])
            except Resolver404:
                self.seen[f"nowhere: {address}"][address] = 404
                continue
            kind = match.view_name
            for name, value in match.kwargs.items():
                if str(value) not in map(str, self.values[name]):
                    self.values[name].append(value)
            if address in self.seen[kind] or len(self.seen[kind]) >= MOST:
                continue
            self.seen[kind][address] = self.visit(address)

    def visit(self, address: str) -> int:
        """The status; what a page leads to is put in line."""
        bearer = {"authorization": f"Bearer {self.token}"} if address.startswith("/api/") else {}
        answer = self.client.get(address, headers=bearer)
        if answer.status_code in (301, 302, 303, 307):
            if not answer["Location"].startswith(("/login", "http")):
                self.waiting.append(answer["Location"])
            return int(answer.status_code)
        whole = b"".join(answer.streaming_content) if answer.streaming else answer.content
        if answer.get("Content-Type", "").startswith("text/html"):
            for link in _LINKS.findall(whole.decode()):
                if not link.startswith("/static/"):  # served before Django sees them
                    self.waiting.append(html.unescape(link))
        return int(answer.status_code)

    def guess(self, name: str, pattern: Any) -> None:
        """Arguments that other addresses have shown, until one is answered."""
        from django.urls import NoReverseMatch, reverse

        wanted = list(pattern.pattern.converters)
        for values in islice(product(*(self.values[each] for each in wanted)), TRIED):
            try:
                address = reverse(name, kwargs=dict(zip(wanted, values, strict=True)))
            except NoReverseMatch:
                continue
            status = self.visit(address)
            if status != 404:
                self.seen[name][address] = status
                return


def pages(client: Any, token: str) -> dict[str, dict[str, int]]:
    """View name -> {address: status}; an empty one is a kind of which nothing was found."""
    from django.urls import reverse

    walk = Walk(client, token)
    known = patterns()
    for name, pattern in known.items():
        if not pattern.pattern.converters:
            walk.waiting.append(reverse(name))
    walk.go_on()
    for name, pattern in known.items():
        if not walk.seen[name]:
            walk.guess(name, pattern)
            walk.go_on()
    return {name: dict(found) for name, found in walk.seen.items()}


def sealed(client: Any) -> list[int]:
    """Opens the newest sealed texts with a reason; statuses: 409 where the page says why it stays closed."""
    from django.urls import reverse

    from kvaudit.server.audits.evidence.sealed_text import KIND
    from kvaudit.server.audits.models import RunEvidence

    found = []
    for use in RunEvidence.objects.filter(kind=KIND).order_by("-run_id")[:5]:
        address = reverse("evidence", args=[use.run_id, use.evidence_id])
        answer = client.post(address, {"reason": "after the upgrade, does it still open?"})
        found.append(int(answer.status_code))
    return found


def credentials() -> dict[str, Any]:
    """How many deployments' keys open, and what is said of those that do not."""
    from kvaudit.server.fleet.models import Deployment
    from kvaudit.server.fleet.target_loader import load_targets

    targets, broken = load_targets(Deployment.objects.all())
    opened = [tenant for target in targets.values() for tenant in target.tenants]
    opened += [node for target in targets.values() for node in target.nodes if node.credentials.headers]
    return {"opened": len(opened), "broken": broken}


def token() -> str:
    """A new token that may read."""
    from kvaudit.server.accounts.models import TokenScope, User
    from kvaudit.server.accounts.tokens import create_token
    from tests.upgrade.installation import ADMIN

    owner = User.objects.get(username=ADMIN)
    _, shown = create_token(owner=owner, name="walk", scopes=list(TokenScope), actor=owner)
    return shown


def main() -> int:
    django.setup()
    from django.core.management import call_command
    from django.test import Client

    from tests.upgrade.installation import ADMIN, PASSWORD

    client = Client(raise_request_exception=False, headers={"host": "127.0.0.1"})
    login = client.post("/login/", {"username": ADMIN, "password": PASSWORD})
    found = {
        "login": login.status_code,
        "pages": pages(client, token()),
        "sealed": sealed(client),
        "credentials": credentials(),
    }
    call_command("reseal", stdout=sys.stderr)  # opens every sealed column, or ends with a sentence
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
