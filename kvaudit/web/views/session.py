"""Login, logout, the one-time password, and the viewer's time zone."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpResponse
from django.shortcuts import redirect, render

from kvaudit.accounts import services
from kvaudit.web.forms import ZoneForm
from kvaudit.web.page import SignedIn, page

login = LoginView.as_view(redirect_authenticated_user=True)
logout = LogoutView.as_view()


@page("GET", "POST", free=True)
def change_password(request: SignedIn) -> HttpResponse:
    """Asked for once after a one-time password; open to everybody at any time."""
    form = SetPasswordForm(request.user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        services.change_password(
            user=request.user, password=form.cleaned_data["new_password1"], actor=request.user
        )
        update_session_auth_hash(request, request.user)
        messages.success(request, "Your password was changed.")
        return redirect("fleet")
    return render(request, "registration/change_password.html", {"form": form})


@page("GET", "POST")
def zone(request: SignedIn) -> HttpResponse:
    form = ZoneForm(
        request.POST or None, initial={"zone": request.user.zone}, unset=request.user.zone == "UTC"
    )
    if request.method == "POST" and form.is_valid():
        services.set_zone(user=request.user, zone=form.cleaned_data["zone"])
        messages.success(request, f"Times are shown in {form.cleaned_data['zone']} from now on.")
        return redirect("fleet")
    return render(request, "zone.html", {"form": form})
