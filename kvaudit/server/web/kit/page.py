"""Wraps the view of every page: somebody is logged in, and times are in their zone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec
from zoneinfo import ZoneInfo

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBadRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from kvaudit.server.accounts import logins
from kvaudit.server.accounts.access import can
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.web.kit import kept_text

if TYPE_CHECKING:
    from kvaudit.server.accounts.models import Team, User

Args = ParamSpec("Args")


class SignedIn(HttpRequest):
    """A request of somebody who has logged in: what every page but the login page gets."""

    user: User


View = Callable[Concatenate[SignedIn, Args], HttpResponseBase]


def page(
    *methods: str, free: bool = False, taken: tuple[str, str] | None = None
) -> Callable[[View[Args]], Callable[..., HttpResponseBase]]:
    """Decorator of every page view. ``methods`` default to GET; HEAD comes with GET.

    ``free`` pages can be used before a one-time password has been changed. ``taken`` is kind and subject of the entry
    that the record gets before the answer leaves; the subject may name arguments of the address, like ``run:{pk}``.
    """
    allowed = methods or ("GET",)
    if "GET" in allowed:
        allowed = (*allowed, "HEAD")

    def decorate(view: View[Args]) -> Callable[..., HttpResponseBase]:
        @require_http_methods(list(allowed))
        @wraps(view)
        def wrapped(request: Any, *args: Args.args, **kwargs: Args.kwargs) -> HttpResponseBase:
            if not request.user.is_authenticated:
                kept = kept_text.of(request) if request.method == "POST" else None
                return (
                    kept_text.to_login(request, kept) if kept else redirect_to_login(request.get_full_path())
                )
            if request.user.must_change_password and not free:
                return redirect("password-change")
            with timezone.override(zone_of(request.user.zone)):
                response = view(request, *args, **kwargs)
            if taken is not None and response.status_code == 200:
                logins.note_taken(request.user, kind=taken[0], subject=taken[1].format(**kwargs))
            # Pages show who is at risk: no shared cache, and nothing on a public computer's disk.
            response.headers.setdefault("Cache-Control", "private, no-store")
            return response

        return wrapped

    return decorate


def zone_of(name: str) -> ZoneInfo:
    """The zone by name; UTC where the name is no longer (or never was) one."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return ZoneInfo("UTC")


def require(user: User, ability: str, team: Team | int | None, sentence: str) -> None:
    """Raise PermissionDenied (a 403 that shows ``sentence``) unless the user has the ability.

    For things the user may see already; what they may not see is a 404 by `visible_to`.
    """
    if not can(user, ability, team):
        raise PermissionDenied(sentence)


def refused(problem: str) -> HttpResponseBadRequest:
    """The answer of a file or a print that was asked for with an address that makes no sense: what people keep
    must not be of something else than they asked for."""
    return HttpResponseBadRequest(problem, content_type="text/plain; charset=utf-8")


def deployment_or_404(user: User, slug: str) -> Deployment:
    """A deployment that the user may see, with its team; retired ones included."""
    return get_object_or_404(Deployment.objects.visible_to(user).select_related("team"), slug=slug)
