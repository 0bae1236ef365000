"""Addresses of the fleet and its import."""

from django.urls import path

from kvaudit.server.web.fleet import lab_views
from kvaudit.server.web.fleet import views as fleet
from kvaudit.server.web.fleet.file_import import views as fleet_import

urlpatterns = [
    path("", fleet.fleet, name="fleet"),
    path("import/", fleet_import.fleet_import, name="fleet-import"),
    path("import/lab/", lab_views.start, name="lab-start"),
]
