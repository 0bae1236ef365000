"""Dates a running engine's build by its traits, beside or instead of its version string.

A trait shows that a build has a release's features, not that it has the fix of a bug: on a
development build either may have landed first. Found by comparing released wheels. A build that lacks what its release
must show is not what its version says: two processes may have answered in turn, one the version and one the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from kvaudit.auditor.advisories.versions import Build
from kvaudit.auditor.engines import describe


@dataclass(frozen=True, slots=True)
class Traits:
    """What the traits of a process say. ``low`` and ``high`` bound its release (None = open). ``denied`` are traits
    seen that its version cannot have; ``lacking`` those missing that it must show; ``absent`` others missing, which a
    proxy or a packager may have taken out."""

    low: Version | None
    high: Version | None
    denied: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    def sentence(self) -> str:
        """ "its features are those of 0.5.21 to 0.5.22"; "" when nothing is known."""
        if self.low and self.high:
            return f"its features are those of {self.low} to {self.high}"
        if self.low:
            return f"it has features of {self.low}"
        return f"it has features that ended with {self.high}" if self.high else ""


def traits(engine: str, features: Mapping[str, bool], build: Build) -> Traits:
    """Compare what was looked for and seen with what the build may have."""
    described = describe(engine)
    first, last = described.features_since, described.features_until
    seen = {name for name, found in features.items() if found}
    starts = [Version(first[name]) for name in seen & set(first)]
    ends = [Version(last[name]) for name in seen & set(last)]
    if build.low is None or build.high is None:
        return Traits(max(starts, default=None), min(ends, default=None))
    denied = [
        f"{name} (from {first[name]} on)" for name in seen & set(first) if build.high < Version(first[name])
    ] + [f"{name} (until {last[name]})" for name in seen & set(last) if build.low > Version(last[name])]
    due = {name: Version(first[name]) for name in features if name in first}
    due = {name: release for name, release in due.items() if build.low >= release}
    newest = [name for name, release in due.items() if release == max(due.values())]
    required = {name for name in due if name in described.always_shown}
    required |= set() if seen & set(newest) else set(newest)
    if build.newer:  # nobody has looked what it still shows
        required = set()
    missing = {name: f"{name} (from {first[name]} on)" for name in sorted(set(due) - seen)}
    return Traits(
        max(starts, default=None),
        min(ends, default=None),
        tuple(sorted(denied)),
        tuple(text for name, text in missing.items() if name not in required),
        tuple(text for name, text in missing.items() if name in required),
    )


def merged(several: Sequence[Traits]) -> Traits:
    """Of processes of one build: a trait that one shows dates all, and one that one lacks speaks for itself."""
    lows = [traits.low for traits in several if traits.low is not None]
    highs = [traits.high for traits in several if traits.high is not None]

    def union(name: str) -> tuple[str, ...]:
        return tuple(sorted({text for traits in several for text in getattr(traits, name)}))

    return Traits(
        max(lows, default=None), min(highs, default=None), union("denied"), union("absent"), union("lacking")
    )
