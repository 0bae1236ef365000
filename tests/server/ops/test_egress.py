"""The server's egress list: out of its variables, with kvaudit's own doors and the lab's ports."""

from __future__ import annotations

import asyncio
import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from kvaudit.auditor.transport import egress
from kvaudit.server.ops.egress import LabPorts, own_services, server_policy, write_lab_ports
from kvaudit.server.ops.environment import Environment


async def nowhere(host: str, port: int) -> list[str]:
    raise OSError(-2, "Name or service not known")


def refused(policy: egress.Policy, address: str, port: int) -> str:
    return asyncio.run(policy.refusal(ip_address(address), port, nowhere))


def test_django_installs_it_in_every_process() -> None:
    assert egress.current().guarded


def test_rules_come_from_the_environment_and_mistakes_are_told_together() -> None:
    good = Environment({"EGRESS_ALLOW": "127.0.0.1:8000, [::1]:8000"})
    assert [rule.text for rule in good.egress_rules("EGRESS_ALLOW")] == ["127.0.0.1:8000", "[::1]:8000"]
    bad = Environment({"EGRESS_DENY": "10.0.0.5/8,x:0,10.0.0.0/8"})
    assert len(bad.egress_rules("EGRESS_DENY")) == 1
    assert len(bad.faults) == 2
    assert all(fault.startswith("EGRESS_DENY: ") for fault in bad.faults)


def test_compose_may_end_its_list_with_nothing() -> None:
    assert len(Environment({"EGRESS_DENY": "web,postgres,valkey,"}).egress_rules("EGRESS_DENY")) == 3


@pytest.mark.parametrize("value", ["relative", "./tls", "/etc/passwd"])
def test_a_tls_folder_that_is_none_is_a_fault(value: str) -> None:
    environment = Environment({"KVAUDIT_TLS_FOLDER": value})
    environment.folder("KVAUDIT_TLS_FOLDER")
    assert "absolute path of a folder" in environment.faults[0]


@pytest.mark.parametrize(
    ("database", "broker", "own"),
    [
        ({"HOST": "/run/pg"}, "redis+socket:///run/v.sock", []),
        (
            {"HOST": "127.0.0.1", "PORT": "5433"},
            "redis://:pw@127.0.0.1:6380/0",
            [("127.0.0.1", 5433), ("127.0.0.1", 6380)],
        ),
        ({"HOST": "postgres", "PORT": ""}, "rediss://valkey/0", [("postgres", 5432), ("valkey", 6379)]),
        ({"HOST": "a,b"}, "redis://x:1/0;redis://y/0", [("a", 5432), ("b", 5432), ("x", 1), ("y", 6379)]),
        ({"HOST": "a,b", "PORT": "1,2"}, "", [("a", 1), ("b", 2)]),
        ({"HOST": "", "OPTIONS": {"host": "10.0.0.1", "port": "7"}}, "", [("10.0.0.1", 7)]),
    ],
)
def test_our_own_doors_are_found(database: dict[str, Any], broker: str, own: list[Any]) -> None:
    assert list(own_services(database, broker, ("0.0.0.0", 8000))) == [*own, ("0.0.0.0", 8000)]
    assert list(own_services(database, broker, ("", 0))) == own


def test_only_the_labs_ports_are_open_and_only_while_it_is_there(settings: Any, tmp_path: Path) -> None:
    ports, fleet = tmp_path / "lab.ports", tmp_path / "fleet.json"
    settings.EGRESS_ALLOW, settings.EGRESS_LAB_FILE = (), str(ports)
    policy = server_policy()
    assert refused(policy, "127.0.0.1", 4001)
    nodes = [{"url": "http://127.0.0.1:4002"}, {"url": "http://[::1]:4003"}]
    fleet.write_text(json.dumps({"deployments": [{"entry": "http://127.0.0.1:4001", "nodes": nodes}]}))
    write_lab_ports(ports, fleet)
    assert [refused(policy, "127.0.0.1", port) for port in (4001, 4002)] == ["", ""]
    assert refused(policy, "::1", 4003) == ""
    assert refused(policy, "127.0.0.1", 4003)
    ports.unlink()
    assert refused(policy, "127.0.0.1", 4001)


def test_the_labs_file_opens_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "lab.ports"
    path.write_text("10.0.0.1:80\n127.0.0.0/8\n127.0.0.1\n127.0.0.1:1-9\nname:80\nnonsense:x\n127.0.0.1:7\n")
    assert [rule.text for rule in LabPorts(path).rules()] == ["127.0.0.1:7"]
