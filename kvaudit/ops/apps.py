"""Operations: starting, initialising and probing the product."""

from django.apps import AppConfig


class OpsConfig(AppConfig):
    """Owns the management commands; has no tables."""

    name = "kvaudit.ops"
    label = "ops"
    verbose_name = "Operations"
