"""Start the lab: three deployments on this machine to look at, where the product was started without them."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect

from kvaudit.server.accounts.access import access_of
from kvaudit.server.web.kit.page import SignedIn, page


def may_start(request: SignedIn) -> bool:
    """Whether this installation has a lab to start, and the user may describe fleets for everybody."""
    return bool(settings.LAB_WISH_FILE) and access_of(request.user).everywhere("edit_fleet")


@page("POST")
def start(request: SignedIn) -> HttpResponse:
    """Leave a note for whoever started this process: the web starts no programs."""
    if not may_start(request):
        raise PermissionDenied(
            "The lab is started by somebody who may import fleets for every team, where kvaudit was started "
            "on one machine with --no-lab."
        )
    try:
        Path(settings.LAB_WISH_FILE).touch()
    except OSError as fault:
        messages.error(request, f"The lab cannot be asked for: {fault.strerror}.")
    else:
        messages.success(
            request,
            "The lab starts: three deployments of this machine, one of which leaks. They are here within half a "
            "minute; reload this page. It ends with kvaudit; started without --no-lab, it comes by itself.",
        )
    return redirect("fleet")
