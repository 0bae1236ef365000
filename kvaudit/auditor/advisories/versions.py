"""Parses version strings as engines and image tags write them, and compares what they may mean with PEP 440
ranges.

A build is an interval: a release is one point, ``0.5.20.dev7`` is anywhere between itself and
0.5.20, ``0.5.22-1`` is 0.5.22 or 0.5.22.post1. A range holds for a build when it holds everywhere in
that interval; where it holds only in part the answer is None, never a guess.
Shapes seen in the wild: sglang.md section 11, vllm.md section 6.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from packaging.version import InvalidVersion, Version

from kvaudit.auditor.engines import ENGINES
from kvaudit.auditor.text.quoting import quoted

Kind = Literal["release", "candidate", "nightly", "vendor", "unknown"]

_LONGEST = 200
_PLATFORM_SUFFIX = re.compile(
    r"-(cu|cuda|rocm|cann|oe|npu|xpu|hpu|cpu|tpu|arm|aarch|amd|x86|b200|h200|h100|ubuntu|py|runtime|devel|slim)[\w.\-]*$"
)
_IMPLICIT_POST = re.compile(r"^v?\d+(\.\d+)*-\d+$")
_PLAIN_LOCAL = re.compile(r"^(g[0-9a-f]{6,40}|cu\d+|rocm[\d]*|cpu|xpu|sm\d+|d\d{8}|precompiled|\d+)$")
_CLAUSE = re.compile(r"^\s*(~=|==|!=|<=|>=|<|>)\s*([^\s=<>!~]{1,60})\s*$")
_NUMBERED_OTHERWISE = frozenset({"ai-dynamo", "lmcache", "llm-d", "nim", "rhaiis", "kserve", "rayproject"})
"""Publishers whose images of an engine are tagged with a number of their own."""
_YEARS = (range(20, 50), range(2000, 2100), range(20_000_000, 21_000_000))
"""NGC's 26.08, 2026.8 and 20260812: no engine has got that far by releases."""
_MOVING_TAGS = frozenset({"latest", "dev", "main", "master", "stable", "edge", "head", "preview"})


@dataclass(frozen=True, slots=True)
class Build:
    """What a version string may mean. ``low`` and ``high`` bound it (equal for a release); both are
    None when nothing can be said. ``why`` is a clause for people: "is a nightly between ...". ``local`` is the part
    after the plus sign; ``newer`` a clause where the release is newer than what the advisories know."""

    text: str
    kind: Kind
    low: Version | None = None
    high: Version | None = None
    why: str = ""
    local: str = ""
    newer: str = ""

    @property
    def known(self) -> bool:
        return self.low is not None


def parse_build(text: object) -> Build:
    """Read an engine's version or an image tag; never raises. Kinds: ``release`` and ``candidate``
    compare exactly; ``nightly`` and ``vendor`` compare with doubt; ``unknown`` not at all."""
    if not isinstance(text, str) or not text.strip():
        return Build("", "unknown", why="is not known")
    shown = text.strip()[:_LONGEST]
    if len(text.strip()) > _LONGEST:
        return Build(shown, "unknown", why="is far too long for a version")
    return _parsed(shown)


@lru_cache(maxsize=1024)
def _parsed(shown: str) -> Build:
    tag = _image_tag(shown)
    if not tag:
        return Build(shown, "unknown", why="names an image by digest, which says nothing of its version")
    if not _own_image(shown):
        return Build(shown, "unknown", why="is the tag of an image that may count something else")
    if tag.lower() in _MOVING_TAGS or tag.lower().startswith("nightly"):
        return Build(shown, "unknown", why="is a moving tag, not a version")
    bare = _PLATFORM_SUFFIX.sub("", tag)
    try:
        version = Version(bare)
    except InvalidVersion:
        return Build(shown, "unknown", why="is no version in the sense of PEP 440")
    return _interval(shown, bare, version)


def _image_tag(text: str) -> str:
    """The tag of ``registry/name:tag``; "" for a digest; the text itself for a plain version."""
    if "@sha256:" in text:
        text = text.partition("@")[0]
        return _image_tag(text) if ":" in text.rpartition("/")[2] else ""
    return text.rpartition(":")[2] if "/" in text or text.count(":") == 1 else text


def _own_image(text: str) -> bool:
    """Whether a reference names an image that is tagged with its engine's releases; True for a plain version."""
    if "/" not in text and text.count(":") != 1:
        return True
    repository = text.partition("@")[0].lower()
    head, _, last = repository.rpartition("/")
    repository = f"{head}/{last.partition(':')[0]}".strip("/")
    if _NUMBERED_OTHERWISE & set(repository.split("/")):
        return False
    return any(
        f"/{repository}".endswith(f"/{image}") for engine in ENGINES.values() for image in engine.images
    )


def _interval(shown: str, bare: str, version: Version) -> Build:
    if any(version.release[0] in years for years in _YEARS):
        return Build(shown, "unknown", why="counts years and months, not the engine's releases")
    if version.dev is not None and _meaningless_base(version):
        return Build(shown, "unknown", why="counts from an unrelated tag, so its number means nothing")
    point = Version(version.public)
    if version.dev is not None:
        high = Version(version.base_version if version.pre else point.public.partition(".dev")[0])
        why = f"is a development build on the way to {high}"
        return Build(shown, "nightly", point, high, why, version.local or "")
    if version.local and not _plain_local(version.local):
        why = f"is a vendor's build of {point} and may carry other patches"
        return Build(shown, "vendor", point, point, why, version.local)
    if _IMPLICIT_POST.match(bare):
        return Build(shown, "release", Version(version.base_version), point)
    kind: Kind = "candidate" if version.pre else "release"
    return Build(shown, kind, point, point, local=version.local or "")


def _meaningless_base(version: Version) -> bool:
    """0.0.0.dev* and 0.1.dev* come from clones without tags, 0.3.*.dev9646 from a gateway's tag."""
    major, minor = (*version.release, 0)[:2]
    return (major, minor) in {(0, 0), (0, 1)} or ((major, minor) == (0, 3) and (version.dev or 0) >= 1000)


def _plain_local(local: str) -> bool:
    """Whether a local suffix only names a commit or a platform."""
    return all(_PLAIN_LOCAL.match(part) for part in re.split(r"[.\-_]", local))


_COMPARE: dict[str, Callable[[Version, Version], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@lru_cache(maxsize=1024)
def parse_range(text: str) -> tuple[tuple[str, Version], ...]:
    """``>=0.4.7,<0.5.20`` as pairs of operator and version; ValueError with a sentence otherwise.

    Plain ordering on purpose: PEP 440's own ``<0.5.20`` leaves 0.5.20rc1 out, but a pre-release of
    the fix counts as affected."""
    pairs: list[tuple[str, Version]] = []
    try:
        for each in text.split(","):
            clause = _CLAUSE.match(each)
            if clause is None:
                raise InvalidVersion(each)
            pairs += _clauses(clause[1], clause[2])
    except InvalidVersion:
        raise ValueError(f"{quoted(text)} is no version range; write one like >=0.4.7,<0.5.20") from None
    return tuple(sorted(pairs, key=lambda pair: (pair[1], pair[0])))


def _clauses(op: str, text: str) -> list[tuple[str, Version]]:
    """One specifier as plain comparisons; ``~=0.5.22`` and ``==0.5.*`` become two."""
    wild = text.endswith(".*")
    if op in _COMPARE and not wild:
        return [(op, Version(text))]
    lowest = Version(text.removesuffix(".*"))
    kept = lowest.release[:-1] if op == "~=" else lowest.release
    if op not in ("~=", "==") or (op == "~=" and (wild or not kept)):
        raise InvalidVersion(f"{op}{text}")
    beyond = Version(".".join(map(str, (*kept[:-1], kept[-1] + 1))) + ".dev0")
    return [(">=", lowest if op == "~=" else Version(f"{lowest}.dev0")), ("<", beyond)]


def in_range(build: Build, text: str) -> bool | None:
    """Whether the range holds for this build: True, False, or None where that cannot be told."""
    return holds(build, parse_range(text))


def holds(build: Build, clauses: tuple[tuple[str, Version], ...]) -> bool | None:
    """As `in_range`, with the range already parsed. A local part in a range asks for that very build, as in PEP 440:
    ``==0.5.22+cu130`` holds for what calls itself so (vllm-ascend#9195 took it for another)."""
    if build.low is None or build.high is None:
        return None
    asked = [_same_build(build, version) is (op == "==") for op, version in clauses if _local(op, version)]
    clauses = tuple((op, Version(version.public)) for op, version in clauses if not _local(op, version))
    if False in asked or not clauses:
        return False not in asked
    inside = {version for _, version in clauses if build.low < version < build.high}
    answers = {
        all(_COMPARE[op](point, version) for op, version in clauses)
        for point in {build.low, build.high, *inside}
    }
    return answers.pop() if len(answers) == 1 else None


def _local(op: str, version: Version) -> bool:
    return op in ("==", "!=") and version.local is not None


def _same_build(build: Build, version: Version) -> bool:
    return build.low == Version(version.public) and build.local == version.local
