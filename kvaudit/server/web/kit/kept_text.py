"""Keeps what somebody typed into a form that could not be taken: they were logged out meanwhile, the form had
expired, their role does not allow it any more, or what it was about is gone.

It is shown, goes along through the login, and can be sent again with one click. Never a password or key, never
files; and never what another site sent, which nobody here typed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.shortcuts import render
from django.urls import Resolver404, resolve, reverse
from django.utils.http import url_has_allowed_host_and_scheme

MOST_BYTES = 2_500_000
MOST_FIELDS = 300
_OURS = {
    "csrfmiddlewaretoken", "act", "kind", "enabled", "next", "kept", "step", "seen", "version", "replaces", "line",
    "item", "override", "query", "page", "session", "to",
}  # fmt: skip
"""Fields that say which form it was, not what was typed."""
_SECRET = ("password", "secret", "token")


@dataclass(frozen=True, slots=True)
class KeptInput:
    """``path`` is where the form goes, ``fields`` all of it, ``had_files`` whether files have to be chosen again."""

    path: str
    fields: Sequence[tuple[str, str]]
    had_files: bool = False

    @property
    def typed(self) -> list[tuple[str, str, int]]:
        """Name, text and rows of what is worth reading."""
        worth = [(name, text) for name, text in self.fields if name not in _OURS and text.strip()]
        return [
            (name.replace("_", " "), text, min(12, text.count("\n") + 1 + len(text) // 80))
            for name, text in worth
        ]

    @property
    def as_json(self) -> str:
        return json.dumps([self.path, list(self.fields), self.had_files])


def of(request: HttpRequest, *, read: bool = False) -> KeptInput | None:
    """What the request carries; None where that is nothing that anybody typed. Large ones are not read for it, but
    what was ``read`` already, with a file beside it, is."""
    announced = request.META.get("CONTENT_LENGTH") or "0"
    if (
        not announced.isdecimal()
        or (int(announced) > MOST_BYTES and not read)
        or request.path == reverse("login")
    ):
        return None
    try:
        posted = request.POST
    except (UnreadablePostError, RequestDataTooBig, TooManyFieldsSent, MultiPartParserError):
        return None
    fields = [
        (name, text) for name, texts in posted.lists() if not _is_secret(request.path, name) for text in texts
    ]
    kept = KeptInput(request.get_full_path(), fields[:MOST_FIELDS], bool(request.FILES))
    return kept if kept.typed else None


def carried(request: HttpRequest) -> KeptInput | None:
    """What came along with the login form."""
    try:
        path, fields, had_files = json.loads(request.POST.get("kept", ""))
        kept = KeptInput(
            str(path), [(str(name), str(text)) for name, text in fields][:MOST_FIELDS], bool(had_files)
        )
        resolve(kept.path.partition("?")[0])
    except (ValueError, TypeError, RecursionError, Resolver404):
        return None
    ours = kept.path.startswith("/") and url_has_allowed_host_and_scheme(kept.path, allowed_hosts=None)
    return kept if ours else None


def to_login(request: HttpRequest, kept: KeptInput) -> HttpResponse:
    """The login page with what was typed on it."""
    context = {"form": AuthenticationForm(request), "kept": kept, "next": ""}
    return _not_cached(render(request, "kit/login.html", context, status=403))


def to_send_again(request: HttpRequest, kept: KeptInput) -> HttpResponse:
    """A page with what was typed and a button that sends it."""
    return _not_cached(render(request, "kit/kept_page.html", {"kept": kept, "problem": ""}))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's `CSRF_FAILURE_VIEW`: in words, with what was typed where it was typed on a page of ours."""
    kept = of(request) if _same_origin(request) else None
    if kept is None:
        return _not_cached(render(request, "403_csrf.html", status=403))
    if not request.user.is_authenticated:
        return to_login(request, kept)
    return _not_cached(render(request, "kit/kept_page.html", {"kept": kept, "expired": True}, status=403))


def not_allowed(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's ``handler403``."""
    context = {"exception": str(exception), "kept": _refused(request)}
    return _not_cached(render(request, "403.html", context, status=403))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's ``handler404``."""
    return _not_cached(render(request, "404.html", {"kept": _refused(request)}, status=404))


def _refused(request: HttpRequest) -> KeptInput | None:
    """What was typed into a form of ours by somebody who is logged in."""
    ours = request.method == "POST" and request.user.is_authenticated and _same_origin(request)
    return of(request) if ours else None


def _same_origin(request: HttpRequest) -> bool:
    """Whether the browser says that the form was on a page of ours; a browser that says nothing is not believed."""
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    if site is not None and site != "same-origin":
        return False
    if origin is None:
        return site is not None
    return origin == f"{request.scheme}://{request.get_host()}"


def _is_secret(path: str, name: str) -> bool:
    lowered = name.lower()
    return any(word in lowered for word in _SECRET) or (lowered == "key" and path.endswith("/keys/"))


def _not_cached(response: HttpResponse) -> HttpResponse:
    response.headers["Cache-Control"] = "private, no-store"
    return response
