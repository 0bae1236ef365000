"""Addresses of runs and their evidence."""

from django.urls import path

from kvaudit.server.web.runs import audit_now_views
from kvaudit.server.web.runs import evidence_views as evidence
from kvaudit.server.web.runs import views as run

urlpatterns = [
    path("d/<slug:slug>/audit/", audit_now_views.audit_now, name="audit-now"),
    path("runs/<int:pk>/", run.run, name="run"),
    path("runs/<int:pk>/progress/", run.progress, name="run-progress"),
    path("runs/<int:pk>/cancel/", run.cancel, name="run-cancel"),
    path("runs/<int:pk>/evidence/<str:sha256>/", evidence.evidence, name="evidence"),
]
