"""Login, logout, the password, the viewer's time zone, and one's own account."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, SetPasswordForm
from django.contrib.auth.views import LoginView, LogoutView
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts import logins, services, sessions, throttle
from kvaudit.server.accounts.held_roles import own_roles
from kvaudit.server.accounts.models import ApiToken, Session, User
from kvaudit.server.accounts.roles import ALLOWS
from kvaudit.server.accounts.session_store import SessionStore
from kvaudit.server.web.account import login_throttle, session_use
from kvaudit.server.web.account.forms import ZoneForm
from kvaudit.server.web.account.page import logins_of
from kvaudit.server.web.kit import kept_text
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.kit.peer import bucket

HELD_UP = (
    "Too many logins failed, so the next attempt is not made before {wait} seconds have passed. Wait and try again; "
    "an administrator can draw a new one-time password."
)
FRESH = timedelta(minutes=10)
"""So long after the login with a one-time password it is not asked for again."""
WRONG_PASSWORDS, WRONG_PACE = 5, timedelta(seconds=30)


class LoginForm(AuthenticationForm):
    """Django's, with a limit on failures."""

    wait = 0

    def clean(self) -> dict[str, Any]:
        request, name = self.request, str(self.cleaned_data.get("username") or "")
        assert request is not None  # the view gives it
        attempt = login_throttle.Attempt.of(request, name)
        self.wait = login_throttle.wait(attempt)
        if self.wait:
            raise ValidationError(HELD_UP.format(wait=self.wait), code="held_up")
        try:
            given: dict[str, Any] = super().clean()
        except ValidationError:
            made = login_throttle.note_failure(attempt)
            logins.note_failure(name, address=bucket(request), failures=made)
            raise
        if self.user_cache is not None:
            login_throttle.note_success(attempt)
        return given


class Login(LoginView):
    """The login page; 429 to whoever has guessed too often. What somebody typed before they were logged out comes
    along and can be sent again (`kept_text`)."""

    form_class = LoginForm
    template_name = "kit/login.html"
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        SessionStore.clear_expired()
        answer = super().form_valid(form)
        user = form.get_user()
        assert isinstance(user, User)
        session_use.note(self.request)
        logins.note_login(
            user,
            address=bucket(self.request),
            browser=sessions.browser_of(self.request.headers.get("User-Agent", "")),
        )
        if kept := kept_text.carried(self.request):
            answer = kept_text.to_send_again(self.request, kept)
        login_throttle.remember(answer, user)
        return answer

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        answer = self.render_to_response(self.get_context_data(form=form), status=422)
        if form.has_error(NON_FIELD_ERRORS, "held_up"):
            answer.status_code = 429
            assert isinstance(form, LoginForm)
            answer["Retry-After"] = str(form.wait)
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        form = context["form"]
        wrong = form if form.is_bound and form.errors else None
        return {**context, "wrong": wrong, "kept": kept_text.carried(self.request)}


class Logout(LogoutView):
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if isinstance(request.user, User):
            logins.note_logout(request.user)
        answer: HttpResponse = super().post(request, *args, **kwargs)
        return answer


login = Login.as_view()
logout = Logout.as_view()


class OwnPasswordForm(PasswordChangeForm):
    """Asks for the old password: whoever finds an unlocked screen does not become its owner for good."""

    user: User

    def clean_old_password(self) -> str:
        subject = repr(("old password", self.user.pk))
        if throttle.failures([subject])[subject] >= WRONG_PASSWORDS and not throttle.turn(
            subject, WRONG_PACE
        ):
            raise ValidationError("It was wrong several times: wait half a minute, then try again.")
        try:
            return super().clean_old_password()
        except ValidationError:
            throttle.count(subject, timedelta(hours=1))
            throttle.turn(subject, WRONG_PACE)
            raise


@page("GET", "POST", free=True)
def change_password(request: SignedIn) -> HttpResponse:
    """Asked for once after a one-time password; open to everybody at any time."""
    session = own_session(request)
    form = _password_form(request, session)
    if request.method == "POST" and form.is_valid():
        ended = services.change_password(
            user=request.user, password=form.cleaned_data["new_password1"], actor=request.user, but=session
        )
        update_session_auth_hash(request, request.user)
        session_use.note(request)
        messages.success(request, f"Your password was changed: {ended}.")
        return redirect("fleet")
    now = clock.now()
    context = {
        "form": form,
        "others": len([each for each in sessions.sessions_of(request.user) if each != session]),
        "tokens": ApiToken.objects.usable(now).filter(owner=request.user).count(),
    }
    return render_form(request, "account/change_password.html", context)


def _password_form(request: SignedIn, session: Session | None) -> forms.Form:
    fresh = session is not None and clock.now() - session.created_at < FRESH
    if request.user.must_change_password and fresh:
        return SetPasswordForm(request.user, sent(request))
    return OwnPasswordForm(request.user, sent(request))


def own_session(request: HttpRequest) -> Session | None:
    """The row of the session that asks."""
    return request.session.row() if isinstance(request.session, SessionStore) else None


@page("GET", "POST")
def zone(request: SignedIn) -> HttpResponse:
    form = ZoneForm(
        sent(request),
        initial={"zone": request.user.zone},
        unset=request.user.zone == "UTC",
    )
    if request.method == "POST" and form.is_valid():
        services.set_zone(user=request.user, zone=form.cleaned_data["zone"])
        messages.success(request, f"Times are shown in {form.cleaned_data['zone']} from now on.")
        return redirect("fleet")
    return render_form(request, "account/zone.html", {"form": form})


@page()
def account(request: SignedIn) -> HttpResponse:
    """One's own: name, roles, zone, password."""
    context = {
        "section": "settings",
        "now": clock.now(),
        "held": own_roles(request.user),
        "allows": ALLOWS.items(),
        "tokens": ApiToken.objects.usable(clock.now()).filter(owner=request.user).count(),
        "sessions": sessions.sessions_of(request.user),
        "own": own_session(request),
        "logins": logins_of(request.user),
    }
    return render(request, "account/account.html", context)


@page("POST")
def end_sessions(request: SignedIn) -> HttpResponse:
    """One of one's own (``session``), or all but the one that asks."""
    own = own_session(request)
    if key := request.POST.get("session", ""):
        wanted = int(key) if key.isascii() and key.isdigit() and len(key) < 19 else 0
        found = get_object_or_404(request.user.sessions.select_related("user"), pk=wanted)
        sessions.end_session(session=found, actor=request.user)
        messages.success(request, f"That session ({found.browser or 'unknown'}) has ended.")
    else:
        count = sessions.end_sessions(user=request.user, actor=request.user, but=own)
        messages.success(request, f"{count} other session{'' if count == 1 else 's'} of yours ended.")
    return redirect("settings-account")
