"""Every address of the product; probes are answered earlier, in `kvaudit.ops.probes`."""

from django.urls import include, path

urlpatterns = [
    path("api/v1/", include("kvaudit.api.urls")),
    path("", include("kvaudit.web.urls")),
]
