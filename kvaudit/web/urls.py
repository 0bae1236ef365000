"""Addresses of the pages. Later pages (history, exposure, compliance, incidents, library) join here."""

from django.urls import path

from kvaudit.web.views import (
    audit_now,
    deployment,
    evidence,
    figures,
    fleet,
    fleet_import,
    help,
    keys,
    plans,
    probes,
    run,
    session,
)

urlpatterns = [
    path("", fleet.fleet, name="fleet"),
    path("login/", session.login, name="login"),
    path("logout/", session.logout, name="logout"),
    path("password/", session.change_password, name="password-change"),
    path("zone/", session.zone, name="zone"),
    path("help/", help.help_page, name="help"),
    path("import/", fleet_import.fleet_import, name="fleet-import"),
    path("d/<slug:slug>/", deployment.deployment, name="deployment"),
    path("d/<slug:slug>/audit/", audit_now.audit_now, name="audit-now"),
    path("d/<slug:slug>/figures/<slug:name>/", figures.figure, name="figure"),
    path("d/<slug:slug>/events/", figures.deployment_events, name="deployment-events"),
    path("d/<slug:slug>/keys/", keys.keys, name="keys"),
    path("d/<slug:slug>/probes/", probes.of_deployment, name="probes"),
    path("probes/", probes.of_fleet, name="fleet-probes"),
    path("runs/<int:pk>/", run.run, name="run"),
    path("runs/<int:pk>/progress/", run.progress, name="run-progress"),
    path("runs/<int:pk>/cancel/", run.cancel, name="run-cancel"),
    path("runs/<int:pk>/evidence/<str:sha256>/", evidence.evidence, name="evidence"),
    path("plans/", plans.plans, name="plans"),
    path("plans/new/", plans.create, name="plan-create"),
    path("plans/<uuid:series>/", plans.plan, name="plan"),
    path("plans/<uuid:series>/change/", plans.change, name="plan-change"),
    path("plans/<uuid:series>/switch/", plans.switch, name="plan-switch"),
    path("plans/<uuid:series>/retire/", plans.retire, name="plan-retire"),
]
