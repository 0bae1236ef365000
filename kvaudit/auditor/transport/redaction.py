"""Removes secrets from bodies at the socket, so that nothing that is logged, stored or shown holds one.

SGLang answers ``/server_info`` with ``api_key``, ``admin_api_key``, ``ssl_keyfile_password`` and the
whole ``launch_command`` in clear, also inside ``internal_states`` (reference: sglang.md 1.7). The rules
go by field name, not by engine, so that the next engine is covered too. The names of what was found
are reported, because the exposure is itself a finding; the values are gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from kvaudit.auditor.transport.errors import TooManySecrets
from kvaudit.auditor.transport.secret_names import PLACEHOLDERS, REDACTED, is_secret, may_name, secret_name

__all__ = ["REDACTED", "Redactor", "redact_text", "secret_name"]

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
# One short search per string of a document: whatever the rules for text could act on holds one of these.
_HINT = re.compile(
    r"key|token|secret|pass|credential|auth|bearer|basic|sk-|hf_|nvapi-|akia|glpat-|xox|eyj|gh[pousr]_|://"
)
_HUGE = re.compile(rb"\d{19}")

WITHHELD = "[withheld: it holds too much that looks like a secret]"
LOOKS = 10_000
LOOKS_PER_BYTE = 1 / 50
"""Values of secrets' names that are looked at in one body: this many, and one for 50 bytes. Real answers
hold a few hundred."""

GLANCE, INNOCENT, NEW_NAME = 0.1, 0.4, 3.0
"""In looks: a word that leads to no value, a name that is no secret's, a name that the body has not held before."""

SCANNED_PER_LOOK = 64
"""Characters of values that cost as much as one look."""


class _Work:
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


class Redactor:
    """Redacts bodies of one node. ``own`` are the secrets that we send ourselves: an echo of one is
    removed wherever it stands."""

    def __init__(self, own: Iterable[str] = ()) -> None:
        distinct = {secret for secret in own if len(secret) >= 4 and secret.lower() not in PLACEHOLDERS}
        spelled = {form for secret in distinct for form in (secret, json.dumps(secret)[1:-1])}
        forms = sorted(spelled, key=len, reverse=True)
        pattern = "|".join(re.escape(form) for form in forms)
        # An escape may hide a name from the rules for text; of what we sent, the forms that nothing else finds.
        few = [form for form in forms if not any(other in form for other in distinct - {form})]
        self._always = ("\\u", *(form for form in few if not _unnamed(form, form.lower())))
        self._forms = tuple(forms)
        self._own = re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])") if forms else None

    def body(self, body: bytes) -> tuple[bytes, tuple[str, ...]]:
        """The body without secrets, and the names of the fields that held one in clear.

        A body without secrets comes back byte for byte. JSON is walked by field; whatever the
        parser does not see (broken JSON, repeated names, metrics, HTML) is caught by the rules for text.
        Takes time in proportion to the body; raises `TooManySecrets` for one made to cost more.
        """
        text = body.decode("utf-8", errors="surrogateescape")
        work = _Work(len(body))
        if not self._suspect(text, work):
            return body, ()
        exposed: dict[str, None] = {}
        parsed = self._json(body, exposed, work) if body.lstrip()[:1] in (b"{", b"[", b'"') else None
        if parsed is not None and exposed:
            body = parsed
            text = body.decode("utf-8", errors="surrogateescape")
        clean = self._text(text, exposed, work, bare=parsed is None)
        if clean != text:
            body = clean.encode("utf-8", errors="surrogateescape")
        return body, tuple(exposed)

    def event(self, text: str) -> str:
        """One event's data without secrets; the very same string when nothing in it is suspect, which also
        means that it holds no escape."""
        if not self._suspect(text, _Work(len(text))):
            return text
        return self.body(text.encode(errors="surrogateescape"))[0].decode(errors="replace")

    def _suspect(self, text: str, work: _Work) -> bool:
        """Whether anything in this text could be a secret; most answers end here."""
        for form in self._always:
            if form in text:
                return True
        lowered = text.lower()
        # Two letters of key and token, three of secret and credential: asked first, they spare four searches
        # of every event of every stream.
        if "ke" in lowered or "cre" in lowered or "pass" in lowered or "auth" in lowered:
            return _unnamed(text, lowered) or (
                # A command line as a list parts a flag from its value by quotes, which _names takes for none.
                may_name(lowered) and ('"--' in text or next(_names(text, lowered, work), None) is not None)
            )
        return _unnamed(text, lowered)

    def text(self, text: str) -> str:
        """Free text (an error message, a header value) without secrets."""
        try:
            return self._text(text, {}, _Work(len(text)), bare=True)
        except TooManySecrets:
            return WITHHELD

    # JSON by structure

    def _json(self, body: bytes, exposed: dict[str, None], work: _Work) -> bytes | None:
        """The body re-written where it held secrets; None when it is no JSON."""
        try:
            # orjson turns integers beyond 64 bits into floats.
            exact = bool(_HUGE.search(body))
            document = json.loads(body) if exact else orjson.loads(body)
        except (ValueError, RecursionError):
            exact = True
            try:
                document = json.loads(body)  # NaN and Infinity, which some engines print
            except (ValueError, RecursionError):
                return None
        document, changed = self._walk(document, exposed, work)
        if not changed:
            return body
        try:
            if not exact:
                return orjson.dumps(document)
        except TypeError:  # nested deeper than it writes
            pass
        try:
            written = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        except RecursionError:
            raise TooManySecrets("The answer holds a secret and is nested too deep to be kept.") from None
        return written.encode("utf-8", "surrogatepass")

    def _walk(self, document: Any, exposed: dict[str, None], work: _Work) -> tuple[Any, bool]:
        """The document, redacted in place, and whether it changed. Without recursion: nesting is the
        server's choice; and plainly written: of one megabyte it may see half a million values."""
        if isinstance(document, str):
            whole = self._string("", "", document, exposed, work)
            return whole, whole is not document
        changed = False
        strengths: dict[str, str] = {}
        stack: list[Any] = [document]
        while stack:
            node = stack.pop()
            if node.__class__ is dict:
                for name, value in node.items():
                    kind = value.__class__
                    if kind is bool or value is None:
                        continue
                    strength = strengths.get(name)
                    if strength is None:
                        strength = strengths[name] = self._strength(name, work)
                    cleaned: Any = value
                    if kind is str:
                        if strength or len(value) >= 4:
                            cleaned = self._string(name, strength, value, exposed, work)
                    elif strength and kind is list:
                        cleaned = self._listed(name, value, exposed, work)
                    elif strength == "strong" and kind is not dict and "password" in name.lower():
                        cleaned = REDACTED  # a number
                        exposed[name] = None
                    if cleaned is not value:
                        node[name] = cleaned
                        changed = True
                    elif kind is dict or kind is list:
                        stack.append(value)
            elif node.__class__ is list:
                flag = ""  # a command line given as a list: the word after a secret flag
                for place, value in enumerate(node):
                    kind = value.__class__
                    if kind is str:
                        if flag:
                            work.look()
                        if flag and value != REDACTED and not value.startswith("--"):
                            exposed[flag] = None
                            node[place] = REDACTED
                            changed, flag = True, ""
                            continue
                        flag = value if value[:2] == "--" and self._strength(value[2:], work) else ""
                        if len(value) >= 4:
                            cleaned = self._string("", "", value, exposed, work)
                            if cleaned is not value:
                                node[place] = cleaned
                                changed = True
                    else:
                        flag = ""
                        if kind is dict or kind is list:
                            stack.append(value)
        return document, changed

    def _strength(self, name: str, work: _Work) -> str:
        """As `secret_name`; asked of every field name of a document."""
        return work.strength(name) if len(name) <= LONGEST_NAME and may_name(name.lower()) else ""

    def _string(self, name: str, strength: str, value: str, exposed: dict[str, None], work: _Work) -> str:
        """This value without secrets; the very same string where there are none."""
        if strength:
            work.look(len(value))
            if is_secret(name, value):
                exposed[name] = None
                return REDACTED
            if len(value) < 4:
                return value
        if _HINT.search(value.lower()) is None and not self._echoes(value):
            return value
        found: dict[str, None] = {}
        cleaned = self._text(value, found, work, bare=False)
        if cleaned == value:
            return value
        exposed[name or next(iter(found), "text")] = None
        return cleaned

    def _listed(self, name: str, items: list[Any], exposed: dict[str, None], work: _Work) -> list[Any]:
        """A list of strings under a secret's name; the very same list where none of them is one."""
        if not all(item.__class__ is str for item in items):
            return items
        kept = []
        for item in items:
            work.look(len(item))
            kept.append(REDACTED if is_secret(name, item) else item)
        if kept == items:
            return items
        exposed[name] = None
        return kept

    # Text by pattern

    def _echoes(self, text: str) -> bool:
        return any(form in text for form in self._forms)

    def _text(self, text: str, exposed: dict[str, None], work: _Work, *, bare: bool) -> str:
        if self._own is not None and self._echoes(text) and self._own.search(text):
            exposed["the key sent with the request"] = None
            text = self._own.sub(REDACTED, text)
        lowered = text.lower()
        if _unnamed(text, lowered):
            work.look()
            text = _without_unnamed(text, exposed)
            lowered = text.lower()
        return _without_named(text, lowered, exposed, work, bare=bare) if may_name(lowered) else text


def _names(text: str, lowered: str, work: _Work) -> Iterator[tuple[int, str, str, re.Match[str]]]:
    """Names of secrets that may lead to a value: where each begins, itself, its strength, the match."""
    if len(lowered) != len(text):  # one letter of Turkish gets longer
        lowered = text.replace("\u0130", "I").lower()
    for match in _NAMED.finditer(lowered):
        word, end = match.start(), match.end("rest")
        if (match["sep"] is None and match["gap"] is None) or end - word > LONGEST_NAME:
            work.look(cost=GLANCE)
            continue
        work.look(cost=INNOCENT)
        before = text[max(0, word - LONGEST_NAME) : word]
        start = word - len(before) + len(before.rstrip(_IN_NAMES))
        name = text[start:end]
        if match["gap"] and name[0] != "-":
            continue  # only a flag is parted from its value by blanks
        if len(name) <= LONGEST_NAME and (strength := work.strength(name)):
            yield start, name, strength, match


def _without_named(text: str, lowered: str, exposed: dict[str, None], work: _Work, *, bare: bool) -> str:
    """The text without the values that follow names of secrets. A value that is none is looked into:
    tokenizer_args="api_key='...'" holds a pair inside a harmless one."""
    in_prose = bare or "=" in text
    kept: list[str] = []
    done = 0
    for start, name, strength, match in _names(text, lowered, work):
        if start < done:
            continue
        work.look()
        span = _value_of(text, start, name, strength, match, bare=bare, in_prose=in_prose)
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
    text: str, start: int, name: str, strength: str, match: re.Match[str], *, bare: bool, in_prose: bool
) -> tuple[int, int] | None:
    """Where the value of this name stands: in quotes, after a flag, or bare; None for no value."""
    quote, sep = match["quote"] or "", match["sep"] or ""
    flag = name.startswith("-") and not quote and sep in ("", "=")
    if quote and not text.startswith(quote, max(0, start - len(quote))):
        return None
    if (quoted := _QUOTED.match(text, match.end())) is not None:
        return quoted.span(quoted.lastgroup or 0)
    if flag and (plain := _AFTER_FLAG.match(text, match.end())) is not None:
        return plain.span()
    # Prose says "per token: something"; only an environment spells its names in capitals.
    if not quote and sep in (":", "=") and strength == "strong" and in_prose and (bare or name.isupper()):
        plain = _BARE.match(text, match.end())
        return plain.span() if plain is not None else None
    return None


def _unnamed(text: str, lowered: str) -> bool:
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


def _without_unnamed(text: str, exposed: dict[str, None]) -> str:
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


def redact_text(text: str) -> str:
    """Free text without anything that looks like a secret."""
    return Redactor().text(text)
