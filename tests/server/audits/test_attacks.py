"""What an import or a channel may make the server do, end to end: nothing reaches what is not the fleet's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvaudit.auditor.fleetfile import parse_fleet
from kvaudit.auditor.transport import egress
from kvaudit.auditor.transport.egress import Policy
from kvaudit.auditor.transport.rules import parse_rule
from kvaudit.server.audits.execution import run_task
from kvaudit.server.audits.models import Kind
from kvaudit.server.fleet import session_plans
from kvaudit.server.fleet.import_file import import_fleet
from kvaudit.server.fleet.models import Deployment, Node, Tenant
from kvaudit.server.fleet.services import set_tenant_key
from kvaudit.server.fleet.session_approval import approve_session, digest_of_session
from kvaudit.server.notify import delivery, services
from kvaudit.server.notify.channels import BadChannel
from kvaudit.server.notify.models import OutboxMessage
from kvaudit.server.notify.services import create_channel
from tests import factories, servers
from tests.server.audits.builders import a_run
from tests.session_server import FLEET_FILE

pytestmark = pytest.mark.django_db


@pytest.fixture
def container_api() -> Iterator[servers.Server]:
    """Stands for what listens on loopback: a container API, a database, kvaudit itself."""
    with servers.background(servers.answer({"id": "abc"})) as server:
        yield server


@pytest.fixture
def server_policy() -> Iterator[Any]:
    """Installs a policy like the server's, with the given allowances; the tests' own has all of loopback open."""
    before = egress.current()

    def install(*allow: str, own: tuple[tuple[str, int], ...] = ()) -> None:
        egress.install(Policy(tuple(map(parse_rule, allow)), (), own, guarded=True))

    yield install
    egress.install(before)


def with_session(url: str, *, approved: bool = True) -> Deployment:
    parsed = parse_fleet(FLEET_FILE.format(url=url))
    assert parsed.problems == ()
    deployment = factories.a_deployment(session=session_plans.as_json(parsed.deployments[0].session))
    for name in ("a", "b"):
        tenant = Tenant.objects.create(deployment=deployment, name=name)
        set_tenant_key(tenant=tenant, key=f"key-{name}", actor="system:tests")
    if approved:
        approver = factories.a_user(team=deployment.team, role="approver")
        approve_session(deployment=deployment, digest=digest_of_session(deployment.session), actor=approver)
    return deployment


def audited(deployment: Deployment, check: str = "session", kind: Kind = Kind.ACTIVE) -> Any:
    run = a_run(deployment, checks=[check], kind=kind)
    assert run_task.execute([run.pk], kind=kind) == 1
    run.refresh_from_db()
    return run


def test_approved_and_allowed_steps_are_sent(container_api: servers.Server, server_policy: Any) -> None:
    """The control of the others: with both words the requests do arrive."""
    server_policy(f"127.0.0.1:{container_api.port}")
    audited(with_session(container_api.url))
    assert container_api.requests


@pytest.mark.parametrize("approved", [True, False])
def test_session_steps_reach_nothing_on_loopback(
    container_api: servers.Server, server_policy: Any, approved: bool
) -> None:
    server_policy()
    run = audited(with_session(container_api.url, approved=approved))
    assert container_api.connections == 0
    assert run.verdict != "pass"


def test_steps_that_nobody_approved_are_not_sent_even_where_the_door_is_open(
    container_api: servers.Server, server_policy: Any
) -> None:
    server_policy("127.0.0.0/8")
    run = audited(with_session(container_api.url, approved=False))
    assert container_api.connections == 0
    assert run.verdict == "inconclusive"
    assert "not approved" in run.summary


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"])
@pytest.mark.parametrize("own", [False, True])
def test_a_node_at_a_port_of_ours_is_not_connected_to(
    container_api: servers.Server, server_policy: Any, host: str, own: bool
) -> None:
    port = container_api.port
    if own:  # even an operator who opened all of loopback has not opened the database
        server_policy("127.0.0.0/8", "[::1]", own=(("127.0.0.1", port),))
    else:
        server_policy()
    deployment = factories.a_deployment()
    factories.a_node(deployment, "n", url=f"http://{host}:{port}")
    run = audited(deployment, "pool", Kind.PASSIVE)
    assert container_api.connections == 0
    assert run.verdict == "error"
    assert ("own services" if own else "EGRESS_ALLOW") in run.summary


def test_a_webhook_to_loopback_is_refused_and_an_old_one_delivers_nothing(
    container_api: servers.Server, server_policy: Any
) -> None:
    admin = factories.an_admin()
    address = f"{container_api.url}/containers/create"
    channel, _ = create_channel(kind="webhook", name="old", address=address, actor=admin)
    server_policy()
    for host in ("127.0.0.1", "localhost", "0x7f.1", "[::1]"):
        with pytest.raises(BadChannel, match="EGRESS_ALLOW"):
            create_channel(
                kind="webhook", name="new", address=f"http://{host}:{container_api.port}/", actor=admin
            )
    services.send_test(channel=channel, actor=admin)
    assert delivery.deliver_due() == 0
    assert container_api.connections == 0
    assert "EGRESS_ALLOW" in OutboxMessage.objects.get().last_problem


PATHS = ["/dev/ptmx", "/dev/zero", "/etc/shadow", "../other/ca.pem", "/proc/self/environ"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["ca_file", "client_cert", "client_key"])
def test_a_file_of_the_server_is_refused_on_import(
    path: str, name: str, settings: Any, tmp_path: Path
) -> None:
    text = (
        "schema: kvaudit.fleet/1\ndeployments:\n  - slug: evil\n    team: red\n    nodes:\n"
        f'      - {{name: n, url: "https://10.0.0.1:1", {name}: "{path}"}}\n'
    )
    for folder in ("", str(tmp_path)):
        settings.KVAUDIT_TLS_FOLDER = folder
        outcome = import_fleet(text, "yaml", "command:fleet", False)
        assert [problem.line for problem in outcome.problems] == [6]
        assert "KVAUDIT_TLS_FOLDER" in outcome.problems[0].sentence
    assert not Deployment.objects.exists()


def test_a_bare_name_is_taken(settings: Any, tmp_path: Path) -> None:
    settings.KVAUDIT_TLS_FOLDER = str(tmp_path)
    text = (
        "schema: kvaudit.fleet/1\ndeployments:\n  - slug: good\n    team: red\n    nodes:\n"
        '      - {name: n, url: "https://10.0.0.1:1", ca_file: internal-ca.pem}\n'
    )
    assert import_fleet(text, "yaml", "command:fleet", False).done
    assert Node.objects.get().ca_file == "internal-ca.pem"


@pytest.mark.parametrize("kind", [*PATHS, "fifo", "link", "missing.pem"])
def test_paths_of_the_release_before_open_nothing_and_say_what_to_do(
    kind: str, settings: Any, tmp_path: Path, container_api: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.KVAUDIT_TLS_FOLDER = str(tmp_path)
    deployment = factories.a_deployment()
    team = tmp_path / deployment.team.slug
    team.mkdir()
    os.mkfifo(team / "fifo.pem")
    (team / "link.pem").symlink_to("/etc/passwd")
    given = {"fifo": "fifo.pem", "link": "link.pem"}.get(kind, kind)
    factories.a_node(deployment, "n", url=f"https://127.0.0.1:{container_api.port}", ca_file=given)
    opened: list[str] = []
    monkeypatch.setattr(
        "kvaudit.auditor.transport.tls.os.open", lambda path, *more: opened.append(path) or 1 / 0
    )
    run = audited(deployment, "pool", Kind.PASSIVE)
    assert run.verdict == "error"
    assert "below KVAUDIT_TLS_FOLDER: whoever runs kvaudit puts it there" in run.summary
    assert opened == []
    assert container_api.connections == 0
