"""Parses Prometheus text leniently: a line that cannot be understood is skipped, never an error.

Labels come and go between releases and bodies may be cut or hostile, so lines are only split by
name at first; labels and values are parsed when a name is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kvaudit.auditor.engines.answers import Answer

LINES = 50_000
BYTES_PER_LINE = 50
"""Lines that are looked at: this many, and one more for every 50 bytes (a series takes a hundred)."""
MOST_SAMPLES = 4096
"""Of one name. More series than this are noise; the rest is not looked at."""
MOST_LABELS = 64
LONGEST_LINE = 65_536

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
# Unrolled so that a value of backslashes takes linear time.
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"([^"\\]*(?:\\.[^"\\]*)*)"\s*,?')
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?$", re.ASCII)
_ESCAPE = re.compile(r'\\([\\n"])')


@dataclass(frozen=True, slots=True)
class Sample:
    """One series: labels as written, and the value (NaN and infinities are left out: None)."""

    labels: Mapping[str, str]
    value: float | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """The lines of an exposition by metric name."""

    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _read: dict[str, tuple[Sample, ...]] = field(default_factory=dict, repr=False, compare=False)

    def __bool__(self) -> bool:
        return bool(self.lines)

    def __contains__(self, name: object) -> bool:
        return name in self.lines

    def any_with(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.lines)

    def samples(self, name: str) -> tuple[Sample, ...]:
        """The readable series of this name, in order of appearance."""
        if name not in self._read:  # some are asked for several times
            found = (_sample(rest) for rest in self.lines.get(name, ())[:MOST_SAMPLES])
            self._read[name] = tuple(sample for sample in found if sample is not None)
        return self._read[name]

    def total(self, name: str) -> float | None:
        """The sum over all series of a counter; None when no series has a number."""
        values = [sample.value for sample in self.samples(name) if sample.value is not None]
        return sum(values) if values else None


def parse(answer: Answer | None) -> Metrics:
    """The metrics of a 200 answer; empty when there is no answer or no metric line in it."""
    if answer is None or answer.status != 200 or answer.body.lstrip()[:1] in (b"{", b"[", b"<"):
        return Metrics()
    gathered: dict[str, list[str]] = {}
    most = LINES + len(answer.body) // BYTES_PER_LINE
    for line in answer.body.decode("utf-8", "replace").split("\n", most)[:most]:
        if not line or line[0] == "#" or len(line) > LONGEST_LINE:
            continue
        name = _NAME.match(line)
        if name is not None and line[name.end() : name.end() + 1] in ("{", " ", "\t"):
            gathered.setdefault(name.group(), []).append(line[name.end() :])
    return Metrics({name: tuple(lines) for name, lines in gathered.items()})


def _sample(rest: str) -> Sample | None:
    labels: dict[str, str] = {}
    rest = rest.strip()
    if rest.startswith("{"):
        position = 1
        while (label := _LABEL.match(rest, position)) is not None:
            labels[label.group(1)] = _ESCAPE.sub(_unescaped, label.group(2))
            position = label.end()
            if len(labels) > MOST_LABELS:
                return None
        rest = rest[position:].lstrip()
        if not rest.startswith("}"):
            return None
        rest = rest[1:].strip()
    word = rest.split(maxsplit=1)[0] if rest else ""
    if not word:
        return None
    if _NUMBER.match(word) is None:
        return Sample(labels, None) if word.lower().strip("+-") in ("nan", "inf") else None
    number = float(word)
    return Sample(labels, number if abs(number) != float("inf") else None)


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match.group(1) == "n" else match.group(1)
