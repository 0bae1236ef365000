"""Records the acts of this app. The ledger stands above this app and installs itself here, so that accounts
need not know it."""

from __future__ import annotations

from typing import Protocol

from kvaudit.server.accounts.actors import Actor


class Recorder(Protocol):
    def __call__(self, *, actor: Actor, kind: str, subject: str, digest: str = "") -> object: ...


_installed: list[Recorder] = []


def install(recorder: Recorder) -> None:
    """Called once, by the ledger's app configuration."""
    _installed[:] = [recorder]


def record(*, actor: Actor, kind: str, subject: str, digest: str = "") -> None:
    """Record an act of this app; without a ledger nothing may be changed."""
    if not _installed:
        raise RuntimeError("no ledger is installed: kvaudit.server.ledger is missing from INSTALLED_APPS")
    _installed[0](actor=actor, kind=kind, subject=subject, digest=digest)
