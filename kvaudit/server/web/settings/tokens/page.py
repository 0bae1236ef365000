"""API tokens as the list shows them, and the lines that use a new one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.conf import settings
from django.db.models import Q

from kvaudit.server.accounts.models import ApiToken, TokenScope, User
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.web.kit import listing
from kvaudit.server.web.kit.listing import Page, choice, keyset_page, position, text
from kvaudit.server.web.kit.parts.reproduce import TOKEN, gate_line

_REPORT = '{"schema": "kvaudit.report/1", "verdict": "pass"}'  # of one's own reading: history alone is asked


@dataclass(frozen=True, slots=True)
class TokenRow:
    """``ended`` says why it no longer works, "" while it does."""

    token: ApiToken
    ended: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    """``state``: "" shows those that work, ``ended`` the others, or ``all``."""

    q: str = text()
    state: str = choice(("ended", "all"))
    after: str = position(numeric=True)
    before: str = position(numeric=True)


def listed(reader: User, filters: Filters, now: datetime) -> Page:
    """Tokens that the reader may see, newest first; one query."""
    tokens = ApiToken.objects.visible_to(reader).select_related("owner", "team")
    if filters.state == "":
        tokens = tokens.usable(now)
    elif filters.state == "ended":
        tokens = tokens.exclude(pk__in=ApiToken.objects.usable(now).values("pk"))
    if filters.q:
        named = Q(name__icontains=filters.q) | Q(prefix__startswith=filters.q)
        tokens = tokens.filter(named | Q(owner__username__icontains=filters.q))
    shown = keyset_page(tokens, "pk", filters, newest_first=True)
    return replace(shown, rows=[TokenRow(row, ended(row, now)) for row in shown.rows])


def ended(token: ApiToken, now: datetime) -> str:
    """Why a token does not work; "" when it does. ``token.owner`` is joined."""
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and token.expires_at <= now:
        return "expired"
    return "" if token.owner.is_active else "owner deactivated"


def lines(token: ApiToken, secret: str) -> Sequence[tuple[str, str]]:
    """(what it does, a line for a shell) for each thing that the token may do, shown for the first deployment
    that it sees. The secret stands in the first line alone, so that the others may go into a pipeline's file."""
    seen = Deployment.objects.visible_to_token(token).active().order_by("slug").first()
    found = [("Put it where the others read it", f"export {TOKEN}={shlex.quote(secret)}")]
    if token.allows(TokenScope.READ.value):
        found.append(("Every deployment with its status", _curl("/api/v1/deployments")))
    if token.allows(TokenScope.GATE.value):
        slug = seen.slug if seen else "SLUG"
        address = f"/api/v1/deployments/{slug}/gate"
        history = _curl(address, "-H", "Content-Type: application/json", "-d", _REPORT)
        found.append((f"What history knows of {slug}", history))
        gate = gate_line(seen, settings.BASE_URL).line if seen else ""
        found.append(("In a pipeline: nodes and history, exit code 0 to pass", gate or _gate(slug)))
    return found


def _gate(slug: str) -> str:
    """Where no node is listed yet."""
    words = ["kvaudit", "gate", "--node", "http://NODE:30000", "--server", settings.BASE_URL]
    return shlex.join([*words, "--deployment", slug, "--token-env", TOKEN])


def _curl(address: str, *more: str) -> str:
    words = shlex.join(["curl", "-fsS", *more, f"{settings.BASE_URL}{address}"])
    return f'{words} -H "Authorization: Bearer ${TOKEN}"'
