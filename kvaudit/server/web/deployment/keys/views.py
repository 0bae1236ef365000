"""Keys of a deployment: tenants' keys and nodes' headers. They can be set and removed, never read."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect

from kvaudit.server import clock
from kvaudit.server.audits.schedule.defaults import ensure_default_plans
from kvaudit.server.fleet import services
from kvaudit.server.fleet.key_overview import StoredKey, addresses_shown, equal_stored_keys, keys_of
from kvaudit.server.fleet.models import Deployment, Node, Tenant
from kvaudit.server.fleet.sealed_headers import BadHeaders, bearer
from kvaudit.server.web.deployment.keys.forms import KeyForm
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page, require

NOT_YOURS = "Keys are set by operators of the deployment's team."


@page("GET", "POST")
def keys(request: SignedIn, slug: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    require(request.user, "edit_fleet", deployment.team, NOT_YOURS)
    stored = _stored(deployment)
    shown = addresses_shown(stored)
    form = KeyForm(sent(request), choices=_choices(stored))
    if request.method == "POST" and form.is_valid():
        try:
            said = _store(request, deployment, form, shown)
        except BadHeaders as problem:
            form.add_error("key", str(problem))
        else:
            ensure_default_plans(deployment=deployment, actor=request.user)
            messages.success(request, said)
            return redirect("keys", slug)
    context = {
        "section": "fleet",
        "now": clock.now(),
        "deployment": deployment,
        "stored": stored,
        "addresses": shown,
        "equal": equal_stored_keys(Tenant.objects.current().filter(deployment=deployment)),
        "form": form,
    }
    return render_form(request, "deployment/keys.html", context)


def _choices(stored: list[StoredKey]) -> list[tuple[str, str]]:
    """``tenant:NAME`` and ``node:NAME``; names, since a node's row is replaced when it changes."""
    return [(f"{item.kind}:{item.name}", f"{item.kind} {item.name}") for item in stored]


def _stored(deployment: Deployment) -> list[StoredKey]:
    return keys_of(
        deployment,
        Tenant.objects.current().filter(deployment=deployment),
        list(Node.objects.current().filter(deployment=deployment)),
    )


@transaction.atomic
def _store(request: SignedIn, deployment: Deployment, form: KeyForm, shown: str) -> str:
    """Store or remove what was entered; the sentence that says so. Raises `BadHeaders`, also where the
    addresses are no longer those that the page showed: the key is for these."""
    locked = Deployment.objects.select_for_update(of=("self",)).get(pk=deployment.pk)
    seen = request.POST.get("addresses", shown)
    if form.cleaned_data["key"] and seen != addresses_shown(_stored(locked)):
        raise BadHeaders(
            "The addresses changed since this page was shown, so nothing was stored: look at where the key "
            "would be sent now, then enter it again."
        )
    kind, _, name = form.cleaned_data["whose"].partition(":")
    key, header = form.cleaned_data["key"], form.cleaned_data["header"]
    done = f"The key of {kind} {name} was {'stored' if key else 'removed'}."
    if kind == "tenant":
        tenant = get_object_or_404(Tenant.objects.current(), deployment=deployment, name=name)
        services.set_tenant_key(tenant=tenant, key=key, header=header, actor=request.user)
        return done
    node = get_object_or_404(Node.objects.current(), deployment=deployment, name=name)
    headers = () if not key else ((header, key),) if header else bearer(key)
    services.set_node_headers(node=node, headers=headers, actor=request.user)
    return done
