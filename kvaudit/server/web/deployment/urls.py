"""Addresses of one deployment."""

from django.urls import path

from kvaudit.server.web.deployment import views as deployment
from kvaudit.server.web.deployment.figures import views as figures
from kvaudit.server.web.deployment.gate import views as gate
from kvaudit.server.web.deployment.keys import views as keys
from kvaudit.server.web.deployment.session_plan import views as session_plan

urlpatterns = [
    path("d/<slug:slug>/", deployment.deployment, name="deployment"),
    path("d/<slug:slug>/checks/", deployment.checks, name="deployment-checks"),
    path("d/<slug:slug>/capacity/", deployment.capacity, name="deployment-capacity"),
    path("d/<slug:slug>/history/", deployment.history, name="deployment-history"),
    path("d/<slug:slug>/nodes/", deployment.nodes, name="deployment-nodes"),
    path("d/<slug:slug>/settings/", deployment.settings, name="deployment-settings"),
    path("d/<slug:slug>/figures/<slug:name>/", figures.figure, name="figure"),
    path("d/<slug:slug>/events/", figures.deployment_events, name="deployment-events"),
    path("d/<slug:slug>/gate/", gate.gate, name="gate"),
    path("d/<slug:slug>/keys/", keys.keys, name="keys"),
    path("d/<slug:slug>/retire/", deployment.retire, name="deployment-retire"),
    path("d/<slug:slug>/session/", session_plan.session_plan, name="session-plan"),
]
