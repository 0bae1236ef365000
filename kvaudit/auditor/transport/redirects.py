"""Redirects are never followed: a key goes to the address it was given for, and to no other."""

from __future__ import annotations

from kvaudit.auditor.transport.errors import Redirected
from kvaudit.auditor.transport.headers import printable
from kvaudit.auditor.transport.redaction import Redactor


def refuse_redirect(status: int, location: str, where: str, redactor: Redactor) -> None:
    """`Redirected` for a status that sends elsewhere."""
    if 300 <= status < 400 and status != 304:
        wanted = printable(redactor.text(location).partition("?")[0])
        raise Redirected(
            f"{where} answered {status} and wanted to send us to {wanted or 'nowhere named'}: "
            "redirects are never followed. Give the address of the engine itself."
        )
