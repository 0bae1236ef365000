"""Keys of a deployment: tenants' keys and nodes' headers. They can be set and removed, never read."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone

from kvaudit.audits.defaults import ensure_default_plans
from kvaudit.fleet import services
from kvaudit.fleet.credentials import BadHeaders, bearer
from kvaudit.fleet.models import Deployment, Node, Tenant
from kvaudit.web.forms import KeyForm
from kvaudit.web.kit import render_form, sent
from kvaudit.web.page import SignedIn, deployment_or_404, page, require

NOT_YOURS = "Keys are set by operators of the deployment's team."


@page("GET", "POST")
def keys(request: SignedIn, slug: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    require(request.user, "edit_fleet", deployment.team, NOT_YOURS)
    form = KeyForm(sent(request), choices=_choices(deployment))
    if request.method == "POST" and form.is_valid():
        try:
            said = _store(request, deployment, form)
        except BadHeaders as problem:
            form.add_error("key", str(problem))
        else:
            ensure_default_plans(deployment=deployment, actor=request.user)
            messages.success(request, said)
            return redirect("keys", slug)
    context = {
        "section": "fleet",
        "now": timezone.now(),
        "deployment": deployment,
        "nodes": Node.objects.current().filter(deployment=deployment),
        "tenants": Tenant.objects.current().filter(deployment=deployment),
        "form": form,
    }
    return render_form(request, "deployment/keys.html", context)


def _choices(deployment: Deployment) -> list[tuple[str, str]]:
    """``tenant:NAME`` and ``node:NAME``; names, since a node's row is replaced when it changes."""
    tenants = Tenant.objects.current().filter(deployment=deployment).values_list("name", flat=True)
    nodes = Node.objects.current().filter(deployment=deployment).values_list("name", flat=True)
    return [(f"tenant:{n}", f"tenant {n}") for n in tenants] + [(f"node:{n}", f"node {n}") for n in nodes]


def _store(request: SignedIn, deployment: Deployment, form: KeyForm) -> str:
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
