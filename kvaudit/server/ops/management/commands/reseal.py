"""``manage.py reseal``: after a new key was put first in ENCRYPTION_KEYS, seal every stored secret with it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from kvaudit.server.accounts.sealed_fields import place_of, sealed_columns
from kvaudit.server.accounts.sealing import SealBroken, reseal
from kvaudit.server.ledger.services import record


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
    """All or nothing, one row in memory; returns how many. Raises `SealBroken`, naming the row."""
    count = 0
    for model, field in sealed_columns():
        rows = model._default_manager.select_for_update(of=("self",))
        stored = model._default_manager.exclude(**{field.name: ""})
        for pk in list(stored.order_by("pk").values_list("pk", flat=True)):
            row = rows.filter(pk=pk).first()
            if row is None or not getattr(row, field.name):
                continue
            try:
                changed = reseal(getattr(row, field.name), place_of(row, field.name))
            except SealBroken as problem:
                raise SealBroken(f"{model._meta.label} {pk}: {problem}") from None
            model._default_manager.filter(pk=pk).update(**{field.name: changed})
            count += 1
    record(actor="command:reseal", kind="secrets.resealed", subject="fleet")
    return count
