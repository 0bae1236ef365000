"""Helps to read the state of a whole fleet: thousands of rows for a page, so what costs by the row is left to
the database, and what costs by the parameter is sent as one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import models
from django.db.models import F, Q, Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Micros(models.Func):
    """Microseconds since 1970 as a bigint, whatever time zone is active: datetimes are dear to parse."""

    template = "(EXTRACT(EPOCH FROM %(expressions)s) * 1000000)::bigint"
    output_field = models.BigIntegerField()
    arity = 1

    def get_db_converters(self, connection: Any) -> list[Any]:
        """None: the driver gives ints already, and Django would call `int` on each."""
        return []


def when(micros: int) -> datetime:
    """The moment, exactly."""
    return _EPOCH + timedelta(microseconds=micros)


def micros(moment: datetime) -> int:
    """The number that `when` turns back into the moment."""
    return (moment - _EPOCH) // _MICROSECOND


def among(column: str, ids: Iterable[int]) -> Q:
    """A condition for `filter`: the column is one of the ids. One parameter, where ``__in`` sends one for each,
    and prepares it. Of no ids nothing is asked at all, as with ``__in``."""
    wanted = ",".join(str(int(pk)) for pk in ids)
    if not wanted:
        return Q(pk__in=())
    condition = models.Func(
        F(column),
        Value("{" + wanted + "}", output_field=models.TextField()),
        template="(%(expressions)s::bigint[]))",
        arg_joiner=" = ANY(",
        output_field=models.BooleanField(),
    )
    return Q(condition)
