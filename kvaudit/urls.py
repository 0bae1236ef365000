"""Every address of the product; probes are answered earlier, in `kvaudit.server.ops.probes`."""

from django.urls import include, path

urlpatterns = [
    path("api/v1/", include("kvaudit.server.api.urls")),
    path("", include("kvaudit.server.web.urls")),
]
