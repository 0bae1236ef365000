"""Judges the versions that were read of each node by pins and advisories; sends nothing of its own. What the
check is for: `kvaudit.auditor.checks.version`."""

from __future__ import annotations

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.version import CHECK
from kvaudit.auditor.checks.version.verdict import judge_version
from kvaudit.auditor.verdict import Result


class VersionProbe:
    """Compares the version of every node with the pins and with the shipped advisories."""

    id = CHECK.id

    async def observe(self, audit: Audit) -> None:
        """Nothing beyond the readings that every passive check shares."""

    def judge(self, seen: None, audit: Audit) -> Result:
        return judge_version(audit)


PROBE = VersionProbe()
