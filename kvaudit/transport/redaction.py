"""Secrets out of bodies, at the socket: nothing that is logged, stored or shown holds one.

SGLang answers ``/server_info`` with ``api_key``, ``admin_api_key``, ``ssl_keyfile_password`` and the
whole ``launch_command`` in clear, also inside ``internal_states`` (reference: sglang.md 1.7). The rules
go by field name, not by engine, so that the next engine is covered too. The names of what was found
are reported, because the exposure is itself a finding; the values are gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import orjson

from kvaudit.transport.secret_names import PLACEHOLDERS, REDACTED, is_secret, may_name, names_in, secret_name

__all__ = ["REDACTED", "Redactor", "redact_text", "secret_name"]

MANY_NAMES = 64
"""Above this many different secret names in one text, names are not spelled out in the patterns."""

_ANY_NAME = r"[\w.-]{3,100}"
_QUOTED = r"(?:\\[\"'](?P<escaped>[^\"'\\]*)|\"(?P<double>(?:\\.|[^\"\\])*)|'(?P<single>(?:\\.|[^'\\])*)"
_BEARER = re.compile(r"(?P<lead>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
# Not the port and rank of a data-parallel worker: http://10.0.0.21:30000@1 (sglang.md 2).
_USERINFO = re.compile(r"(?P<lead>://[^\s/@:\"']{0,100}:)(?!\d{1,5}@\d)(?P<value>[^\s/@\"']{1,200})(?=@)")
_KNOWN = re.compile(
    r"(?<![A-Za-z0-9_-])(?:sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|nvapi-[A-Za-z0-9_-]{20,}|AKIA[A-Z0-9]{16}|glpat-[A-Za-z0-9_-]{16,}|xox[abpr]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
)


class _Patterns:
    """Where a secret may stand after one of these names: in quotes, after a flag, bare."""

    def __init__(self, names: frozenset[str]) -> None:
        spelled = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        chosen = spelled if len(names) <= MANY_NAMES else _ANY_NAME
        name = rf"(?P<name>{chosen})(?![\w.-])"
        self.pair = re.compile(
            rf"(?<![\w.-])(?P<lead>(?P<q>\\?[\"']?){name}(?P=q)\s*(?:=>|[:=])\s*){_QUOTED})", re.DOTALL
        )
        self.flag = re.compile(
            rf"(?<![\w.-])(?P<lead>(?=--?){name}(?:\s*=\s*|\s+)){_QUOTED}|(?P<plain>(?!--)[^\s\"'\\,\]}}]+))",
            re.DOTALL,
        )
        self.bare = re.compile(
            rf"(?<![\w.-])(?P<lead>{name}\s*[:=]\s*)(?!(?i:bearer|basic)\b)"
            r"(?P<plain>[^\s\"'\\,;&<>{}\[\]()]{4,})"
        )


_patterns = lru_cache(maxsize=64)(_Patterns)


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
        self._own = re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])") if forms else None

    def body(self, body: bytes) -> tuple[bytes, tuple[str, ...]]:
        """The body without secrets, and the names of the fields that held one in clear.

        A body without secrets comes back byte for byte. JSON is walked by field; whatever the
        parser does not see (broken JSON, repeated names, metrics, HTML) is caught by the rules for text.
        """
        text = body.decode("utf-8", errors="surrogateescape")
        if not self._suspect(text):
            return body, ()
        exposed: dict[str, None] = {}
        parsed = self._json(body, exposed) if body.lstrip()[:1] in (b"{", b"[", b'"') else None
        if parsed is not None and exposed:
            body = parsed
            text = body.decode("utf-8", errors="surrogateescape")
        clean = self._text(text, exposed, bare=parsed is None)
        if clean != text:
            body = clean.encode("utf-8", errors="surrogateescape")
        return body, tuple(exposed)

    def event(self, text: str) -> str:
        """One event's data without secrets; the very same string when nothing in it is suspect, which also
        means that it holds no escape."""
        if not self._suspect(text):
            return text
        return self.body(text.encode(errors="surrogateescape"))[0].decode(errors="replace")

    def _suspect(self, text: str) -> bool:
        """Whether anything in this text could be a secret; most answers end here."""
        for form in self._always:
            if form in text:
                return True
        lowered = text.lower()
        # Two letters of key and token, three of secret and credential: asked first, they spare four searches
        # of every event of every stream.
        if "ke" in lowered or "cre" in lowered or "pass" in lowered or "auth" in lowered:
            return _unnamed(text, lowered) or (may_name(lowered) and bool(names_in(text)))
        return _unnamed(text, lowered)

    def text(self, text: str) -> str:
        """Free text (an error message, a header value) without secrets."""
        return self._text(text, {}, bare=True)

    # JSON by structure

    def _json(self, body: bytes, exposed: dict[str, None]) -> bytes | None:
        """The body re-written where it held secrets; None when it is no JSON."""
        try:
            document = orjson.loads(body)
        except ValueError:
            try:
                document = json.loads(body)  # NaN and Infinity, which some engines print
            except (ValueError, RecursionError):
                return None
        if not self._walk(document, exposed):
            return body
        try:
            exact = json.loads(body)  # keeps integers of any size, which orjson turns into floats
            self._walk(exact, {})
            written = json.dumps(exact, ensure_ascii=False, separators=(",", ":"))
            return written.encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return orjson.dumps(document)

    def _walk(self, document: Any, exposed: dict[str, None]) -> bool:
        """Redact in place, without recursion: nesting is the server's choice."""
        before = len(exposed)
        changed = False
        stack: list[Any] = [document]
        while stack:
            node = stack.pop()
            if isinstance(node, dict):
                items: Iterable[tuple[Any, Any, str]] = [(key, value, key) for key, value in node.items()]
            elif isinstance(node, list):
                self._argv(node, exposed)
                items = [(index, value, "") for index, value in enumerate(node)]
            else:
                continue
            for place, value, name in items:
                cleaned = self._value(name, value, exposed)
                if cleaned is not value:
                    node[place] = cleaned
                    changed = True
                elif isinstance(value, (dict, list)):
                    stack.append(value)
        return changed or len(exposed) > before

    def _value(self, name: str, value: Any, exposed: dict[str, None]) -> Any:
        if isinstance(value, str):
            if name and is_secret(name, value):
                exposed[name] = None
                return REDACTED
            found: dict[str, None] = {}
            cleaned = self._text(value, found, bare=False) if len(value) >= 4 else value
            if cleaned != value:
                exposed[name or next(iter(found), "text")] = None
                return cleaned
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if name and secret_name(name) == "strong" and "password" in name.lower():
                exposed[name] = None
                return REDACTED
        elif isinstance(value, list) and name and value and all(isinstance(item, str) for item in value):
            kept = [REDACTED if is_secret(name, item) else item for item in value]
            if kept != value:
                exposed[name] = None
                return kept
        return value

    @staticmethod
    def _argv(items: list[Any], exposed: dict[str, None]) -> None:
        """A command line given as a list: the word after a secret flag."""
        for index, item in enumerate(items[:-1]):
            following = items[index + 1]
            if (
                isinstance(item, str)
                and isinstance(following, str)
                and item.startswith("--")
                and not following.startswith("--")
                and following != REDACTED
                and secret_name(item[2:])
            ):
                items[index + 1] = REDACTED
                exposed[item] = None

    # Text by pattern

    def _text(self, text: str, exposed: dict[str, None], *, bare: bool) -> str:
        if self._own is not None and self._own.search(text):
            exposed["the key sent with the request"] = None
            text = self._own.sub(REDACTED, text)
        if _unnamed(text, text.lower()):
            text = _without_unnamed(text, exposed)
        names = names_in(text)
        return _without_named(text, names, exposed, bare=bare) if names else text


def _without_named(text: str, names: frozenset[str], exposed: dict[str, None], *, bare: bool) -> str:
    """The text without the values that follow these names."""
    patterns = _patterns(names)

    def named(match: re.Match[str]) -> str:
        group = match.lastgroup or ""
        value = match[group]
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        if is_secret(match["name"], value):
            exposed[match["name"]] = None
            return match[0][:start] + REDACTED + match[0][end:]
        # tokenizer_args="api_key='...'": a harmless pair must not hide the one inside it.
        inner = patterns.pair.sub(named, value) if match.re is patterns.pair else value
        return match[0] if inner == value else match[0][:start] + inner + match[0][end:]

    def strongly_named(match: re.Match[str]) -> str:
        # Prose says "per token: something"; only an environment spells its names in capitals.
        name = match["name"]
        strong = secret_name(name) == "strong" and (bare or name.isupper())
        return named(match) if strong else match[0]

    if "-" in text:
        text = patterns.flag.sub(named, text)
    if "=" in text or ":" in text:
        text = patterns.pair.sub(named, text)
        if bare or "=" in text:
            text = patterns.bare.sub(strongly_named, text)
    return text


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
