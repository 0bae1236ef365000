"""Quotes what a person wrote in a sentence about it, without repeating a key.

Whoever pastes a key into the wrong field of a file gets a sentence about it, and that sentence goes to
terminals, logs and tickets. So whatever could be a key is not repeated; a word that only looks like one
is lost with it, and the line's number stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvaudit.auditor.transport import redact_text

MOST_LOOKED_AT = 200
"""Characters: what is cut off is not shown."""

HIDDEN = "(not shown, it could be a key)"

_PREFIX = re.compile(
    r"(?i:sk|pk|rk|hf|gsk|xai|pat|nvapi|glpat|ghp|gho|ghu|ghs|ghr|github_pat|xox[abprs])"
    r"[-_][A-Za-z0-9]|AKIA[A-Z0-9]|ASIA[A-Z0-9]|AIza|ya29\.|eyJ"
)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*\Z")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_VERSION = r"v?\d{1,4}(?:[.!]\w{1,12})*(?:\.\*)?(?:[-+][\w.]{1,12})?"
_COMPARED = re.compile(
    rf"(?P<name>[A-Za-z][\w.-]{{0,60}})(?:(?:[<>]=?|[=!~]=){_VERSION},?)+\Z"
)  # sglang>=0.5.22
_SECRET_WORDS = frozenset({"key", "keys", "secret", "token", "password", "passwd", "pass", "pwd"})
_BESIDE = _SECRET_WORDS | {
    "api", "x", "access", "auth", "authorization", "bearer", "private", "env", "id", "name", "header", "headers",
    "gateway", "router", "proxy", "subscription", "node", "tenant", "admin", "hf", "service", "client", "ca", "file",
    "the", "of", "public", "cache", "salt",
}  # fmt: skip
_PATH = re.compile(r"(?:~|\.{1,2})?/[^:]*\.[a-z]{1,5}\Z")  # of a file, as mktemp and Kubernetes name them
_FLAG = re.compile(r"--[a-z]+(?:-[a-z]+)*\Z")
_WORD = re.compile(r"[^\s,;\"'{}\[\]()]+")
_EDGES = "'\"`.,;:!?()[]{}<>"


def quoted(value: object, *, longest: int = 40) -> str:
    """The value in quotes, cut to ``longest`` characters, for a sentence."""
    text = str(value)[:MOST_LOOKED_AT]
    if without_keys(text) != text:
        return HIDDEN
    return repr(text if len(text) <= longest else text[: longest - 3] + "...")


def without_keys(text: str) -> str:
    """The text with `HIDDEN` in place of each word that could be a key."""
    text = redact_text(text)
    return _WORD.sub(lambda word: HIDDEN if could_be_key(word[0]) else word[0], text)


def could_be_key(word: str) -> bool:
    """Whether a word (no spaces) looks like a key, a token or a password rather than like a name."""
    text = word.strip(_EDGES)
    compared = _COMPARED.match(text)
    if compared:
        text = compared["name"]
    _, slashes, rest = text.partition("://")
    if slashes:
        _host, *path = re.split(r"[/?&=#]", rest)
        return _userinfo(rest) or any(map(could_be_key, path))
    if _PATH.match(text):
        return False
    flag, _, value = text.partition("=")
    if _FLAG.match(flag):
        return could_be_key(value) if value else any(map(_random, flag.split("-")))
    if value:
        return could_be_key(flag) or could_be_key(value)
    if len(text) < 6:
        return False
    pieces = [piece for piece in re.split(r"[^A-Za-z0-9]+", text) if piece]
    if _VARIABLE.match(text) and not any(map(_random, pieces)):
        return bool(re.match(r"AKIA|ASIA", text))
    mixed = [piece for piece in pieces if len(piece) >= 4 and _kinds(piece) >= 2 and not piece.isalpha()]
    return (
        _PREFIX.match(text) is not None
        or _UUID.search(text) is not None
        or any(map(_random, pieces))
        or len(mixed) >= 3
        or _says_so(pieces)
        or _password(text)
    )


def _userinfo(rest: str) -> bool:
    return "@" in rest.partition("/")[0]


def _says_so(pieces: list[str]) -> bool:
    """``tenant-key-a``, ``my-secret-7``: a value that calls itself a key; not ``api_key``, a field's name."""
    lowered = [piece.lower() for piece in pieces]
    return any(piece in _SECRET_WORDS for piece in lowered) and not _BESIDE.issuperset(lowered)


def _password(text: str) -> bool:
    """Letters and digits with signs that names have not; e-mail addresses and versions are none."""
    if re.fullmatch(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|v?\d+(?:\.\w+)+(?:[+-][\w.]+)?", text):
        return False
    return bool(re.search(r"[!#$%^&*?~|\\+=@]", text)) and _kinds(text) >= 2 and bool(re.search(r"\d", text))


def _random(piece: str) -> bool:
    """Whether letters and digits without anything between them follow no word that people write."""
    size, kinds = len(piece), _kinds(piece)
    if piece.isdigit():
        return size >= 16
    if piece.isalpha():
        humps = len(re.findall(r"[a-z][A-Z]", piece))
        return size >= 24 or (size >= 12 and humps >= 3)
    turns = len(re.findall(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])", piece))
    return size >= 16 or (size >= 10 and (turns >= 2 or kinds == 3))


def _kinds(piece: str) -> int:
    """How many of small letters, capitals and digits it has."""
    return sum(bool(re.search(kind, piece)) for kind in ("[a-z]", "[A-Z]", r"\d"))


def nearest(text: str, known: Iterable[str]) -> str:
    """The known name that a misspelt one most likely stands for, in any case of letters; "" for none."""
    from difflib import get_close_matches  # costs a gate's start, and is seldom needed

    spelled = {name.lower(): name for name in known}
    near = get_close_matches(text[:MOST_LOOKED_AT].lower(), spelled, n=1)
    return spelled[near[0]] if near else ""
