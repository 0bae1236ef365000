"""Matches known bugs by engine and version, and version pins. See docs/advisories.md."""
