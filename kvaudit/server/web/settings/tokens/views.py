"""API tokens: the list, a new one (shown once), and its end."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import ApiToken
from kvaudit.server.accounts.tokens import create_token, revoke_token
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.settings.forms import TokenForm
from kvaudit.server.web.settings.tokens import page as table


@page("GET", "POST")
def tokens(request: SignedIn) -> HttpResponse:
    form = TokenForm(sent(request), owner=request.user)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        token, secret = create_token(
            owner=request.user,
            name=said["name"],
            scopes=said["scopes"],
            team=said["team"],
            deployments=[deployment.slug for deployment in said["deployments"]],
            expires_at=form.expires_at(),
            actor=request.user,
        )
        # In the answer itself: a message would keep it in a cookie, a session in the database.
        context = {
            "section": "settings",
            "token": token,
            "secret": secret,
            "lines": table.lines(token, secret),
        }
        return render(request, "settings/token_once.html", context)
    now = clock.now()
    filters = table.Filters.from_query(request.GET)
    context = {
        "section": "settings",
        "now": now,
        "page": table.listed(request.user, filters, now),
        "filters": filters,
        "form": form,
        "everybodys": can(request.user, "manage_tokens"),
    }
    return render_form(request, "settings/tokens.html", context)


@page("POST")
def revoke(request: SignedIn, pk: int) -> HttpResponse:
    found = get_object_or_404(ApiToken.objects.visible_to(request.user).select_related("owner"), pk=pk)
    revoke_token(token=found, actor=request.user)
    messages.success(request, f"The token {found.name} no longer works.")
    return redirect("settings-tokens")
