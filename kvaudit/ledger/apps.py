from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "kvaudit.ledger"
    label = "ledger"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from kvaudit.accounts import records
        from kvaudit.ledger.services import record

        records.install(record)
