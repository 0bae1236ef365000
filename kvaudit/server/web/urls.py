"""Addresses of the pages: each slice of the web has its own."""

from django.urls import include, path

SLICES = (
    "fleet",
    "account",
    "help",
    "deployment",
    "runs",
    "plans",
    "compliance",
    "history",
    "saved_views",
    "incidents",
    "settings",
    "library",
    "exposure",
)

urlpatterns = [path("", include(f"kvaudit.server.web.{name}.urls")) for name in SLICES]
