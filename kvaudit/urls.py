"""Every address of the product; probes are answered earlier, in `kvaudit.ops.probes`."""

import importlib.util

from django.urls import include, path

urlpatterns = [
    path(prefix, include(module))
    for prefix, module in (("api/v1/", "kvaudit.api.urls"), ("", "kvaudit.web.urls"))
    if importlib.util.find_spec(module)
]
