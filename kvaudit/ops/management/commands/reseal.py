"""``manage.py reseal``: after a new key was put first in ENCRYPTION_KEYS, seal every stored secret with it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import models, transaction

from kvaudit.accounts.sealing import SealBroken, reseal
from kvaudit.fleet.models import Node, Tenant
from kvaudit.ledger.services import record
from kvaudit.notify.models import Channel

SEALED: tuple[tuple[type[models.Model], str], ...] = (
    (Node, "headers_sealed"),
    (Tenant, "credential_sealed"),
    (Tenant, "salt_sealed"),
    (Channel, "address_sealed"),
    (Channel, "secret_sealed"),
)
"""Every sealed column; a test compares this with the models."""


class Command(BaseCommand):
    help = "Seals every stored secret again with the first of ENCRYPTION_KEYS; then the old key may go."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            count = reseal_all()
        except SealBroken as problem:
            raise CommandError(f"Nothing was changed. {problem}", returncode=3) from None
        self.stdout.write(f"{count} secrets are sealed with the first of ENCRYPTION_KEYS.")


@transaction.atomic
def reseal_all() -> int:
    """All or nothing; returns how many. Raises `SealBroken`, naming the row."""
    count = 0
    for model, column in SEALED:
        rows = model._default_manager.exclude(**{column: ""}).select_for_update()
        for pk, sealed in list(rows.values_list("pk", column)):
            try:
                changed = reseal(sealed)
            except SealBroken as problem:
                raise SealBroken(f"{model._meta.label} {pk}: {problem}") from None
            model._default_manager.filter(pk=pk).update(**{column: changed})
            count += 1
    record(actor="command:reseal", kind="secrets.resealed", subject="fleet")
    return count
