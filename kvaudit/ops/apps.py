"""Operations: starting, initialising and probing the product."""

from django.apps import AppConfig


class OpsConfig(AppConfig):
    """Owns the management commands; has no tables."""

    name = "kvaudit.ops"
    label = "ops"
    verbose_name = "Operations"

    def ready(self) -> None:
        """Every process and thread rings workers through our Celery application: without this, a
        web thread would ask Celery's default one, which knows no broker of ours."""
        from kvaudit.celery import app

        app.set_default()
