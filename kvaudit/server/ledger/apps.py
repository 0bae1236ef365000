from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "kvaudit.server.ledger"
    label = "ledger"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from kvaudit.server.accounts import records
        from kvaudit.server.ledger import noted_head, record_check
        from kvaudit.server.ledger.services import record

        records.install(record)
        record_check.follows(noted_head.differs)
