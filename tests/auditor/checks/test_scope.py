"""Sentences about nodes."""

import pytest

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.checks.node_coverage import (
    listed,
    missing_roles,
    scope,
    sentence,
    unlisted_workers,
    unread,
)
from kvaudit.auditor.readings import EngineFacts, Worker
from tests.auditor.checks.audits import audit, node, silent


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ([], "no node"),
        (["prefill"], "one prefill node"),
        (["prefill", "decode"], "one prefill and one decode node"),
        (["prefill", "decode", "decode"], "one prefill and two decode nodes"),
        (["prefill"] * 12, "12 prefill nodes"),
        ([""], "one node of unknown role"),
        (["", ""], "two nodes of unknown role"),
        (["unified", ""], "one unified node and one of unknown role"),
    ],
)
def test_scope(roles, expected):
    assert scope([node(role, name=f"n{number}") for number, role in enumerate(roles)]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the pool is small", "The pool is small."),
        ("sglang 0.5.19 is old", "sglang 0.5.19 is old."),
        ("prefill-0 is silent.", "prefill-0 is silent."),
        ("", ""),
    ],
)
def test_sentence(text, expected):
    assert sentence(text) == expected


@pytest.mark.parametrize(
    ("words", "expected"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_listed(words, expected):
    assert listed(words) == expected


def test_unread_names_the_node_and_the_reason():
    assert unread(audit(node(), silent())) == ("decode-0 could not be read: connection refused",)


@pytest.mark.parametrize(
    ("roles", "more", "expected"),
    [
        (["prefill"], {}, ()),
        (["prefill"], {"complete": True}, ("decode",)),
        (["prefill", "decode"], {"complete": True}, ()),
        (["unified"], {"complete": True}, ()),
        ([], {"complete": True, "expected_roles": frozenset({"prefill"})}, ("prefill",)),
    ],
)
def test_missing_roles(roles, more, expected):
    assert missing_roles(audit(*(node(role) for role in roles), **more)) == expected


def test_workers_are_compared_by_place():
    workers = (Worker("http://10.0.0.1:30000@1"), Worker("http://10.0.0.2:30000"))
    router = NodeSeen("r", "http://r", facts=EngineFacts("sglang", kind="router", workers=workers))
    assert unlisted_workers(audit(router, node(url="http://10.0.0.1:30000/"))) == ("http://10.0.0.2:30000",)
