"""Dates a running engine's build by its traits, beside or instead of its version string.

A trait shows that a build has a release's features, not that it has the fix of a bug: on a
development build either may have landed first. Found by comparing released wheels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import Version

from kvaudit.auditor.advisories.versions import Build
from kvaudit.auditor.engines import describe


@dataclass(frozen=True, slots=True)
class Traits:
    """What the traits of a process say. ``low`` and ``high`` bound its release (None = open);
    ``denied`` are traits seen that its version cannot have, ``absent`` those that it should have."""

    low: Version | None
    high: Version | None
    denied: tuple[str, ...]
    absent: tuple[str, ...]

    def sentence(self) -> str:
        """ "its features are those of 0.5.21 to 0.5.22"; "" when nothing is known."""
        if self.low and self.high:
            return f"its features are those of {self.low} to {self.high}"
        if self.low:
            return f"it has features of {self.low}"
        return f"it has features that ended with {self.high}" if self.high else ""


def traits(engine: str, features: Mapping[str, bool], build: Build) -> Traits:
    """Compare what was looked for and seen with what the build may have."""
    first, last = describe(engine).features_since, describe(engine).features_until
    starts = [Version(first[name]) for name, seen in features.items() if seen and name in first]
    ends = [Version(last[name]) for name, seen in features.items() if seen and name in last]
    denied: list[str] = []
    absent: list[str] = []
    if build.low is not None and build.high is not None:
        for name, seen in sorted(features.items()):
            if seen and name in first and build.high < Version(first[name]):
                denied.append(f"{name} (from {first[name]} on)")
            elif seen and name in last and build.low > Version(last[name]):
                denied.append(f"{name} (until {last[name]})")
            elif not seen and name in first and build.low >= Version(first[name]):
                absent.append(f"{name} (from {first[name]} on)")
    return Traits(max(starts, default=None), min(ends, default=None), tuple(denied), tuple(absent))
