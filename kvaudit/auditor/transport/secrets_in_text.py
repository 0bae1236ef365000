"""Secrets in free text, by pattern: after a name that announces one, or by their own look."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvaudit.auditor.transport.errors import TooManySecrets
from kvaudit.auditor.transport.secret_names import PLACEHOLDERS, REDACTED, is_secret, secret_name

# Linear by construction: what may repeat never gives back (possessive), and names have an end. One pattern
# for all names: patterns made of the names in a text took 31 s for an answer of 1 MB.
_NAMED = re.compile(
    r"(?:key|token|secret|passw|passphrase|credential|auth)(?P<rest>[\w.-]*+)"
    r"(?:(?P<quote>\\?[\"']?)\s*+(?P<sep>=>|[:=])\s*+|(?P<gap>\s++)|)"
)
"""In lower-case text: the rest of a name from the first word in it that may make it a secret's, and what
leads from it to its value. It matches where nothing leads on as well: a search that fails would begin
again inside the same name."""

_QUOTED = re.compile(
    r"\\[\"'](?P<escaped>[^\"'\\]*+)"
    r"|\"(?P<double>[^\"\\]*+(?:\\.[^\"\\]*+)*+)"
    r"|'(?P<single>[^'\\]*+(?:\\.[^'\\]*+)*+)",
    re.DOTALL,
)
_AFTER_FLAG = re.compile(r"(?!--)[^\s\"'\\,\]}]++")
_BARE = re.compile(r"(?!(?i:bearer|basic)\b)[^\s\"'\\,;&<>{}\[\]()]{4,}+")
_IN_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
LONGEST_NAME = 100

_BEARER = re.compile(r"(?P<lead>\b(?:Bearer|Basic)\s++)(?P<value>[A-Za-z0-9._~+/=-]{8,}+)", re.IGNORECASE)
# Not the port and rank of a data-parallel worker: http://10.0.0.21:30000@1 (sglang.md 2).
_USERINFO = re.compile(r"(?P<lead>://[^\s/@:\"']{0,100}:)(?!\d{1,5}@\d)(?P<value>[^\s/@\"']{1,200})(?=@)")
_KNOWN = re.compile(
    r"(?<![A-Za-z0-9_-])(?:sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|nvapi-[A-Za-z0-9_-]{20,}|AKIA[A-Z0-9]{16}|glpat-[A-Za-z0-9_-]{16,}|xox[abpr]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
)

LOOKS = 10_000
LOOKS_PER_BYTE = 1 / 50
"""Values of secrets' names that are looked at in one body: this many, and one for 50 bytes. Real answers
hold a few hundred."""

GLANCE, INNOCENT, NEW_NAME = 0.1, 0.4, 3.0
"""In looks: a word that leads to no value, a name that is no secret's, a name that the body has not held before."""

SCANNED_PER_LOOK = 64
"""Characters of values that cost as much as one look."""


class Work:
    """What one body may cost; `TooManySecrets` beyond. Counted, not timed: the same body always ends alike."""

    __slots__ = ("_known", "_left")

    def __init__(self, size: int) -> None:
        self._left = LOOKS + size * LOOKS_PER_BYTE
        self._known: dict[str, str] = {}

    def look(self, scanned: int = 0, cost: float = 1.0) -> None:
        """Count one look at a value of ``scanned`` characters."""
        self._left -= cost + scanned / SCANNED_PER_LOOK
        if self._left < 0:
            raise TooManySecrets(
                "The answer holds more fields that look like secrets than any engine's; it was not read."
            )

    def strength(self, name: str) -> str:
        """As `secret_name`, which is asked once of every distinct name."""
        found = self._known.get(name)
        if found is None:
            self.look(cost=NEW_NAME)
            found = self._known[name] = secret_name(name)
        return found


def names(text: str, lowered: str, work: Work) -> Iterator[tuple[int, str, str, re.Match[str]]]:
    """Names of secrets that may lead to a value: where each begins, itself, its strength, the match."""
    if len(lowered) != len(text):  # one letter of Turkish gets longer
        lowered = text.replace("\u0130", "I").lower()
    for found in _NAMED.finditer(lowered):
        word, end = found.start(), found.end("rest")
        if (found["sep"] is None and found["gap"] is None) or end - word > LONGEST_NAME:
            work.look(cost=GLANCE)
            continue
        work.look(cost=INNOCENT)
        before = text[max(0, word - LONGEST_NAME) : word]
        start = word - len(before) + len(before.rstrip(_IN_NAMES))
        name = text[start:end]
        if found["gap"] and name[0] != "-":
            continue  # only a flag is parted from its value by blanks
        if len(name) <= LONGEST_NAME and (strength := work.strength(name)):
            yield start, name, strength, found


def without_named(text: str, lowered: str, exposed: dict[str, None], work: Work, *, bare: bool) -> str:
    """The text without the values that follow names of secrets. A value that is none is looked into:
    tokenizer_args="api_key='...'" holds a pair inside a harmless one."""
    in_prose = bare or "=" in text
    kept: list[str] = []
    done = 0
    for start, name, strength, found in names(text, lowered, work):
        if start < done:
            continue
        work.look()
        span = _value_of(text, start, name, strength, found, bare=bare, in_prose=in_prose)
        if span is None:
            continue
        first, end = span
        work.look(end - first)
        if is_secret(name, text[first:end]):
            exposed[name] = None
            kept += (text[done:first], REDACTED)
            done = end
    return "".join((*kept, text[done:])) if kept else text


def _value_of(
    text: str, start: int, name: str, strength: str, found: re.Match[str], *, bare: bool, in_prose: bool
) -> tuple[int, int] | None:
    """Where the value of this name stands: in quotes, after a flag, or bare; None for no value."""
    quote, sep = found["quote"] or "", found["sep"] or ""
    flag = name.startswith("-") and not quote and sep in ("", "=")
    if quote and not text.startswith(quote, max(0, start - len(quote))):
        return None
    if (quoted := _QUOTED.match(text, found.end())) is not None:
        return quoted.span(quoted.lastgroup or 0)
    if flag and (plain := _AFTER_FLAG.match(text, found.end())) is not None:
        return plain.span()
    # Prose says "per token: something"; only an environment spells its names in capitals.
    if not quote and sep in (":", "=") and strength == "strong" and in_prose and (bare or name.isupper()):
        plain = _BARE.match(text, found.end())
        return plain.span() if plain is not None else None
    return None


def unnamed(text: str, lowered: str) -> bool:
    """Whether a text may hold a credential that no name announces."""
    if "://" in text and "@" in text:
        return True
    # Spelled out, not looped: this is asked of every event of every stream.
    return (
        "sk-" in text
        or "hf_" in text
        or "nvapi-" in text
        or "AKIA" in text
        or "glpat-" in text
        or "xox" in text
        or "eyJ" in text
        or "bearer" in lowered
        or "basic" in lowered
        or (
            "gh" in text
            and ("ghp_" in text or "gho_" in text or "ghu_" in text or "ghs_" in text or "ghr_" in text)
        )
    )


def without_unnamed(text: str, exposed: dict[str, None]) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match["value"].lower() in PLACEHOLDERS:
            return match[0]
        exposed.setdefault("a credential in text", None)
        return match["lead"] + REDACTED

    text = _USERINFO.sub(replaced, _BEARER.sub(replaced, text))
    if _KNOWN.search(text):
        exposed.setdefault("a credential in text", None)
        text = _KNOWN.sub(REDACTED, text)
    return text
