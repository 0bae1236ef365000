"""p5 of prefill seconds per length: right to a percent, in constant memory, and what is too fast."""

from __future__ import annotations

import random

import pytest

from kvaudit.server.inquiries.request_logs.percentiles import (
    LEAST,
    Bucket,
    Percentiles,
    bucket_of,
    limits,
    too_fast,
)


@pytest.mark.parametrize(
    ("tokens", "low", "high"),
    [
        (0, 0, 1_024),
        (1_023, 0, 1_024),
        (1_024, 1_024, 2_048),
        (2_047, 1_024, 2_048),
        (1_048_575, 524_288, 1_048_576),
    ],
)
def test_buckets_double(tokens, low, high):
    assert limits(bucket_of(tokens)) == (low, high)


def test_p5_is_right_to_a_percent():
    draw = random.Random(3)
    values = [draw.lognormvariate(1, 1) for _ in range(5_000)]
    found = Percentiles()
    for value in values:
        found.add(5_000, value)
    (bucket,) = found.buckets()
    assert bucket.n == 5_000
    assert bucket.p5 == pytest.approx(sorted(values)[249], rel=0.012)


def test_58_requests_say_nothing():
    found = Percentiles()
    for _ in range(LEAST - 1):
        found.add(5_000, 1.0)
    assert found.buckets()[0].p5 is None
    found.add(5_000, 1.0)
    assert found.buckets()[0].p5 == pytest.approx(1.0, rel=0.011)


@pytest.mark.parametrize(
    ("p5", "odd"),
    [([1.0, 2.0, 4.0], []), ([1.0, 2.0, 0.5], [2]), ([1.0, None, 0.4], [2]), ([None, None, 0.5], []),
     ([4.0, 1.9, 1.0, 3.0], [1, 2]), ([1.0, 0.51], []), ([1.0, 0.49], [1])],
)  # fmt: skip
def test_longer_and_faster_is_odd(p5, odd):
    buckets = [Bucket(1_000 * n, 1_000 * (n + 1), 60, each) for n, each in enumerate(p5)]
    assert [each.bucket.low // 1_000 for each in too_fast(buckets)] == odd


def test_an_odd_bucket_says_what_it_is_held_against():
    (odd,) = too_fast([Bucket(16_384, 32_768, 1_000, 2.0), Bucket(32_768, 65_536, 900, 0.2149)])
    assert odd.sentence == (
        "Prompts of 32,768 to 65,535 tokens were prefilled in 0.21 s (p5 of 900 requests), while those of 16,384 to "
        "32,767 took 2 s."
    )
