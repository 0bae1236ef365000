"""The fleet file in the database: what an import changes, refuses and never reveals."""

from __future__ import annotations

from typing import Any

import pytest

from kvaudit.auditor.fleetfile import parse_fleet
from kvaudit.server.fleet.import_file import import_fleet
from kvaudit.server.fleet.models import Consent, Deployment, Node, Pin, Tenant
from kvaudit.server.fleet.services import set_node_headers, set_tenant_key
from kvaudit.server.fleet.session_approval import approve_session, digest_of_session
from kvaudit.server.ledger.models import Entry
from tests import factories
from tests.factories import loaded_target

pytestmark = pytest.mark.django_db

FLEET = """\
schema: kvaudit.fleet/1
deployments:
  - slug: glm-prod
    team: serving
    owner: Ada
    engine: sglang
    entry: https://gateway.example/v1
    context: 1_048_576
    pins: ["sglang>=0.5.22"]
    nodes:
      - {name: prefill-0, role: prefill, url: "http://10.0.0.1:30000", key_env: PREFILL_KEY}
      - {name: decode-0, role: decode, url: "http://10.0.0.2:30000"}
    tenants:
      - {name: a, key_env: TENANT_A}
      - {name: b, key_env: TENANT_B}
"""
KEYS = {"PREFILL_KEY": "pre-fill-key-1", "TENANT_A": "tenant-key-a", "TENANT_B": "tenant-key-b"}


def imported(
    text: str = FLEET,
    *,
    format: Any = "yaml",
    actor: Any = "command:fleet",
    dry: bool = False,
    keys: Any = None,
):
    return import_fleet(text, format, actor, dry, environment=KEYS if keys is None else keys)


def lines(outcome: Any) -> list[str]:
    return [str(difference) for difference in outcome.differences]


def test_a_new_fleet_is_created_with_its_keys_sealed() -> None:
    outcome = imported()

    assert not outcome.problems
    assert outcome.done
    assert not outcome.notes
    deployment = Deployment.objects.get(slug="glm-prod")
    assert (deployment.team.slug, deployment.context, deployment.headroom) == ("serving", 1_048_576, 1.25)
    assert [each.new for each in outcome.deployments] == [True]
    target = loaded_target(deployment)
    assert [(node.name, node.role, node.engine) for node in target.nodes] == [
        ("decode-0", "decode", "sglang"),
        ("prefill-0", "prefill", "sglang"),
    ]
    assert target.nodes[1].credentials.headers == (("Authorization", "Bearer pre-fill-key-1"),)
    assert [tenant.name for tenant in target.tenants] == ["a", "b"]
    assert target.rules.pins == ("sglang>=0.5.22",)
    assert target.complete
    assert not target.consent


def test_importing_the_same_file_again_changes_nothing() -> None:
    imported()
    entries = Entry.objects.count()
    outcome = imported()
    assert outcome.done
    assert lines(outcome) == []
    assert [each.new for each in outcome.deployments] == [False]
    assert Entry.objects.count() == entries


def test_a_dry_run_shows_the_same_differences_and_changes_nothing() -> None:
    dry = imported(dry=True)
    assert not Deployment.objects.exists()
    assert not Entry.objects.exists()
    assert not dry.done
    assert dry.deployments[0].deployment is None
    assert lines(dry) == lines(imported())


def test_a_changed_url_closes_one_row_and_opens_another() -> None:
    imported()
    before = Node.objects.get(name="decode-0")
    outcome = imported(FLEET.replace("10.0.0.2", "10.0.0.3"))

    assert lines(outcome) == [
        "glm-prod: node decode-0 changed (url: http://10.0.0.2:30000 -> http://10.0.0.3:30000)"
    ]
    old, new = Node.objects.filter(name="decode-0").order_by("pk")
    assert (old.pk, old.url) == (before.pk, "http://10.0.0.2:30000")
    assert old.valid_to == new.valid_from
    assert new.valid_to is None


def test_what_the_file_no_longer_names_is_closed_and_keys_are_wiped() -> None:
    imported()
    text = FLEET.replace(
        '      - {name: decode-0, role: decode, url: "http://10.0.0.2:30000"}\n', ""
    ).replace("      - {name: b, key_env: TENANT_B}\n", "")
    outcome = imported(text)
    assert lines(outcome) == [
        "glm-prod: node decode-0 removed (url: http://10.0.0.2:30000 -> -)",
        "glm-prod: tenant b removed",
    ]
    assert [node.name for node in Node.objects.current()] == ["prefill-0"]
    gone = Tenant.objects.get(name="b")
    assert gone.valid_to is not None
    assert gone.credential_sealed == ""


def test_deployments_that_the_file_does_not_list_are_left_alone() -> None:
    other = factories.a_deployment("other")
    factories.a_node(other, "n")
    imported()
    assert Node.objects.current().filter(deployment=other).count() == 1


def test_a_rotated_key_is_replaced_and_never_shown() -> None:
    imported()
    outcome = imported(keys={**KEYS, "TENANT_A": "tenant-key-new", "PREFILL_KEY": "pre-fill-key-2"})
    assert lines(outcome) == [
        "glm-prod: node prefill-0 changed (headers: - -> replaced)",
        "glm-prod: tenant a changed (key: - -> replaced)",
    ]
    target = loaded_target(Deployment.objects.get())
    assert target.nodes[1].credentials.headers == (("Authorization", "Bearer pre-fill-key-2"),)


def test_a_missing_variable_keeps_what_is_stored_and_says_so() -> None:
    imported()
    outcome = imported(keys={"TENANT_B": "tenant-key-b"})
    assert lines(outcome) == []
    assert outcome.notes == (
        "glm-prod: PREFILL_KEY for node prefill-0 is not set; what is stored was kept.",
        "glm-prod: TENANT_A for tenant a is not set; what is stored was kept.",
    )
    assert len(loaded_target(Deployment.objects.get()).tenants) == 2


def test_a_page_cannot_read_the_servers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENANT_A", "tenant-key-a")
    outcome = import_fleet(FLEET, "yaml", "command:fleet", False)
    assert outcome.done
    assert loaded_target(Deployment.objects.get()).tenants == ()
    assert "glm-prod: tenant a has no key yet; active checks wait for it." in outcome.notes


def test_where_a_key_was_read_is_kept_and_never_taken_from_a_page() -> None:
    imported()
    tenant, node = Tenant.objects.get(name="a"), Node.objects.get(name="prefill-0")
    assert (tenant.key_env, tenant.credential_set_by) == ("TENANT_A", "command:fleet")
    assert node.headers_env == [["", "PREFILL_KEY"]]
    renamed = FLEET.replace("key_env: TENANT_A", "key_env: GLM_A").replace("PREFILL_KEY", "GLM_NODE")
    outcome = imported(renamed, keys={"GLM_A": "tenant-key-a", "GLM_NODE": "pre-fill-key-1"})
    assert lines(outcome) == [], "the same keys under other names"
    assert Tenant.objects.get(name="a").key_env == "GLM_A"
    assert Node.objects.get(name="prefill-0").headers_env == [["", "GLM_NODE"]], "the same row: no other key"
    set_tenant_key(tenant=Tenant.objects.get(name="a"), key="by-hand", actor="system:tests")
    set_node_headers(node=Node.objects.get(name="prefill-0"), headers=(("x", "y"),), actor="system:tests")
    import_fleet(renamed, "yaml", "command:fleet", False)  # a page names variables, but reads none
    tenant = Tenant.objects.get(name="a")
    assert (tenant.key_env, tenant.credential_set_by) == ("", "system:tests")
    assert Node.objects.current().get(name="prefill-0").headers_env == []


def test_kvaudits_own_variables_are_never_sent_to_an_engine() -> None:
    outcome = imported(FLEET.replace("PREFILL_KEY", "DATABASE_URL"), keys={"DATABASE_URL": "x"})
    assert [str(problem) for problem in outcome.problems] == [
        "line 11: DATABASE_URL belongs to kvaudit itself; node prefill-0 needs a variable of its own."
    ]
    assert not Deployment.objects.exists()


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("10.0.0.1:30000", "10.9.9.9:30000", "node prefill-0"),
        ("gateway.example", "evil.example", "tenant a"),
    ],
)
def test_a_stored_key_is_not_sent_to_another_origin(old: str, new: str, lost: str) -> None:
    imported()
    outcome = imported(FLEET.replace(old, new), keys={})
    assert any(
        f"the address of {lost} changed, so its stored key was removed" in note for note in outcome.notes
    )
    target = loaded_target(Deployment.objects.get())
    held = {node.name: bool(node.credentials.headers) for node in target.nodes}
    assert held["prefill-0"] is (lost != "node prefill-0")
    assert len(target.tenants) == (2 if lost == "node prefill-0" else 0)


def test_a_new_path_on_the_same_origin_keeps_the_key() -> None:
    imported()
    imported(FLEET.replace("10.0.0.1:30000", "10.0.0.1:30000/engine"), keys={})
    target = loaded_target(Deployment.objects.get())
    assert target.nodes[1].url.endswith("/engine")
    assert target.nodes[1].credentials.headers


def test_pins_follow_the_file() -> None:
    imported()
    outcome = imported(FLEET.replace('"sglang>=0.5.22"', '"sglang>=0.5.23", "vllm>=0.30"'))
    assert lines(outcome) == [
        "glm-prod: pin sglang changed (range: >=0.5.22 -> >=0.5.23)",
        "glm-prod: pin vllm added (range: - -> >=0.30)",
    ]
    assert Pin.objects.count() == 3
    assert lines(imported(FLEET.replace('["sglang>=0.5.22"]', "[]"))) == [
        "glm-prod: pin sglang removed (range: >=0.5.23 -> -)",
        "glm-prod: pin vllm removed (range: >=0.30 -> -)",
    ]


def test_consent_is_an_interval_with_a_name() -> None:
    with_consent = FLEET.replace(
        "    nodes:", "    consent: {given: true, by: Grace, reason: staging pair}\n    nodes:"
    )
    assert lines(imported(with_consent))[-1] == "glm-prod: consent added"
    consent = Consent.objects.get()
    assert (consent.given_by, consent.reason) == ("Grace (imported by command:fleet)", "staging pair")
    assert loaded_target(Deployment.objects.get()).consent
    assert lines(imported()) == ["glm-prod: consent removed"]
    assert not loaded_target(Deployment.objects.get()).consent


def test_a_retired_deployment_comes_back_when_it_is_imported_again() -> None:
    from kvaudit.server.fleet.services import retire_deployment

    imported()
    retire_deployment(deployment=Deployment.objects.get(), actor="system:tests")
    assert not Node.objects.exclude(headers_sealed="").exists()
    assert not Tenant.objects.exclude(credential_sealed="").exists()
    assert lines(imported()) == [
        "glm-prod: deployment changed (retired: True -> False)",
        "glm-prod: node prefill-0 changed (headers: - -> set)",
        "glm-prod: tenant a changed (key: - -> set)",
        "glm-prod: tenant b changed (key: - -> set)",
    ]
    assert Deployment.objects.get().retired_at is None


# Who may


def test_an_operator_imports_for_the_own_team() -> None:
    team = factories.a_team("serving")
    assert imported(actor=factories.a_user(team=team, role="operator")).done
    assert Entry.objects.filter(kind="fleet.imported", subject="deployment:glm-prod").count() == 1


@pytest.mark.parametrize("role", ["viewer", "auditor", None])
def test_readers_and_strangers_may_not_import(role: str | None) -> None:
    team = factories.a_team("serving")
    user = factories.a_user(team=team, role=role) if role else factories.a_user()
    outcome = imported(actor=user)
    assert [str(problem) for problem in outcome.problems] == [
        "line 3: You may not change glm-prod: your role in its team does not allow it."
    ]
    assert not Deployment.objects.exists()


def test_an_operator_of_one_team_cannot_take_or_give_away_a_deployment() -> None:
    imported()
    user = factories.a_user(team=factories.a_team("thieves"), role="operator")
    assert imported(FLEET.replace("team: serving", "team: thieves"), actor=user).problems
    mine = factories.a_user(team=Deployment.objects.get().team, role="operator")
    assert imported(FLEET.replace("team: serving", "team: thieves"), actor=mine).problems
    assert Deployment.objects.get().team.slug == "serving"


def test_only_an_approver_gives_consent_but_an_operator_may_keep_it() -> None:
    with_consent = FLEET.replace("    nodes:", "    consent: true\n    nodes:")
    team = factories.a_team("serving")
    operator = factories.a_user(team=team, role="operator")
    outcome = imported(with_consent, actor=operator)
    assert "You may not give consent for glm-prod" in str(outcome.problems[0])
    assert imported(with_consent, actor=factories.a_user(team=team, role="approver")).done
    assert imported(with_consent, actor=operator).done


def test_every_field_of_a_file_reaches_the_checks() -> None:
    more = """\
    disagg_buffer: 500_000
    edge_limit: 600_000
    headroom: 1.5
    conditions: {pd_disaggregation: true}
    components: {lmcache: "0.4.1"}
    entry_sets_salts: true
    session:
      url: https://gateway.example/sessions
      wait: 30
      without: [drop, late]
      steps:
        claim: {method: POST, path: /claim, body: {size: "{{size}}"}, capture: {id: /id}}
        seed: {method: PUT, path: "/s/{{id}}", body: {text: "{{marker}}"}}
        read: {method: GET, path: "/s/{{id}}"}
        write: {method: PUT, path: "/s/{{id}}", body: {text: "{{marker}}"}}
        end: {method: DELETE, path: "/s/{{id}}"}
    windows: [{days: [sun], from: "02:00", to: "05:00", zone: Europe/Berlin}]
    nodes:"""
    assert imported(FLEET.replace("    nodes:", more)).problems == ()
    deployment = Deployment.objects.get()
    rules = loaded_target(deployment).rules
    assert (rules.disagg_buffer, rules.edge_limit, rules.headroom) == (500_000, 600_000, 1.5)
    assert loaded_target(deployment).session is None, "not before somebody has approved it"
    approver = factories.a_user(team=deployment.team, role="approver")
    approve_session(deployment=deployment, digest=digest_of_session(deployment.session), actor=approver)
    target = loaded_target(deployment)
    assert target.entry_sets_salts
    assert target.session == parse_fleet(FLEET.replace("    nodes:", more)).deployments[0].session
    assert target.session is not None
    assert target.session.of("claim")[0].capture == (("id", "/id"),)
    assert (rules.conditions, rules.components) == ({"pd_disaggregation": True}, {"lmcache": "0.4.1"})
    assert deployment.windows == [{"days": ["sun"], "from": "02:00", "to": "05:00", "zone": "Europe/Berlin"}]


def test_replicas_follow_the_file_and_reach_the_checks() -> None:
    def declared() -> list[int]:
        return [node.replicas for node in loaded_target(Deployment.objects.get()).nodes]

    assert "role: prefill" in FLEET
    assert imported(FLEET.replace("role: prefill", "role: prefill, replicas: 3")).problems == ()
    assert 3 in declared()
    assert imported(FLEET).problems == ()
    assert set(declared()) == {0}


SALTED = FLEET.replace("key_env: TENANT_A", "key_env: TENANT_A, salt_env: SALT_A")


def salts() -> dict[str, str]:
    return {tenant.name: tenant.salt for tenant in loaded_target(Deployment.objects.get()).tenants}


def test_a_tenants_salt_follows_the_file_and_is_never_shown() -> None:
    keys = {**KEYS, "SALT_A": "salt-of-a-1"}
    imported(SALTED, keys=keys)
    assert salts() == {"a": "salt-of-a-1", "b": ""}
    assert imported(SALTED, keys=keys).differences == ()
    outcome = imported(SALTED, keys={**KEYS, "SALT_A": "salt-of-a-2"})
    assert lines(outcome) == ["glm-prod: tenant a changed (salt: - -> replaced)"]
    dump = repr(outcome) + repr(list(Tenant.objects.values())) + repr(loaded_target(Deployment.objects.get()))
    assert "salt-of-a" not in dump
    kept = imported(SALTED, keys=KEYS)
    assert salts()["a"] == "salt-of-a-2"
    assert any("SALT_A" in note for note in kept.notes)
    assert lines(imported()) == ["glm-prod: tenant a changed (salt: - -> removed)"]
    assert salts()["a"] == ""


def test_keys_are_not_sent_to_a_session_api_of_another_origin() -> None:
    session = """\
    session:
      url: https://elsewhere.example
      without: [drop, late]
      steps:
        claim: {method: POST, path: /claim, body: {size: "{{size}}"}, capture: {id: /id}}
        seed: {method: PUT, path: "/s/{{id}}", body: {text: "{{marker}}"}}
        read: {method: GET, path: "/s/{{id}}"}
        write: {method: PUT, path: "/s/{{id}}", body: {text: "{{marker}}"}}
        end: {method: DELETE, path: "/s/{{id}}"}
    nodes:"""
    imported()
    imported(FLEET.replace("    nodes:", session), keys={})
    assert loaded_target(Deployment.objects.get()).tenants == (), "entered for the gateway, not for it"


def test_a_team_is_made_by_whoever_may_edit_the_whole_fleet() -> None:
    outcome = imported(actor=factories.a_user(team=factories.a_team("other"), role="operator"))
    assert "There is no team serving" in str(outcome.problems[0])
    assert imported(actor=factories.an_admin()).done


# What does not fit


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "The file is empty."),
        ("[]", "line 1"),
        (FLEET.replace("https://gateway", "ftp://gateway"), "line 7"),
        (
            FLEET.replace("team: serving\n    ", "").replace("glm-prod", "new"),
            "line 3: new is new and needs a team",
        ),
        (FLEET.replace("slug: glm-prod", "slug: glm.prod"), "slug 'glm.prod'"),
        ("\x00\x01\x02", "NUL"),
        ("a: &a [*a, *a]", "Anchors"),
    ],
)
def test_a_broken_file_changes_nothing(text: str, sentence: str) -> None:
    imported()
    before = list(Node.objects.values())
    outcome = imported(text)
    assert outcome.problems
    assert not outcome.done
    assert sentence in " ".join(map(str, outcome.problems))
    assert list(Node.objects.values()) == before


def test_one_refused_deployment_refuses_the_whole_file() -> None:
    second = (
        FLEET.split("deployments:\n")[1].replace("glm-prod", "second").replace("team: serving", "team: '!'")
    )
    outcome = imported(FLEET + second)
    assert [problem.line for problem in outcome.problems] == [16]
    assert not Deployment.objects.exists()


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it() -> None:
    outcome = imported(keys={**KEYS, "TENANT_A": "line\nbreak"})
    assert "The key of tenant a cannot be sent" in str(outcome.problems[0])
    assert "break" not in repr(outcome)


def test_no_secret_is_anywhere_but_sealed() -> None:
    outcome = imported()
    dump = repr(outcome) + repr(list(Entry.objects.values()))
    for model in (Deployment, Node, Tenant):
        dump += repr(list(model.objects.values())) + repr(list(model.objects.all()))
    assert not [key for key in KEYS.values() if key in dump]
    assert not [key for key in KEYS.values() if key in repr(loaded_target(Deployment.objects.get()))]


# CSV


CSV = "slug,team,context,name,role,url\nglm-prod,serving,,prefill-0,prefill,http://10.0.0.1:30000\n"


def test_an_empty_cell_leaves_what_is_there() -> None:
    imported()
    outcome = imported(CSV, format="csv")
    assert lines(outcome) == ["glm-prod: node decode-0 removed (url: http://10.0.0.2:30000 -> -)"]
    deployment = Deployment.objects.get()
    assert (deployment.context, deployment.owner, deployment.engine) == (1_048_576, "Ada", "sglang")
    assert len(loaded_target(deployment).tenants) == 2
    assert loaded_target(deployment).nodes[0].credentials.headers


def test_a_fleet_can_be_created_from_csv() -> None:
    outcome = imported(CSV, format="csv")
    assert outcome.done, outcome.problems
    assert Deployment.objects.get().headroom == 1.25


@pytest.mark.parametrize(
    ("field", "stored"),
    [
        ("owner: " + "x" * 300, True),
        ("owner: " + "x" * 301, False),
        (f"pins: ['{'e' * 90}>=1']", False),
        (f"pins: ['sglang>=0.5.22{',!=1.0' * 13}']", True),
        ('model: "\\U0001F4A9"', True),
        ('model: "\\ud800"', False),
        ('model: "\\u0000"', False),
        ("context: 1000000000000", True),
        ("context: 1000000000001", False),
        ("headroom: .nan", False),
        (f"consent: {{given: true, by: '{'b' * 300}', reason: '{'r' * 300}'}}", True),
    ],
)
def test_the_longest_and_oddest_values_are_stored_or_refused(field: str, stored: bool) -> None:
    text = FLEET.replace("    owner: Ada\n", "").replace("    context: 1_048_576\n", "")
    text = text.replace('    pins: ["sglang>=0.5.22"]\n', "").replace(
        "    nodes:", f"    {field}\n    nodes:"
    )
    outcome = imported(text)
    assert (outcome.done, bool(outcome.problems)) == (stored, not stored)
    assert Deployment.objects.count() == int(stored)


@pytest.mark.parametrize("second", ["tenant-key-a", " tenant-key-a ", "Bearer tenant-key-a"])
def test_one_key_for_two_tenants_is_refused_and_not_repeated(second: str) -> None:
    outcome = imported(keys={**KEYS, "TENANT_B": second})
    [problem] = outcome.problems
    assert "tenants a and b have one and the same key" in problem.sentence
    assert "tenant-key-a" not in repr(outcome)
    assert not Deployment.objects.exists()
    imported()
    renewed = imported(keys={"TENANT_B": second})  # against what is stored of the other
    assert "one and the same key" in renewed.problems[0].sentence


def test_one_stored_key_for_two_tenants_ends_active_checks_in_error() -> None:
    """As an installation may hold it since before it was refused."""
    import asyncio

    from kvaudit.auditor import runner
    from kvaudit.server.accounts.sealed_fields import place_of
    from kvaudit.server.fleet.key_origins import origins_of_tenants
    from kvaudit.server.fleet.sealed_headers import bearer, seal_headers

    imported()
    deployment = Deployment.objects.get()
    for tenant in Tenant.objects.all():
        place = place_of(tenant, "credential_sealed")
        tenant.credential_sealed = seal_headers(bearer("equal-key"), place, origins_of_tenants(deployment))
        tenant.save()
    assert any("one and the same key" in note for note in imported(keys={}).notes), "said, and nothing lost"
    target = loaded_target(deployment)
    _, results = asyncio.run(
        runner.results(target, ["pool", "canary", "prefix", "session"], budget=runner.Budget(seconds=2))
    )
    for result in results[1:]:
        assert result.verdict == "error"
        assert "one and the same key" in result.summary
        assert "equal-key" not in repr(result)
