"""Login, logout, the one-time password, and the viewer's time zone."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm, SetPasswordForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.http import HttpResponse
from django.shortcuts import redirect, render

from kvaudit.accounts import services
from kvaudit.web import login_throttle
from kvaudit.web.forms import ZoneForm
from kvaudit.web.page import SignedIn, page

HELD_UP = "Too many logins failed. Wait five minutes and try again, or ask an administrator."


class LoginForm(AuthenticationForm):
    """Django's, with a limit on failures."""

    def clean(self) -> dict[str, Any]:
        request, name = self.request, str(self.cleaned_data.get("username") or "")
        assert request is not None  # the view gives it
        if login_throttle.is_held_up(request, name):
            raise ValidationError(HELD_UP, code="held_up")
        try:
            given: dict[str, Any] = super().clean()
        except ValidationError:
            login_throttle.note_failure(request, name)
            raise
        if self.user_cache is not None:
            login_throttle.note_success(request, name)
        return given


class Login(LoginView):
    """The login page; 429 to whoever has guessed too often."""

    form_class = LoginForm
    redirect_authenticated_user = True

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        answer = super().form_invalid(form)
        if form.has_error(NON_FIELD_ERRORS, "held_up"):
            answer.status_code = 429
            answer["Retry-After"] = str(login_throttle.WINDOW)
        return answer


login = Login.as_view()
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
