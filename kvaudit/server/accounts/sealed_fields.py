"""The columns that hold sealed texts: a secret can be sealed for nothing else, and `reseal` finds them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.db import models

from kvaudit.server.accounts.sealing import Place


class SealedField(models.TextField):  # type: ignore[type-arg]
    """A text made by `kvaudit.server.accounts.sealing.seal`. ``row`` names the attributes that identify the row
    as long as its secret is kept; they are authenticated, so changing one of them loses the secret."""

    def __init__(self, *args: Any, row: Sequence[str] = (), **kwargs: Any) -> None:
        self.row = tuple(row)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        """To the database, and so to migrations, it is a text."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs


def place_of(instance: models.Model, column: str) -> Place:
    """Where this row keeps this secret. TypeError for a column that is no `SealedField`: nobody would
    think of it when keys are changed. ValueError for a row that does not know yet who it is."""
    field = instance._meta.get_field(column)
    if not isinstance(field, SealedField) or not field.row:
        raise TypeError(f"{instance._meta.label}.{column} is no column for sealed texts.")
    row = tuple(getattr(instance, name) for name in field.row)
    if None in row:
        raise ValueError(f"{instance._meta.label} must be saved before something can be sealed for it.")
    return Place(instance._meta.db_table, column, row)


def sealed_columns() -> Iterator[tuple[type[models.Model], SealedField]]:
    """Every column with sealed texts, of every model."""
    for model in apps.get_models():
        for field in model._meta.get_fields():
            if isinstance(field, SealedField):
                yield model, field
