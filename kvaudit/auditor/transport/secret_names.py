"""Decides by its name whether a field's value is a secret: one rule book for every engine.

The names in the tables of the tests come from real payloads: ``max_total_num_tokens`` and
``tokenizer_path`` are innocent, ``ssl_keyfile`` is a path, ``ssl_keyfile_password`` is a secret.
"""

from __future__ import annotations

import re
from functools import lru_cache

REDACTED = "[redacted]"
_MARK = "[redacted"  # patterns for unquoted values end before the bracket

PLACEHOLDERS = frozenset(
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


def is_secret(name: str, value: str) -> bool:
    strength = secret_name(name)
    if not strength or value.startswith(_MARK) or value.strip().lower() in PLACEHOLDERS:
        return False
    if set(value) <= {"*", "x", "X", "."}:
        return False
    if strength == "strong":
        return True
    if _SHAPED.fullmatch(value) is None or value.startswith(("/", ".")):
        return False
    # A bare "token" or "key" is mostly a word of the model's answer.
    return name.lower() not in ("token", "key") or (len(value) >= 16 and any(map(str.isdigit, value)))


def may_name(lowered: str) -> bool:
    """Whether any of the keywords is in a text in lower case. Spelled out: it is asked of every event."""
    return (
        "key" in lowered
        or "token" in lowered
        or "secret" in lowered
        or "pass" in lowered
        or "credential" in lowered
        or "auth" in lowered
    )
