"""Addresses of exposure statements and request logs."""

from django.urls import path

from kvaudit.server.web.exposure import views as exposure
from kvaudit.server.web.exposure.request_logs import views as request_logs

urlpatterns = [
    path("d/<slug:slug>/exposure/", exposure.exposure, name="exposure"),
    path("d/<slug:slug>/exposure/csv/", exposure.as_csv, name="exposure-csv"),
    path("d/<slug:slug>/exposure/import/", request_logs.import_page, name="request-log-import"),
    path("d/<slug:slug>/exposure/imports/<int:pk>/", request_logs.log_import, name="log-import"),
    path(
        "d/<slug:slug>/exposure/imports/<int:pk>/progress/",
        request_logs.log_import_progress,
        name="log-import-progress",
    ),
    path(
        "d/<slug:slug>/exposure/imports/<int:pk>/cancel/",
        request_logs.log_import_cancel,
        name="log-import-cancel",
    ),
    path("d/<slug:slug>/exposure/logs/<int:pk>/", request_logs.request_log, name="request-log"),
    path("d/<slug:slug>/exposure/logs/<int:pk>/csv/", request_logs.hits_csv, name="request-log-csv"),
]
