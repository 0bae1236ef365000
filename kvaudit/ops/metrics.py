"""Numbers for Prometheus, counted in the database when asked.

The processes of web and workers share nothing, so a counter in memory would be one process's share;
rows are everybody's. Each number costs one indexed query.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST


class DatabaseCollector:
    """Yields one family per question, asked at scrape time."""

    def collect(self) -> Iterator[Metric]:
        """The families; a database that does not answer is itself a number."""
        from django.db import DatabaseError

        up = GaugeMetricFamily("kvaudit_database_up", "1 when the database answered this scrape.")
        try:
            families = list(self.families())
        except DatabaseError:
            families = []
            up.add_metric([], 0)
        else:
            up.add_metric([], 1)
        yield up
        yield from families

    def families(self) -> Iterator[Metric]:
        """Counts by state; raises DatabaseError when the database does not answer."""
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return
        yield


def exposition() -> tuple[bytes, str]:
    """The text of a scrape and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(DatabaseCollector())
    return generate_latest(registry), CONTENT_TYPE_LATEST
