"""Failures are counted in rows, so what one process counted another sees."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection

from kvaudit.server.accounts import throttle
from kvaudit.server.accounts.models import FailedLogins

WINDOW = timedelta(minutes=5)


@pytest.mark.django_db
def test_failures_are_counted_and_forgotten():
    assert throttle.failures(["a", "b"]) == {"a": 0, "b": 0}
    throttle.count("a", WINDOW)
    throttle.count("a", WINDOW)
    throttle.count("b", WINDOW)
    assert throttle.failures(["a", "b"]) == {"a": 2, "b": 1}
    throttle.forget("a")
    assert throttle.failures(["a", "b"]) == {"a": 0, "b": 1}


@pytest.mark.django_db
def test_what_is_over_counts_no_more_and_leaves_no_row():
    throttle.count("a", timedelta(0))
    throttle.count("other", timedelta(seconds=-1))
    assert throttle.failures(["a"]) == {"a": 0}
    throttle.count("a", WINDOW)
    assert throttle.failures(["a"]) == {"a": 1}, "a new count, not one more"
    assert FailedLogins.objects.count() == 1


@pytest.mark.django_db
def test_nobody_reads_names_or_addresses_out_of_the_rows():
    throttle.count("a password typed where the name goes", WINDOW)
    assert "password" not in repr(FailedLogins.objects.values_list())


@pytest.mark.django_db(transaction=True)
def test_nothing_is_lost_when_several_count_at_once():
    def guess() -> None:
        try:
            for _ in range(20):
                throttle.count("a", WINDOW)
        finally:
            connection.close()

    threads = [threading.Thread(target=guess) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert throttle.failures(["a"]) == {"a": 80}
