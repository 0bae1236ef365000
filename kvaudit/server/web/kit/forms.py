"""Renders every form that comes back in one way: status 422, its problems on top with links to the fields,
nothing typed lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from kvaudit.server.web.kit import kept_text


def sent(request: HttpRequest, act: str = "") -> Any:
    """What a form is bound to; of a page with several forms, that of ``act``. `request.POST or None` would take an
    empty answer for none."""
    if request.method != "POST" or (act and request.POST.get("act") != act):
        return None
    return request.POST


def render_form(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    wrong: forms.BaseForm | None = None,
    status: int = 422,
) -> HttpResponse:
    """The page; ``status`` when it answers a form that did not fit. ``wrong`` is that form; without it, the one of the
    context that has errors. Its problems are listed by base.html."""
    wrong = wrong or next((each for each in context.values() if _is_wrong(each)), None)
    if wrong is None:
        return render(request, template, context)
    context = {**context, "wrong": wrong}
    answer = render(request, template, context, status=status)
    if _holds(answer, wrong):
        return answer
    # The page has no such form any more (somebody closed what it was about): what was typed is shown all the same.
    return render(
        request, template, {**context, "gone": True, "lost": kept_text.of(request, read=True)}, status=status
    )


def _holds(answer: HttpResponse, form: forms.BaseForm) -> bool:
    """Whether every field that somebody types into is on the page."""
    texts = [field for field in form if isinstance(field.field.widget, forms.TextInput | forms.Textarea)]
    return all(
        f'id="{field.id_for_label}"'.encode() in answer.content for field in texts if not field.is_hidden
    )


def alone(
    request: HttpRequest, form: forms.BaseForm, *, title: str, act: tuple[str, str], back: str, section: str
) -> HttpResponse:
    """A small form of some page, by itself, as it was typed: 422. ``act`` is the button's value and text, ``back`` the
    address of the page."""
    context = {"form": form, "title": title, "act": act, "back": back, "section": section}
    return render_form(request, "kit/alone.html", context, wrong=form)


def _is_wrong(value: object) -> bool:
    return isinstance(value, forms.BaseForm) and value.is_bound and bool(value.errors)
