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

REDACTED = "[redacted]"
_MARK = "[redacted"  # patterns for unquoted values end before the bracket

_PLACEHOLDERS = frozenset(
    {"", "none", "null", "empty", "redacted", REDACTED, "<redacted>", "true", "false", "auto"}
)

# A field whose name says that its value is a secret, whatever the value looks like.
_STRONG = re.compile(
    r"passw(?:or)?d|passphrase|secret|credential|^authorization$|(?:^|_)auth_header"
    r"|(?:^|_)(?:api|access|admin|auth|private|signing|encryption|master|account|service|license|ssh|session|hf)_?keys?$"
    r"|(?:^|_)(?:hf|hub|huggingface|api|auth|access|refresh|bearer|id|admin|session|github|gitlab|ngc|wandb|csrf|jwt|sas)"
    r"_?tokens?$"
)
# A field whose value is a secret when it looks like one.
_WEAK = re.compile(r"(?:^|_)(?:key|token)$")
# Words before _key or _token that make the field harmless: cache keys, special tokens of a tokenizer.
_HARMLESS = re.compile(
    r"(?:^|_)(?:public|cache|sort|routing|group|hash|prefix|partition|primary|foreign|metric|label|index|lookup|dedup"
    r"|object|block|page|kv|by|per|num|max|min|next|last|first|prev|draft|bonus|sampled|eos|bos|pad|unk|sep|cls|mask|stop"
    r"|start|end|image|video|audio|think|reasoning|special|added|fim|eot|eom|tool|call|mm|placeholder)_(?:key|token)s?$"
)
# Endings that turn a secret's name into the name of something about it.
_ABOUT = re.compile(
    r"_(?:file|files|path|paths|env|name|names|type|types|header|url|uri|count|id|ids|enabled|required|ref|refs|len|length|ttl)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHAPED = re.compile(r"[A-Za-z0-9+/=._~\-]{8,}")


@lru_cache(maxsize=4096)
def secret_name(name: str) -> str:
    """Either "strong" when a field of this name is a secret, "weak" when only a value shaped like a key
    is one, "" for innocent names (``max_total_num_tokens``, ``tokenizer_path``, ``eos_token``)."""
    plain = _CAMEL.sub("_", name.strip()).lower().translate(_SEPARATORS).strip("_")
    if _ABOUT.search(plain):
        return ""
    if _STRONG.search(plain):
        return "strong"
    if _WEAK.search(plain) and not _HARMLESS.search(plain):
        return "weak"
    return ""


_SEPARATORS = str.maketrans("-. ", "___")


def _is_secret(name: str, value: str) -> bool:
    strength = secret_name(name)
    if not strength or value.startswith(_MARK) or value.strip().lower() in _PLACEHOLDERS:
        return False
    if set(value) <= {"*", "x", "X", "."}:
        return False
    if strength == "strong":
        return True
    if _SHAPED.fullmatch(value) is None or value.startswith(("/", ".")):
        return False
    # A bare "token" or "key" is mostly a word of the model's answer.
    return name.lower() not in ("token", "key") or (len(value) >= 16 and any(map(str.isdigit, value)))


# Secrets inside free text: command-line flags, assignments, quoted pairs, bearer tokens, passwords in
# URLs and keys with well-known prefixes.
_WORD = r"(?:key|token|secret|passw|passphrase|credential|authorization)"
_FLAG = re.compile(
    r"(?P<lead>--?(?P<name>[A-Za-z][\w-]{0,60})(?:\s*=\s*|\s+))"
    r"(?:\\\"(?P<escaped>[^\"\\]*)|\"(?P<double>(?:\\.|[^\"\\])*)|'(?P<single>[^']*)|(?P<plain>[^\s\"'\\,\]}]+))",
    re.DOTALL,
)
_PAIR = re.compile(
    rf"(?<![\w.-])(?P<lead>(?P<q>\\?[\"']?)(?P<name>[\w.-]{{0,60}}{_WORD}[\w.-]{{0,40}})(?P=q)\s*(?:=>|[:=])\s*)"
    r"(?:\\[\"'](?P<escaped>[^\"'\\]*)|\"(?P<double>(?:\\.|[^\"\\])*)|'(?P<single>(?:\\.|[^'\\])*))",
    re.IGNORECASE | re.DOTALL,
)
_BARE = re.compile(
    rf"(?<![\w.-])(?P<lead>(?P<name>[\w.-]{{0,60}}{_WORD}[\w.-]{{0,40}})\s*[:=]\s*)"
    r"(?!bearer\b|basic\b)(?P<plain>[^\s\"'\\,;&<>{}\[\]()]{4,})",
    re.IGNORECASE,
)
_ENVIRONMENT = re.compile(
    r"\b(?P<lead>(?P<name>[A-Z][A-Z0-9_]{0,60}(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD))=)(?P<plain>[^\s\"'\\,;&]{4,})"
)
_BEARER = re.compile(r"(?P<lead>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
# Not the port and rank of a data-parallel worker: http://10.0.0.21:30000@1 (sglang.md 2).
_USERINFO = re.compile(r"(?P<lead>://[^\s/@:\"']{0,100}:)(?!\d{1,5}@\d)(?P<value>[^\s/@\"']{1,200})(?=@)")
_KNOWN = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|nvapi-[A-Za-z0-9_-]{20,}"
    r"|AKIA[A-Z0-9]{16}|glpat-[A-Za-z0-9_-]{16,}|xox[abpr]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
)


_SUSPECT = re.compile(
    rf"{_WORD}|bearer|basic|://|sk-|hf_|gh[pousr]_|nvapi-|AKIA|glpat-|xox|eyJ", re.IGNORECASE
)


class Redactor:
    """Redacts bodies of one node. ``own`` are the secrets that we send ourselves: an echo of one is
    removed wherever it stands."""

    def __init__(self, own: Iterable[str] = ()) -> None:
        distinct = {secret for secret in own if len(secret) >= 4 and secret.lower() not in _PLACEHOLDERS}
        spelled = {form for secret in distinct for form in (secret, json.dumps(secret)[1:-1])}
        forms = sorted(spelled, key=len, reverse=True)
        pattern = "|".join(re.escape(form) for form in forms)
        self._own = re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])") if forms else None

    def body(self, body: bytes) -> tuple[bytes, tuple[str, ...]]:
        """The body without secrets, and the names of the fields that held one in clear.

        A body without secrets comes back byte for byte. JSON is walked by field; whatever the
        parser does not see (broken JSON, repeated names, metrics, HTML) is caught by the rules for text.
        """
        if not body:
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
            if name and _is_secret(name, value):
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
            kept = [REDACTED if _is_secret(name, item) else item for item in value]
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
        def named(match: re.Match[str]) -> str:
            group = match.lastgroup or ""
            value = match[group]
            if not _is_secret(match["name"], value):
                return match[0]
            exposed[match["name"]] = None
            start, end = match.start(group) - match.start(), match.end(group) - match.start()
            return match[0][:start] + REDACTED + match[0][end:]

        def strongly_named(match: re.Match[str]) -> str:
            return named(match) if secret_name(match["name"]) == "strong" else match[0]

        def unnamed(match: re.Match[str]) -> str:
            if match["value"].lower() in _PLACEHOLDERS:
                return match[0]
            exposed.setdefault("a credential in text", None)
            return match["lead"] + REDACTED

        if self._own is not None and self._own.search(text):
            exposed["the key sent with the request"] = None
            text = self._own.sub(REDACTED, text)
        if not _SUSPECT.search(text):
            return text
        if "--" in text:
            text = _FLAG.sub(named, text)
        text = _BEARER.sub(unnamed, text)
        if "=" in text or ":" in text:
            text = _ENVIRONMENT.sub(named, text)
            text = _PAIR.sub(named, text)
            if bare:
                text = _BARE.sub(strongly_named, text)  # prose says "per token: something"
            if "://" in text and "@" in text:
                text = _USERINFO.sub(unnamed, text)
        if _KNOWN.search(text):
            exposed.setdefault("a credential in text", None)
            text = _KNOWN.sub(REDACTED, text)
        return text


def redact_text(text: str) -> str:
    """Free text without anything that looks like a secret."""
    return Redactor().text(text)
