"""Rows that are never edited in place: a change closes one interval and opens another."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self, TypeVar

from django.db import models
from django.db.models import Q

from kvaudit.server import clock

Row = TypeVar("Row", bound=models.Model, covariant=True)


class IntervalQuerySet(models.QuerySet[Row]):
    def current(self) -> Self:
        """Intervals that are open now."""
        return self.filter(valid_to=None)

    def at(self, moment: datetime) -> Self:
        """Intervals that held at a moment: from inclusive, to exclusive."""
        return self.between(moment, moment)

    def between(self, since: datetime, until: datetime) -> Self:
        """Intervals that held at some moment of a span, both ends included."""
        return self.filter(Q(valid_to=None) | Q(valid_to__gt=since), valid_from__lte=until)


class Interval(models.Model):
    """``valid_from`` inclusive, ``valid_to`` exclusive; open while ``valid_to`` is null."""

    valid_from = models.DateTimeField(default=clock.now)
    valid_to = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


def not_backwards(name: str) -> models.CheckConstraint:
    """Every interval table carries this constraint."""
    condition: Any = Q(valid_to=None) | Q(valid_to__gte=models.F("valid_from"))
    return models.CheckConstraint(condition=condition, name=name)
