"""The command on a run's page must be one that the command line takes, and hold no secret."""

from __future__ import annotations

import json
import shlex

import pytest

from kvaudit.auditor.commands import gate, probe
from kvaudit.auditor.commands.target_arguments import chosen
from kvaudit.lab import fleet as lab
from kvaudit.server.fleet.import_file import import_fleet
from kvaudit.server.fleet.lab_keys import LAB_KEYS
from kvaudit.server.fleet.models import Deployment, Tenant
from kvaudit.server.fleet.services import set_node_headers, set_pin
from kvaudit.server.web.kit.parts.reproduce import TOKEN, gate_line, reproduction_of
from tests.factories import a_deployment
from tests.server.web import builders

pytestmark = pytest.mark.django_db

KEYS = (("a", "GLM_TENANT_A"), ("b", ""), ("c", "GLM_TENANT_C"), ("0 without a key", "GLM_NONE"))


def test_a_passive_run_is_a_gate(people, pair):
    run = builders.a_run(pair, dict.fromkeys(builders.PASSIVE, "pass"))
    words = shlex.split(reproduction_of(run).line)
    assert words[:2] == ["kvaudit", "gate"]
    given = gate.parser().parse_args(words[2:])
    assert given.context == "1048576"
    assert len(given.node) == 2
    assert given.also == ["exposure"]


def test_prompts_are_a_probe_with_keys_by_name(people, pair):
    type(pair).objects.filter(pk=pair.pk).update(
        entry="http://router.example.internal:8000", entry_sets_salts=True
    )
    tenants = [Tenant.objects.create(deployment=pair, name=name, key_env=env) for name, env in KEYS]
    for tenant in tenants[:3]:
        Tenant.objects.filter(pk=tenant.pk).update(credential_sealed="sealed")
    run = builders.a_run(pair, {"rejection": "fail", "canary": "pass"})
    run.refresh_from_db()
    words = shlex.split(reproduction_of(run).line)
    assert words[:4] == ["kvaudit", "probe", "rejection", "canary"]
    given = probe.parser().parse_args(words[2:])
    assert given.entry == "http://router.example.internal:8000"
    assert given.tenant_a_key_env == "GLM_TENANT_A"
    assert given.tenant_b_key_env == "TENANT_B_KEY", "entered on a page: the reader chooses the variable"
    assert (given.model, given.entry_sets_salts) == ("example/chat-large", True)
    assert reproduction_of(run).variables == [("GLM_TENANT_A", "tenant a"), ("TENANT_B_KEY", "tenant b")]


def test_the_seed_is_named_once_the_run_has_ended(people, pair):
    run = builders.a_run(pair, {"rejection": "fail"}, seed=4_711)
    words = shlex.split(reproduction_of(run).line)
    assert probe.parser().parse_args(words[2:]).seed == 4_711
    assert (
        "--seed"
        not in reproduction_of(builders.a_run(pair, state="running", checks=["rejection"], seed=4_711)).line
    )
    assert "--seed" not in reproduction_of(builders.a_run(pair, {"pool": "fail"}, seed=4_711)).line, (
        "a gate draws nothing"
    )


def test_a_tenant_without_a_key_is_not_named(people, pair):
    Tenant.objects.create(deployment=pair, name="a", credential_sealed="sealed", key_env="GLM_TENANT_A")
    Tenant.objects.create(deployment=pair, name="b")
    words = shlex.split(reproduction_of(builders.a_run(pair, {"canary": "inconclusive"})).line)
    given = probe.parser().parse_args(words[2:])
    assert (given.tenant_a_key_env, given.tenant_b_key_env) == ("GLM_TENANT_A", "")


def test_what_the_lab_fleet_shows_can_be_pasted_as_it_is(people):
    """The shell of whoever runs `make up` holds none of the lab's keys: they stand in the line."""
    nodes = [
        {"role": "prefill", "url": "http://127.0.0.1:9101"},
        {"role": "decode", "url": "http://127.0.0.1:9102"},
    ]
    about = {
        "engine": "sglang", "entry": "http://127.0.0.1:9100", "model": "lab-copier", "context": 8192, "nodes": nodes
    }  # fmt: skip
    document = json.dumps(lab.fleet_file({demo.slug: about for demo in lab.DEMOS}))
    outcome = import_fleet(document, "yaml", "system:tests", False, environment=lab.ENVIRONMENT)
    assert outcome.done, outcome.problems
    for slug in ("lab-leaking", "lab-fixed"):
        run = builders.a_run(Deployment.objects.get(slug=slug), {"rejection": "fail", "canary": "fail"})
        shown = reproduction_of(run)
        assert shown.variables == []
        assert not shown.keyed_nodes
        words = shlex.split(shown.line)
        environment = dict(word.split("=") for word in words[: words.index("kvaudit")])
        given = probe.parser().parse_args(words[words.index("kvaudit") + 2 :])
        (target,) = chosen(given, environment)
        assert [tenant.credentials.headers for tenant in target.tenants] == [
            (("Authorization", f"Bearer sk-lab-tenant-{name}"),) for name in "ab"
        ]
        wanted = (("Authorization", "Bearer sk-lab-node"),) if slug == "lab-fixed" else ()
        assert {node.credentials.headers for node in target.nodes} == {wanted}
    line = gate_line(Deployment.objects.get(slug="lab-fixed"), "http://kvaudit.example")
    assert line.line.startswith("KVAUDIT_LAB_NODE=sk-lab-node kvaudit gate ")
    assert [name for name, _ in line.variables] == [TOKEN]


def test_one_nodes_key_is_not_sent_to_another(people, pair):
    pair.nodes.filter(name="prefill-0").update(headers_env=[["", "PREFILL_KEY"]], headers_sealed="sealed")
    run = builders.a_run(pair, {"pool": "pass"})
    assert "PREFILL_KEY" not in reproduction_of(run).line
    assert reproduction_of(run).keyed_nodes
    pair.nodes.update(headers_env=[["", "NODE_KEY"]], headers_sealed="sealed")
    shown = reproduction_of(run)
    assert "--api-key-env NODE_KEY" in shown.line
    assert (shown.variables, shown.keyed_nodes) == ([("NODE_KEY", "the nodes")], False)


def test_pins_of_our_own_are_named(people, pair):
    run = builders.a_run(pair, {"version": "fail"})
    assert "--pin" not in reproduction_of(run).line
    set_pin(engine="sglang", specifier=">=0.5.30", actor="system:tests", deployment=pair)
    words = shlex.split(reproduction_of(run).line)
    assert "sglang>=0.5.30" in probe.parser().parse_args(words[2:]).pin


def test_an_evil_address_is_quoted_and_a_key_left_out(people, pair):
    node = pair.nodes.get(name="prefill-0")
    pair.nodes.filter(pk=node.pk).update(url="http://x/; rm -rf ~")
    set_node_headers(node=pair.nodes.get(pk=node.pk), headers=(("x-key", "sk-secret"),), actor="system:tests")
    run = builders.a_run(pair, {"pool": "pass"})
    said = reproduction_of(run).line
    assert "'prefill=http://x/; rm -rf ~'" in said
    assert "sk-secret" not in said


def test_nothing_to_ask_is_nothing(people, pair):
    assert reproduction_of(builders.a_run(pair, {"drift": "pass"})).line == ""
    assert (
        reproduction_of(builders.a_run(a_deployment("bare", team=people.team), {"pool": "pass"})).line == ""
    )


def test_the_servers_list_of_the_labs_keys_is_the_labs():
    assert dict(LAB_KEYS) == dict(lab.ENVIRONMENT)
