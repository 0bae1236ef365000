"""Addresses of compliance, items, claims and the summary."""

from django.urls import path

from kvaudit.server.web.compliance import attestation_views
from kvaudit.server.web.compliance import checklist_views as checklist
from kvaudit.server.web.compliance import views as compliance
from kvaudit.server.web.compliance import waiver_views as waivers
from kvaudit.server.web.compliance.item import views as items
from kvaudit.server.web.compliance.summary import views as summary

urlpatterns = [
    path("compliance/", compliance.compliance, name="compliance"),
    path("compliance/print/", compliance.printed, name="compliance-print"),
    path("compliance/csv/", compliance.as_csv, name="compliance-csv"),
    path("compliance/trend/", compliance.figure, name="compliance-figure"),
    path("d/<slug:slug>/items/<slug:key>/", items.item, name="item"),
    path("d/<slug:slug>/items/<slug:key>/attest/", items.attest, name="attest"),
    path("d/<slug:slug>/items/<slug:key>/waive/", items.waive, name="waive"),
    path("teams/<slug:slug>/items/<slug:key>/attest/", items.attest_team, name="attest-team"),
    path("teams/<slug:slug>/items/<slug:key>/waive/", items.waive_team, name="waive-team"),
    path("attestations/<int:pk>/", attestation_views.attestation, name="attestation"),
    path("attestations/<int:pk>/evidence/", attestation_views.evidence, name="attestation-evidence"),
    path("waivers/", waivers.waivers, name="waivers"),
    path("waivers/<int:pk>/", waivers.waiver, name="waiver"),
    path("checklist/", checklist.checklist, name="checklist"),
    path("checklist/<slug:slug>/new/", checklist.create, name="own-item-create"),
    path("checklist/items/<uuid:series>/", checklist.change, name="own-item"),
    path("checklist/items/<uuid:series>/retire/", checklist.retire, name="own-item-retire"),
    path("summary/", summary.summary, name="summary"),
    path("summary/markdown/", summary.as_markdown, name="summary-markdown"),
]
