"""Which advisories apply to a build: True, False, or None where it cannot be told."""

from __future__ import annotations

from kvaudit.advisories.load import shipped
from kvaudit.advisories.versions import in_range, parse_build


def affects(advisory_id: str, engine: str, version: str | None) -> bool | None:
    """Whether the version range of one advisory holds for this engine and version; conditions are
    not looked at. None for another engine (nobody has looked), a build in doubt or no range."""
    advisory = shipped().by_id(advisory_id)
    if advisory.engine != engine or not advisory.affected:
        return None
    return in_range(parse_build(version), advisory.affected)
