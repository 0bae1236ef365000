"""How much a page takes.

A form's files are spooled to the temporary folder before any view is asked, which in a container is memory. So a body
is refused by its announced length first; a page that takes more says so (`takes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

LARGEST = 16 * 1024 * 1024
"""Bytes of a body that names no other limit: above every file that those pages take, with what a form adds to it."""

View = TypeVar("View", bound=Callable[..., Any])


def takes(most: int, instead: str = "") -> Callable[[View], View]:
    """Decorator of a view that takes up to ``most`` bytes; ``instead`` is a sentence for whoever has more."""

    def decorate(view: View) -> View:
        view.largest_body, view.instead = most, instead  # type: ignore[attr-defined]
        return view

    return decorate


class LargestBody:
    """Middleware. Before anything reads the body: CSRF does, and with it every file. The API has its own limit."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        announced = request.META.get("CONTENT_LENGTH") or ""
        most = getattr(view, "largest_body", LARGEST)
        if request.path.startswith("/api/") or not announced.isdecimal() or int(announced) <= most:
            return None
        said = {"size": int(announced), "most": most, "instead": getattr(view, "instead", "")}
        return render(request, "413.html", said, status=413)
