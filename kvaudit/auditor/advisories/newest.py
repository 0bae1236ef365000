"""Holds a version against the newest release that the advisories know: beyond their data nothing has been looked at.

An image tag or a rebuilt package may count something else than the engine's releases (NGC's months, Dynamo's runtime),
and would lie above every affected range.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from packaging.version import Version

from kvaudit.auditor.advisories.load import shipped
from kvaudit.auditor.advisories.versions import Build, parse_build

JUST_ABOVE = 10
"""By how much the first part of a version that differs may be higher, if it is not the major one, to be the same
project's next releases: 0.34.0 or 0.43.1 after 0.33.0, 0.6.0 after 0.5.23."""


@lru_cache(maxsize=4096)
def build_of(name: str, text: str | None) -> Build:
    """What a version string of this engine or component may mean, given what the shipped advisories know of it. Far
    above their newest release it is unknown; just above, `Build.newer` says so."""
    build = parse_build(text)
    known = shipped().newest.get(name)
    if build.low is None or known is None:
        return build
    newest = Version(known)
    if _release(build.low) <= _release(newest) and not build.low > newest:
        return build
    if _just_above(_release(build.low), _release(newest)):
        clause = f"is newer than {known}, the newest release that these advisories know"
        return replace(build, newer=clause) if build.kind in ("release", "candidate") else build
    why = f"is far above {known}, the newest release that these advisories know: it may count something else"
    return Build(build.text, "unknown", why=why)


def _release(version: Version) -> tuple[int, ...]:
    return (*version.release, 0, 0, 0)[: max(3, len(version.release))]


def _just_above(release: tuple[int, ...], newest: tuple[int, ...]) -> bool:
    if release[0] != newest[0]:
        return False
    apart = next((here - there for here, there in zip(release, newest, strict=False) if here != there), 0)
    return apart <= JUST_ABOVE
