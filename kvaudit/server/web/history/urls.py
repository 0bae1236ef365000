"""Addresses of the history, its exports and comparisons."""

from django.urls import path

from kvaudit.server.web.history import export_views
from kvaudit.server.web.history import views as history
from kvaudit.server.web.history.compare import views as compare

urlpatterns = [
    path("history/", history.history, name="history"),
    path("history/csv/", export_views.history_csv, name="history-csv"),
    path("history/json/", export_views.history_json, name="history-json"),
    path("history/exports/", export_views.begin, name="history-export-begin"),
    path("history/exports/<int:pk>/", export_views.export, name="history-export"),
    path("history/exports/<int:pk>/progress/", export_views.progress, name="history-export-progress"),
    path("history/exports/<int:pk>/cancel/", export_views.cancel, name="history-export-cancel"),
    path("history/exports/<int:pk>/file/", export_views.file, name="history-export-file"),
    path("compare/", compare.compare, name="compare"),
]
