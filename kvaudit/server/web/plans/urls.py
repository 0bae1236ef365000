"""Addresses of plans and the pause of probes."""

from django.urls import path

from kvaudit.server.web.plans import probe_views
from kvaudit.server.web.plans import views as plans

urlpatterns = [
    path("d/<slug:slug>/probes/", probe_views.of_deployment, name="probes"),
    path("probes/", probe_views.of_fleet, name="fleet-probes"),
    path("plans/", plans.plans, name="plans"),
    path("plans/new/", plans.create, name="plan-create"),
    path("plans/<uuid:series>/", plans.plan, name="plan"),
    path("plans/<uuid:series>/change/", plans.change, name="plan-change"),
    path("plans/<uuid:series>/switch/", plans.switch, name="plan-switch"),
    path("plans/<uuid:series>/retire/", plans.retire, name="plan-retire"),
]
