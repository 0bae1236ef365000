"""Requests by length: buckets without gaps, counts that bound what was asked, nothing of who asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.server.inquiries.request_logs.lengths import as_json, between, bucket_of, limits
from kvaudit.server.inquiries.request_logs.production import lengths_of
from kvaudit.server.inquiries.request_logs.reader import MOST_TOKENS
from tests.factories import a_deployment
from tests.server.inquiries.request_logs.test_importer import brought, line


@given(st.integers(0, MOST_TOKENS))
def test_every_length_lies_in_its_bucket_which_is_an_eighth_wide_at_most(tokens):
    low, high = limits(bucket_of(tokens))
    assert low <= tokens < high
    assert high - low <= max(64, low // 8)


def test_buckets_touch():
    assert all(limits(number)[1] == limits(number + 1)[0] for number in range(300))
    assert bucket_of(MOST_TOKENS) < 300


@pytest.mark.parametrize(
    ("low", "high", "bounds"),
    [(0, 10**13, (6, 6)), (1_024, 1_152, (2, 2)), (1_100, 4_000, (1, 3)), (1_030, 1_040, (0, 2)), (9_000, 9_001, (0, 0))],
)  # fmt: skip
def test_a_bucket_that_is_cut_counts_on_either_side(low, high, bounds):
    counted = {bucket_of(tokens): number for tokens, number in ((5, 3), (1_024, 2), (2_000, 1))}
    found = between(as_json(counted), low, high)
    assert (found.least, found.most) == bounds
    assert found.words == (str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]} to {bounds[1]}")


@pytest.mark.parametrize("stored", [None, {}, "x", [1], [[1, 2]], [[1, 2, "3"]], [[1, 2, True]]])
def test_what_cannot_be_read_is_unknown(stored):
    assert between(stored, 0, 10) is None


@pytest.mark.django_db
def test_all_requests_of_the_newest_log_count_in_and_out_of_the_window():
    deployment = a_deployment()
    assert lengths_of(deployment) is None
    brought(line(2, 5), deployment=deployment)
    log = brought(line(2, 700_000), line(99, 700_000), line(2, 20), line(2, "many"), deployment=deployment)
    brought(line(2, "many"), deployment=deployment)  # holds no request
    brought(line(2, 9))  # another deployment's
    found = lengths_of(deployment)
    assert (found.log, found.requests) == (log.pk, 3)
    assert log.lengths == [[0, 64, 1], [655_360, 720_896, 2]]
    assert found.between(655_360, 720_896).words == "2"
    type(log).objects.filter(deployment=deployment).update(lengths=None)  # imported before they were kept
    assert lengths_of(deployment) is None
