"""The command on a run's page must be one that the command line takes, and hold no secret."""

from __future__ import annotations

import shlex

import pytest

from kvaudit.commands import gate, probe
from kvaudit.fleet.services import set_node_headers
from kvaudit.web.tables.reproduce import command
from tests.factories import a_deployment
from tests.web import scene

pytestmark = pytest.mark.django_db


def test_a_passive_run_is_a_gate(people, pair):
    run = scene.a_run(pair, dict.fromkeys(scene.PASSIVE, "pass"))
    words = shlex.split(command(run))
    assert words[:2] == ["kvaudit", "gate"]
    given = gate.parser().parse_args(words[2:])
    assert given.context == "1048576"
    assert len(given.node) == 2
    assert given.also == ["exposure"]


def test_prompts_are_a_probe_with_keys_by_name(people, pair):
    type(pair).objects.filter(pk=pair.pk).update(entry="http://router.example.internal:8000")
    run = scene.a_run(pair, {"rejection": "fail", "canary": "pass"})
    run.refresh_from_db()
    words = shlex.split(command(run))
    assert words[:4] == ["kvaudit", "probe", "rejection", "canary"]
    given = probe.parser().parse_args(words[2:])
    assert given.entry == "http://router.example.internal:8000"
    assert given.tenant_a_key_env == "TENANT_A_KEY"


def test_an_evil_address_is_quoted_and_a_key_left_out(people, pair):
    node = pair.nodes.get(name="prefill-0")
    pair.nodes.filter(pk=node.pk).update(url="http://x/; rm -rf ~")
    set_node_headers(node=pair.nodes.get(pk=node.pk), headers=(("x-key", "sk-secret"),), actor="system:tests")
    run = scene.a_run(pair, {"pool": "pass"})
    said = command(run)
    assert "'prefill=http://x/; rm -rf ~'" in said
    assert "sk-secret" not in said


def test_nothing_to_ask_is_nothing(people, pair):
    assert command(scene.a_run(pair, {"drift": "pass"})) == ""
    assert command(scene.a_run(a_deployment("bare", team=people.team), {"pool": "pass"})) == ""
