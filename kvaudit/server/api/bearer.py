"""Authenticates bearer tokens, and says in a sentence what keeps a request out."""

from __future__ import annotations

import re

from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.security import HttpBearer

from kvaudit.server.accounts.models import ApiToken
from kvaudit.server.accounts.tokens import authenticate
from kvaudit.server.fleet.models import Deployment

_SLUG = re.compile(r"[-_a-zA-Z0-9]{1,100}\Z")  # nothing else is a slug, and NUL would reach the database


class Bearer(HttpBearer):
    """``Authorization: Bearer kva_...``; the token is ``request.auth`` afterwards."""

    openapi_description = "An API token, made under Settings; it is shown once."

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        return authenticate(token)


def visible_deployment(token: ApiToken, slug: str, scope: str) -> Deployment:
    """The deployment, or 403 for a missing scope and 404 for unknown and unseen alike."""
    require_scope(token, scope)
    rows = Deployment.objects.visible_to_token(token).active().select_related("team")
    found = rows.filter(slug=slug).first() if _SLUG.match(slug) else None
    if found is None:
        raise HttpError(404, f"There is no deployment {slug[:100]!r} that this token may see.")
    return found


def require_scope(token: ApiToken, scope: str) -> None:
    if not token.allows(scope):
        raise HttpError(403, f"This token lacks the scope {scope!r}; make one that has it.")
