from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kvaudit.server.ledger.chain import digest_of, entry_hash

FIELDS = {
    "sequence": 7,
    "at": datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=UTC),
    "actor": "user:ada",
    "kind": "run.finished",
    "subject": "run:9",
    "digest": "d" * 64,
    "previous": "p" * 64,
}


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_counts(field: str) -> None:
    changed = {
        "sequence": 8,
        "at": FIELDS["at"] + timedelta(microseconds=1),  # type: ignore[operator]
    }.get(field, f"{FIELDS[field]}x")
    assert entry_hash(**{**FIELDS, field: changed}) != entry_hash(**FIELDS)  # type: ignore[arg-type]


def test_fields_cannot_be_shifted_into_each_other() -> None:
    assert entry_hash(**{**FIELDS, "actor": "ab", "kind": "c"}) != entry_hash(  # type: ignore[arg-type]
        **{**FIELDS, "actor": "a", "kind": "bc"}  # type: ignore[arg-type]
    )


def test_the_same_instant_in_another_zone_has_the_same_hash() -> None:
    elsewhere = FIELDS["at"].astimezone(timezone(timedelta(hours=9)))  # type: ignore[attr-defined]
    assert entry_hash(**{**FIELDS, "at": elsewhere}) == entry_hash(**FIELDS)  # type: ignore[arg-type]


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1}) != digest_of({"a": 1, "b": 3})
