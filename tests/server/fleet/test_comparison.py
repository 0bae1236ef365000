"""What counts as a change of configuration, by tables. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from kvaudit.auditor.readings import Fingerprint
from kvaudit.server.fleet.comparison import Comparison, compare, crossing_limits, in_words, matches


def print_of(pool: int | None = 1_000_000, **exact: Any) -> Fingerprint:
    return Fingerprint({"engine": "sglang", "version": "0.5.22", **exact}, {"pool": pool})


def names(comparison: Comparison) -> tuple[list[str], list[str]]:
    return [change.name for change in comparison.changes], [each.name for each in comparison.learnt]


@pytest.mark.parametrize(
    ("reference", "seen", "limits", "significant"),
    [
        (print_of(), print_of(), (), False),
        (print_of(), print_of(version="0.5.23"), (), True),
        (print_of(page=16), print_of(page=32), (), True),
        (print_of(), print_of(990_000), (), False),  # a restart moves the pool by 1 %
        (print_of(), print_of(980_000), (), False),  # 2 % exactly
        (print_of(), print_of(979_999), (), True),
        (print_of(), print_of(1_020_001), (), True),
        (print_of(), print_of(999_000), (999_500,), True),  # crosses a limit, however little
        (print_of(), print_of(999_600), (999_500,), False),
        (print_of(), print_of(None), (), False),  # could not be read
        (print_of(None), print_of(1), (), False),  # is read for the first time
        (print_of(), print_of(version=None), (), False),
        (print_of(version=None), print_of(), (), False),
        (print_of(page=16), print_of(), (), False),  # the endpoint that says it did not answer
        (print_of(), print_of(engine="vllm"), (), True),
    ],
)
def test_significance(
    reference: Fingerprint, seen: Fingerprint, limits: tuple[int, ...], significant: bool
) -> None:
    assert compare(reference, seen, limits=limits).significant is significant


def test_slow_creep_is_caught() -> None:
    reference = print_of(1_000_000)
    seen = []
    for pool in (990_000, 985_000, 981_000, 975_000):
        found = compare(reference, print_of(pool))
        seen.append(found.significant)
        reference = found.reference
    assert seen == [False, False, False, True]
    assert reference.pools == {"pool": 975_000}


def test_a_pool_that_was_unreadable_for_a_while_is_compared_with_what_it_was() -> None:
    gap = compare(print_of(680_000), print_of(None))
    assert gap.reference.pools == {"pool": 680_000}
    assert not compare(gap.reference, print_of(680_100)).significant
    assert compare(gap.reference, print_of(340_000)).significant


def test_a_learnt_field_is_told_once_and_then_guarded() -> None:
    first = compare(print_of(None, page=None), print_of(500, page=16))
    assert names(first) == ([], ["page", "pool"])
    assert not compare(first.reference, print_of(500, page=16)).learnt
    assert compare(first.reference, print_of(500, page=32)).significant


def test_unknown_fields_of_a_significant_change_keep_what_was_known() -> None:
    upgraded = compare(print_of(680_000), print_of(None, version="0.5.23"))
    assert upgraded.significant
    assert upgraded.reference.pools == {"pool": 680_000}
    later = compare(upgraded.reference, print_of(2_000_000, version="0.5.23"))
    assert names(later) == (["pool"], [])


def test_another_engine_keeps_nothing_of_the_old_one() -> None:
    found = compare(print_of(page=16), Fingerprint({"engine": "vllm", "version": "0.32"}, {"pool": None}))
    assert found.reference.exact == {"engine": "vllm", "version": "0.32"}
    assert found.reference.pools == {"pool": None}


@pytest.mark.parametrize(("same_process", "significant"), [(True, False), (False, True)])
def test_a_connector_that_appears_is_a_change_unless_the_process_is_the_same(
    same_process: bool, significant: bool
) -> None:
    seen = print_of(**{"components.nixl": ""})
    found = compare(print_of(), seen, same_process=same_process)
    assert found.significant is significant
    assert not compare(found.reference, seen).significant
    assert not compare(found.reference, print_of()).significant  # its metrics exist from first use on
    assert not compare(found.reference, seen).significant


def test_nodes_match_within_the_tolerance() -> None:
    assert matches(print_of(1_000_000), print_of(1_010_000))
    assert not matches(print_of(1_000_000), print_of(1_010_000), limits=(1_005_000,))
    assert not matches(print_of(role="prefill"), print_of(role="decode"))


@pytest.mark.parametrize(
    ("context", "edge_limit", "limits"),
    [
        (1_048_576, None, (1_048_576, 1_310_720)),
        (1_001, 500, (1_001, 1_252, 500)),
        (None, 500, (500,)),
        (None, None, ()),
    ],
)
def test_limits(context: int | None, edge_limit: int | None, limits: tuple[int, ...]) -> None:
    assert crossing_limits(context=context, headroom=1.25, edge_limit=edge_limit) == limits


def test_limits_are_rounded_as_the_pool_check_rounds_them() -> None:
    assert crossing_limits(context=200_000, headroom=1.1, edge_limit=None) == (200_000, 220_000)


def test_words() -> None:
    found = compare(print_of(10, **{"settings.page": 16}), print_of(20, **{"settings.page": 32}))
    assert in_words(found.changes) == "page 16 -> 32, pool 10 -> 20"
