"""Version pins: of the fleet, and of one deployment. A pin is policy; the check ``version`` judges by it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.fleet.models import Deployment, Pin
from kvaudit.server.fleet.pins import PinState
from kvaudit.server.fleet.services import set_pin
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page, require
from kvaudit.server.web.settings.pins import page as table
from kvaudit.server.web.settings.pins.forms import PinForm

FLEETS = "Pins of the whole fleet are set by operators of every team."
NOT_YOURS = "Pins are set by operators of the deployment's team."
JUDGED = "The next run of the check version judges by it."


@page("GET", "POST")
def pins(request: SignedIn) -> HttpResponse:
    held = table.fleet_pins()
    form = PinForm(sent(request), engines=table.engine_names(*(each.engine for each in held)))
    if request.method == "POST":
        require(request.user, "edit_fleet", None, FLEETS)
        if _done(request, form, None):
            return redirect("settings-pins")
    rows = table.all_rows(request.user)
    filters = table.Filters.from_query(request.GET)
    context = {
        "section": "settings",
        "now": clock.now(),
        "held": held,
        "said": table.pins_in_words(rows),
        "page": table.listed(rows, filters),
        "filters": filters,
        "states": [(state.value, table.WORDS[state][1]) for state in PinState],
        "form": form,
        "may_edit": can(request.user, "edit_fleet"),
    }
    return render_form(request, "settings/pins.html", context)


@page("GET", "POST")
def pin(request: SignedIn, slug: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    shown = table.deployment_pins(deployment)
    known = table.engine_names(
        *(build.engine for build in shown.builds), *(each.engine for each in shown.held), deployment.engine
    )
    engines = [name for name in known if name != "auto"]
    first = shown.builds[0].engine if shown.builds else deployment.engine
    form = PinForm(sent(request), engines=engines, initial={"engine": first})
    if request.method == "POST":
        require(request.user, "edit_fleet", deployment.team, NOT_YOURS)
        if _done(request, form, deployment):
            return redirect("settings-pin", slug)
    context = {
        "section": "settings",
        "now": clock.now(),
        "deployment": deployment,
        "shown": shown,
        "form": form,
        "may_edit": can(request.user, "edit_fleet", deployment.team_id),
    }
    return render_form(request, "settings/pin.html", context)


def _done(request: SignedIn, form: PinForm, deployment: Deployment | None) -> bool:
    """Set or end a pin as posted; whether the page is to be loaded anew."""
    if request.POST.get("act") == "end":
        return _ended(request, untrusted.query_text(request.POST.get("engine"), 100), deployment)
    if not form.is_valid():
        return False
    engine, specifier = form.cleaned_data["engine"], form.cleaned_data["wanted"]
    try:
        set_pin(
            engine=engine,
            specifier=specifier,
            actor=request.user,
            deployment=deployment,
            reason=form.cleaned_data["reason"],
        )
    except ValueError as problem:
        form.add_error(None, str(problem))
        return False
    messages.success(request, f"The pin is {engine}{specifier} now. {JUDGED}")
    return True


def _ended(request: SignedIn, engine: str, deployment: Deployment | None) -> bool:
    if not Pin.objects.current().filter(engine=engine, deployment=deployment).exists():
        messages.warning(request, "There was no such pin any more.")
        return True
    set_pin(engine=engine, specifier="", actor=request.user, deployment=deployment)
    rest = (
        "The fleet's holds instead, where there is one."
        if deployment
        else "The shipped one holds instead, where there is one."
    )
    messages.success(request, f"The pin of {engine} has ended. {rest} {JUDGED}")
    return True
