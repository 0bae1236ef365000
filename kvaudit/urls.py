"""Every address of the product; probes are answered earlier, in `kvaudit.server.ops.probes`."""

from django.urls import include, path

urlpatterns = [
    path("api/v1/", include("kvaudit.server.api.urls")),
    path("", include("kvaudit.server.web.urls")),
]

# Where a form was refused altogether, what was typed into it is still shown.
handler403 = "kvaudit.server.web.kit.kept_text.not_allowed"
handler404 = "kvaudit.server.web.kit.kept_text.not_found"
