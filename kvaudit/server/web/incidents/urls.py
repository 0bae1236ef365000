"""Addresses of incidents."""

from django.urls import path

from kvaudit.server.web.incidents import act_views
from kvaudit.server.web.incidents import views as incidents

urlpatterns = [
    path("incidents/", incidents.incidents, name="incidents"),
    path("incidents/actions/", incidents.actions, name="incident-actions"),
    path("incidents/new/", incidents.report, name="incident-report"),
    path("incidents/<int:pk>/", incidents.incident, name="incident"),
    path("incidents/<int:pk>/write/", incidents.write, name="incident-write"),
    path("incidents/<int:pk>/act/", act_views.act, name="incident-act"),
    path("incidents/<int:pk>/figure/", incidents.figure, name="incident-figure"),
    path("incidents/<int:pk>/document/", incidents.preview, name="incident-document"),
    path("incidents/<int:pk>/export/<slug:kind>/", incidents.export, name="incident-export"),
]
