"""Generic pools: JSON pointers, shards, and a sentence for everything that is not there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvaudit.auditor.engines import get
from kvaudit.auditor.engines.answers import Answer
from kvaudit.auditor.engines.contract import Adapter
from kvaudit.auditor.engines.generic.adapter import with_pointers
from kvaudit.auditor.engines.generic.pointers import MISSING, follow
from kvaudit.auditor.readings import EngineFacts

POOL = {"pool": {"size": 64, "used": 3}, "limits": {"largest": 16}, "version": "2.1"}


def read(document: Any, path: str = "", **pointers: str) -> EngineFacts:
    engine = with_pointers(pointers, path)
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return engine.facts({path: Answer(path, 200, body)})


def test_reads_what_the_pointers_name() -> None:
    found = read(
        POOL, capacity="/pool/size", max_request="/limits/largest", in_use="/pool/used", version="/version"
    )
    assert found.engine == "generic"
    assert found.pool.value == 64
    assert found.context.value == 16
    assert found.version.value == "2.1"
    assert found.counters == {"in_use": 3}
    assert found.notes == ()
    assert not found.role.known


def test_each_node_has_its_own_plan() -> None:
    one, two = (
        with_pointers({"capacity": "/a"}, "/status"),
        with_pointers([("capacity", "/a"), ("path", "/x")]),
    )
    assert isinstance(one, Adapter)
    assert [step.path for step in one.plan] == ["/status"]
    assert [step.path for step in two.plan] == ["/x"]
    assert get("generic").plan == ()


def test_recognises_any_json_document_and_only_with_pointers() -> None:
    engine = with_pointers({"capacity": "/a"})
    assert engine.recognises({"": Answer("", 200, b"{}")})
    assert not engine.recognises({"": Answer("", 200, b"<html>")})
    assert not engine.recognises({})
    assert not get("generic").recognises({"": Answer("", 200, b"{}")})


@pytest.mark.parametrize(
    "value", [None, 0, -1, True, "64", "many", 1.5, 1e30, [64], {"size": 64}], ids=lambda value: repr(value)
)
def test_what_is_no_count_is_unknown_with_its_place(value: object) -> None:
    found = read({"pool": {"size": value}}, capacity="/pool/size", max_request="/pool/size")
    for reading in (found.pool, found.context):
        assert not reading.known
        assert "/pool/size" in reading.source


def test_what_is_not_there_is_unknown_with_its_place() -> None:
    found = read(POOL, capacity="/pool/slots", max_request="/none")
    assert not found.pool.known
    assert "/pool/slots" in found.pool.source
    assert "nothing is there" in found.pool.source
    assert not found.context.known


def test_no_pointer_no_reading() -> None:
    found = read(POOL, capacity="/pool/size")
    assert not found.context.known
    assert "max_request" in found.context.source
    assert found.counters == {}


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b'{"pool": NaN}', b"\xff", b"[" * 10_000])
def test_a_body_that_is_no_json(body: bytes) -> None:
    found = read(body, capacity="/pool/size", max_request="/a", in_use="/b", version="/v")
    assert not found.pool.known
    assert not found.context.known
    assert not found.version.known


def test_the_reason_travels() -> None:
    found = with_pointers({"capacity": "/a"}).facts({"": Answer("", 0, problem="connection refused")})
    assert "connection refused" in found.pool.source


@pytest.mark.parametrize("used", [None, -1, True, "3", [1]])
def test_use_that_is_no_number_is_said(used: object) -> None:
    found = read({"size": 8, "used": used}, capacity="/size", in_use="/used")
    assert found.counters == {}
    assert any("/used" in note for note in found.notes)


class TestShards:
    SHARDS = {"shards": [{"size": 64, "used": 1}, {"size": 32, "used": 2}], "max": 16}

    def test_the_smallest_counts_and_use_is_summed(self) -> None:
        found = read(self.SHARDS, shards="/shards", capacity="/size", in_use="/used", max_request="/max")
        assert found.pool.value == 32
        assert [rank.rank for rank in found.ranks] == ["0", "1"]
        assert found.counters == {"in_use": 3}
        assert found.context.value == 16

    def test_named_shards(self) -> None:
        found = read({"s": {"eu": 7, "us": 9}}, shards="/s", capacity="")
        assert [(rank.rank, rank.pool.value) for rank in found.ranks] == [("eu", 7), ("us", 9)]

    @pytest.mark.parametrize("shards", [[], {}, None, 5, "x", [{"size": 1}] * 5000])
    def test_no_shards_no_pool(self, shards: object) -> None:
        assert not read({"shards": shards}, shards="/shards", capacity="/size").pool.known

    def test_one_shard_without_a_number_leaves_the_pool_unknown(self) -> None:
        found = read({"shards": [{"size": 64}, {}]}, shards="/shards", capacity="/size")
        assert not found.pool.known
        assert "shard 1" in found.pool.source


RFC = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", RFC),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
        ("/foo/2", MISSING),
        ("/foo/-", MISSING),
        ("/foo/00", MISSING),
        ("/foo/+1", MISSING),
        ("/foo/99999999999999", MISSING),
        ("/foo/0/x", MISSING),
        ("/nothing", MISSING),
    ],
)
def test_pointers_as_in_rfc_6901(pointer: str, value: object) -> None:
    assert follow(RFC, pointer) is value or follow(RFC, pointer) == value


@pytest.mark.parametrize(
    ("pointers", "path", "said"),
    [
        ({}, "", "capacity"),
        ({"max_request": "/a"}, "", "capacity"),
        ({"capacity": "a/b"}, "", "begins with /"),
        ({"capacity": "/a~2"}, "", "~0"),
        ({"capacity": "/a", "size": "/b"}, "", "no generic pointer called 'size'"),
        ({"capacity": "/a"}, "status", "must begin with /"),
        ({"capacity": "/a", "path": "/pööl"}, "", "plain ASCII"),
    ],
)
def test_wrong_pointers_are_a_sentence(pointers: dict[str, str], path: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        with_pointers(pointers, path)
