"""Looks up the keys that a fleet file names and compares them with what is stored; shows none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvaudit.auditor.fleetfile import FleetNode, FleetTenant, Problem
from kvaudit.server.accounts.sealing import Opened, Place, seal
from kvaudit.server.fleet.sealed_headers import (
    LONGEST_KEY,
    BadHeaders,
    Headers,
    bearer,
    check_headers,
    headers_text,
    opened,
    seal_headers,
)

Origins = frozenset[str]

OWN_VARIABLES = re.compile(
    r"(SECRET_KEY|ENCRYPTION_KEY|SEAL_|DATABASE_|BROKER_|EMAIL_|METRICS_TOKEN|KVAUDIT_ADMIN|DJANGO_)"
)
"""kvaudit's own secrets: a fleet file that names one asks to send it to an engine."""


class Refused(Exception):
    """The deployment cannot be imported; ``problem`` has the line and the sentence."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.problem = Problem(line, sentence)


@dataclass
class FileKeys:
    """Keys of one deployment's description; ``notes`` gathers what is missing."""

    slug: str
    environment: Mapping[str, str] | None
    notes: list[str] = field(default_factory=list)

    def named_in(self, each: FleetNode | FleetTenant, whose: str) -> Headers:
        """The headers that the file names and the environment holds; () keeps what is stored.
        Raises `Refused`."""
        named = [*each.headers_env, *([("", each.key_env)] if each.key_env else [])]
        for _, variable in named:
            if OWN_VARIABLES.match(variable):
                raise Refused(
                    each.line, f"{variable} belongs to kvaudit itself; {whose} needs a variable of its own."
                )
        if self.environment is None:
            return ()
        headers: list[tuple[str, str]] = []
        for name, variable in named:
            value = self.environment.get(variable, "").strip()
            if not value:
                self.notes.append(f"{self.slug}: {variable} for {whose} is not set; what is stored was kept.")
                return ()
            headers += [(name, value)] if name else bearer(value)
        try:
            check_headers(headers)
        except BadHeaders as problem:
            raise Refused(each.line, f"The key of {whose} cannot be sent: {problem}") from None
        return tuple(headers)

    def salt_of(self, tenant: FleetTenant) -> str:
        """The cache salt that the file names and the environment holds; "" keeps what is stored. Raises
        `Refused`."""
        if not tenant.salt_env:
            return ""
        whose = f"the salt of tenant {tenant.name}"
        if OWN_VARIABLES.match(tenant.salt_env):
            raise Refused(
                tenant.line,
                f"{tenant.salt_env} belongs to kvaudit itself; {whose} needs a variable of its own.",
            )
        value = "" if self.environment is None else self.environment.get(tenant.salt_env, "").strip()
        if not value:
            self.notes.append(
                f"{self.slug}: {tenant.salt_env} for {whose} is not set; what is stored was kept."
            )
        elif len(value) > LONGEST_KEY or not value.isascii() or not value.isprintable():
            raise Refused(
                tenant.line,
                f"The salt of tenant {tenant.name} must be printable ASCII, at most {LONGEST_KEY} long.",
            )
        return value

    def kept_salt(
        self,
        sealed: str,
        place: Place,
        tenant: FleetTenant,
        *,
        asked: Origins,
        named: Origins,
        partial: bool,
    ) -> tuple[str, str]:
        """(what to store, what to say), as `kept`. A salt that the file no longer names is removed, unless
        the file is ``partial``: a CSV cannot name one."""
        value = self.salt_of(tenant)
        if value and not self._named(asked, named, f"the salt of tenant {tenant.name}"):
            value = ""
        before = opened(sealed, place)
        if value:
            if before == Opened(value, asked):
                return sealed, ""
            return seal(value, place, asked), "replaced" if sealed else "set"
        moved = before is not None and not asked <= before.origins
        if sealed and (moved or not (tenant.salt_env or partial)):
            return "", "removed"
        return sealed, ""

    def kept(
        self, sealed: str, place: Place, headers: Headers, *, asked: Origins, named: Origins, whose: str
    ) -> tuple[str, str]:
        """(what to store, what to say). ``asked`` are the origins that the key is sent to from now on,
        ``named`` those that the file itself names: the key it gives is for no other. A stored key stays
        with the origins it was given for."""
        if headers and not self._named(asked, named, f"the key of {whose}"):
            headers = ()
        before = opened(sealed, place)
        if headers:
            if before == Opened(headers_text(headers), asked):
                return sealed, ""
            return seal_headers(headers, place, asked), "replaced" if sealed else "set"
        if before and not asked <= before.origins:
            self.notes.append(
                f"{self.slug}: the address of {whose} changed, so its stored key was removed; enter it again."
            )
            return "", "removed"
        return sealed, ""

    def _named(self, asked: Origins, named: Origins, what: str) -> bool:
        """Whether the file names every origin that a key it gives would be sent to; notes what it does not."""
        strange = sorted(asked - named)
        if strange:
            self.notes.append(
                f"{self.slug}: {what} was not taken, since it would be sent to {' and '.join(strange)}, "
                "which the file does not name: name it there, or enter the key on the page."
            )
        return not strange
