"""Serves the demo fleet of ``make up``: three lab deployments in one process, and the file that imports them.

`lab-leaking` is the incident at small scale, `lab-fixed` the same engine fixed and enlarged, and
`lab-shifting` comes back from restarts with another pool. A little ordinary traffic keeps their pools
dirty and lets the third one change about every five minutes. Keys are fake and the same everywhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvaudit.lab import BANNER
from kvaudit.lab.restart import follow

if TYPE_CHECKING:
    from kvaudit.lab.serve import Running

ENVIRONMENT: Mapping[str, str] = {
    "KVAUDIT_LAB_TENANT_A": "sk-lab-tenant-a",
    "KVAUDIT_LAB_TENANT_B": "sk-lab-tenant-b",
    "KVAUDIT_LAB_NODE": "sk-lab-node",
}
"""What the auditor's processes need in their environment; the fleet file holds the names only."""

TRAFFIC_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Demo:
    """One deployment of the demo fleet: its fault, and whether its nodes ask for a key."""

    slug: str
    fault: str
    node_key: bool
    consent: bool


DEMOS = (
    Demo("lab-leaking", "stale_pages", node_key=False, consent=True),
    Demo("lab-fixed", "healthy", node_key=True, consent=True),
    Demo("lab-shifting", "capacity_change", node_key=True, consent=False),
)


def fleet_file(described: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A ``kvaudit.fleet/1`` document; ``described`` maps slug to what `Deployment.described` says."""
    deployments = []
    for demo in DEMOS:
        about = described[demo.slug]
        nodes = [
            {"name": f"{node['role']}-0", "role": node["role"], "url": node["url"]} for node in about["nodes"]
        ]
        if demo.node_key:
            nodes = [{**node, "key_env": "KVAUDIT_LAB_NODE"} for node in nodes]
        deployments.append(
            {
                "slug": demo.slug,
                "team": "lab",
                "owner": "lab",
                "engine": about["engine"],
                "entry": about["entry"],
                "model": about["model"],
                "context": about["context"],
                "consent": demo.consent,
                "entry_sets_salts": True,
                "nodes": nodes,
                "tenants": [
                    {"name": "tenant-a", "key_env": "KVAUDIT_LAB_TENANT_A"},
                    {"name": "tenant-b", "key_env": "KVAUDIT_LAB_TENANT_B"},
                ],
            }
        )
    return {"schema": "kvaudit.fleet/1", "deployments": deployments}


def command(state: str, *, as_json: bool) -> int:
    """Serve until stopped; writes ``fleet.json`` into ``state`` when everything answers."""
    folder = Path(state)
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(_serve(folder, as_json))
    return 0


async def _serve(state: Path, as_json: bool) -> None:
    from kvaudit.lab.config import LabConfig
    from kvaudit.lab.serve import serve, until_stopped

    ports_file, fleet_path = state / "ports.json", state / "fleet.json"
    ports = _remembered(ports_file)
    running: dict[str, Running] = {}
    traffic: dict[str, asyncio.Task[None]] = {}
    following: asyncio.Task[None] | None = None

    async def start(demo: Demo, fault: str, ports: Sequence[int]) -> dict[str, Any]:
        config = LabConfig(node_key=ENVIRONMENT["KVAUDIT_LAB_NODE"] if demo.node_key else "")
        running[demo.slug] = await serve(config, [fault], ports=ports)
        return running[demo.slug].described()

    async def restart(slug: str, fault: str) -> dict[str, Any]:
        demo = next(each for each in DEMOS if each.slug == slug)
        before = running[slug]
        traffic[slug].cancel()
        await asyncio.gather(traffic[slug], return_exceptions=True)
        await before.stop()
        described = await start(demo, fault, before.ports)
        traffic[slug] = asyncio.ensure_future(_traffic(running[slug]))
        return described

    try:
        for demo in DEMOS:
            await start(demo, demo.fault, ports.get(demo.slug, ()))
        described = {slug: server.described() for slug, server in running.items()}
        document = fleet_file(described)
        fleet_path.write_text(json.dumps(document, indent=1))
        ports_file.write_text(json.dumps({slug: server.ports for slug, server in running.items()}))
        if as_json:
            line = {"fleet": str(fleet_path), "environment": dict(ENVIRONMENT), **document}
            print(json.dumps(line), flush=True)
        else:
            print(BANNER)
            for slug, about in described.items():
                print(
                    f"{slug:<13} {about['engine']} {about['version']} {about['faults']:<16} {about['entry']}"
                )
            print(f"fleet file {fleet_path}; Ctrl-C stops it.", flush=True)
        traffic.update({slug: asyncio.ensure_future(_traffic(server)) for slug, server in running.items()})
        following = asyncio.ensure_future(follow(state, restart))
        await until_stopped()
    finally:
        tasks = [*traffic.values(), *([following] if following else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in running.values():
            await server.stop()


def _remembered(path: Path) -> dict[str, list[int]]:
    """Ports of the last start, so that addresses stay the same; {} when there are none to trust."""
    with suppress(OSError, ValueError):
        stored = json.loads(path.read_text())
        if isinstance(stored, dict):
            return {
                str(slug): [int(port) for port in item if isinstance(port, int)]
                for slug, item in stored.items()
                if isinstance(item, list)
            }
    return {}


async def _traffic(running: Running) -> None:
    """One short request of an ordinary user at a time."""
    number = 0
    router = running.deployment.router
    while True:
        await asyncio.sleep(TRAFFIC_SECONDS)
        number += 1
        prompt = f"{number:06d} an ordinary question of an ordinary user, asked again and again: " * (
            number % 9
        )
        body = {"prompt": prompt or "hello", "max_tokens": 16, "temperature": 0}
        await router.route(f"user-{number % 3}", "/v1/completions", body)
