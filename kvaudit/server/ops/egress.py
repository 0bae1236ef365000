"""Builds the egress list of the server out of its settings: what the operator allows and denies, kvaudit's own
doors, and the ports of the lab fleet that ``kvaudit up`` runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from kvaudit.auditor.transport.egress import Policy
from kvaudit.auditor.transport.rules import BadRule, Rule, parse_rule

BROKER_PORT, DATABASE_PORT = 6379, 5432


def server_policy() -> Policy:
    """What `kvaudit.auditor.transport.egress` holds every client of this process to."""
    lab = LabPorts(Path(settings.EGRESS_LAB_FILE)) if settings.EGRESS_LAB_FILE else None
    return Policy(
        allow=settings.EGRESS_ALLOW,
        deny=settings.EGRESS_DENY,
        own=tuple(
            own_services(
                settings.DATABASES["default"], str(settings.CELERY_BROKER_URL), settings.OWN_ENDPOINT
            )
        ),
        guarded=True,
        more=lab.rules if lab is not None else tuple,
    )


def own_services(
    database: Mapping[str, Any], broker_urls: str, web: tuple[str, int]
) -> Iterable[tuple[str, int]]:
    """(host, port) of database, broker and web; what listens on a Unix socket has neither."""
    options = database.get("OPTIONS") or {}
    hosts = str(database.get("HOST") or options.get("hostaddr") or options.get("host") or "")
    ports = str(database.get("PORT") or options.get("port") or DATABASE_PORT)
    for host, port in zip_longest(hosts.split(","), ports.split(","), fillvalue=""):
        if host and not host.startswith("/"):
            yield host, int(port or ports.split(",")[0])
    for url in broker_urls.split(";"):
        parts = urlsplit(url)
        if parts.scheme in ("redis", "rediss") and parts.hostname:
            yield parts.hostname, parts.port or BROKER_PORT
    if web[1]:
        yield web[0] or "127.0.0.1", web[1]


class LabPorts:
    """The file that lists the lab's addresses, one a line, read again when it changes. Only single ports of
    loopback are taken from it: it is an exception for the lab, not a second egress list."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = (0, 0)
        self._rules: tuple[Rule, ...] = ()

    def rules(self) -> Sequence[Rule]:
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._rules = tuple(_ports_of_loopback(self._path.read_text(encoding="ascii").split()))
                self._stamp = stamp
        except (OSError, ValueError):
            self._stamp, self._rules = (0, 0), ()
        return self._rules


def _ports_of_loopback(lines: Iterable[str]) -> Iterable[Rule]:
    for line in lines:
        try:
            rule = parse_rule(line)
        except BadRule:
            continue
        single = rule.ports is not None and rule.ports[0] == rule.ports[1]
        if (
            single
            and rule.network is not None
            and rule.network.is_loopback
            and rule.network.num_addresses == 1
        ):
            yield rule


def write_lab_ports(path: Path, fleet_file: Path) -> None:
    """Note the addresses of a lab's fleet file, whole or not at all: a worker may read at any moment."""
    document = json.loads(fleet_file.read_text(encoding="utf-8"))
    urls = {
        url
        for deployment in document["deployments"]
        for url in (deployment["entry"], *(node["url"] for node in deployment["nodes"]))
    }
    half_done = path.with_suffix(".new")
    half_done.write_text("".join(f"{_place(url)}\n" for url in sorted(urls)), encoding="ascii")
    half_done.rename(path)


def _place(url: str) -> str:
    parts = urlsplit(url)
    address = ip_address(parts.hostname or "")
    return f"[{address}]:{parts.port}" if address.version == 6 else f"{address}:{parts.port}"
