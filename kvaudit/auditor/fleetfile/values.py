"""Checks single values out of files and flags, and explains in one sentence what is wrong with one.

Every function returns the value or raises `InvalidValue` with the sentence; callers add the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from kvaudit.auditor.text.quoting import nearest, quoted

ROLES = ("prefill", "decode", "unified")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
POINTERS = ("capacity", "max_request", "in_use", "shards", "version")
LARGEST_TOKENS = 10**12
SHORTEST_INTERVAL = 2
MOST_REPLICAS = 100
"""Behind one address: each takes a dozen connections to be seen for sure."""
LONGEST_TEXT = 300

_SLUG = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*\Z")  # what a URL of ours can hold
_VARIABLE = re.compile(r"^[A-Z_][A-Z0-9_]{0,127}$")
_HEADER = re.compile(r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$")
_CLOCK = re.compile(r"^([01]\d|2[0-3]):[0-5]\d$")
_CRON_FIELD = re.compile(r"^[\d*/,\-A-Za-z#L]{1,60}$")
_DURATION = re.compile(r"^(\d{1,7})\s*(s|m|h|d)?$")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_HEADERS_OF_THE_TRANSPORT = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "content-type", "accept-encoding"}
)


class InvalidValue(ValueError):
    """A value that cannot be used; its text is a sentence without a full stop's context."""


def plain_text(value: object, name: str, *, longest: int = LONGEST_TEXT) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidValue(f"{name} must be text, not {kind_of(value)}.")
    text = str(value).strip()
    if _CONTROL.search(text):
        raise InvalidValue(f"{name} contains control characters; remove them.")
    if len(text) > longest:
        raise InvalidValue(f"{name} is {len(text)} characters long; at most {longest} are allowed.")
    return text


def slug(value: object, name: str = "slug") -> str:
    text = plain_text(value, name, longest=100)
    if not _SLUG.match(text):
        raise InvalidValue(
            f"{name} {quoted(text)} must be lower-case letters and digits with single - or _ between them, like "
            "glm-5-prod."
        )
    return text


def name(value: object) -> str:
    text = plain_text(value, "name", longest=100)
    if not text:
        raise InvalidValue("name must not be empty.")
    return text


def engine(value: object) -> str:
    """An adapter's id, also where it was written otherwise (TensorRT-LLM), or auto."""
    from kvaudit.auditor.advisories.pins import engine_id
    from kvaudit.auditor.engines import NAMES

    return choice(engine_id(plain_text(value, "engine")), "engine", ("auto", *NAMES))


def tokens(value: object, name: str) -> int:
    """A positive number of tokens; ``1_048_576`` and ``1,048,576`` are understood."""
    if isinstance(value, str) and re.fullmatch(r"\d[\d_,]{0,30}", value.strip()):
        value = int(value.strip().replace("_", "").replace(",", ""))
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{name} must be a whole number of tokens, not {kind_of(value)}.")
    if not 0 < value <= LARGEST_TOKENS:
        raise InvalidValue(
            f"{name} is {value if abs(value) < 10**15 else 'far out of range'}; "
            "it must be between 1 and 10^12 tokens."
        )
    return value


def replicas(value: object, name: str = "replicas") -> int:
    """How many processes answer at one address, at least 1."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,6}", value.strip()):
        value = int(value.strip())
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{name} must be a whole number of processes, not {kind_of(value)}.")
    if not 0 < value <= MOST_REPLICAS:
        raise InvalidValue(f"{name} is {value}; it must be between 1 and {MOST_REPLICAS}.")
    return value


def headroom(value: object) -> float:
    """A factor on the context; 1.0 is the least allowed (below it a full request cannot fit)."""
    try:
        number = (
            float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        )
    except (ValueError, OverflowError):
        number = None
    if number is None or number != number:
        raise InvalidValue(f"headroom must be a number such as 1.25, not {kind_of(value)}.")
    if number < 1.0:
        raise InvalidValue(
            f"headroom is {number:g}; 1.0 is the least allowed, the pool must hold at least one full request."
        )
    if number > 1000:
        raise InvalidValue(f"headroom is {number:g}; it is a factor on the context such as 1.25.")
    return number


def boolean(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "yes", "1"}:
        return True
    if isinstance(value, str) and value.strip().lower() in {"false", "no", "0"}:
        return False
    raise InvalidValue(f"{name} must be true or false, not {kind_of(value)}.")


def choice(value: object, name: str, allowed: Collection[str]) -> str:
    text = plain_text(value, name)
    if text not in allowed:
        raise InvalidValue(f"{name} {quoted(text)} is unknown; {suggestion(text, allowed)}")
    return text


def suggestion(text: str, allowed: Collection[str]) -> str:
    return (
        f"did you mean {near}?" if (near := nearest(text, allowed)) else f"use one of {', '.join(allowed)}."
    )


def url(value: object, name: str = "url") -> str:
    """An http or https base URL without credentials, query or fragment; no trailing slash.

    What the URL held is repeated only when it holds no ``@``: a password must not reach a log."""
    text = plain_text(value, name, longest=500)
    shown = quoted(text, longest=120) if "@" not in text else "(not shown, it holds an @)"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InvalidValue(f"{name} {shown} has a bad host or port.") from None
    if parts.scheme not in {"http", "https"}:
        raise InvalidValue(f"{name} {shown} must begin with http:// or https://.")
    if "@" in parts.netloc:
        raise InvalidValue(
            f"{name} carries credentials before its host; put them into an environment variable "
            "and name it in key_env or headers_env."
        )
    if not parts.hostname or re.search(r"[\s\\<>\"^`{|}]", text):
        raise InvalidValue(f"{name} {shown} has no usable host.")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise InvalidValue(f"{name} {shown} must be a base address without ? or #.")
    if port == 0:
        raise InvalidValue(f"{name} {shown} has port 0.")
    return text.rstrip("/")


def variable(value: object, name: str) -> str:
    """The name of an environment variable. Its text is never repeated: it may be the key itself."""
    if not isinstance(value, str) or not _VARIABLE.match(value.strip()):
        raise InvalidValue(
            f"{name} must be the name of an environment variable in capitals, such as PREFILL_KEY, "
            "never the key itself."
        )
    return value.strip()


def header(value: object, name: str = "headers_env") -> str:
    if not isinstance(value, str) or not _HEADER.match(value.strip()):
        raise InvalidValue(
            f"{name} must map header names to environment variables; one of its names is no header name."
        )
    if value.strip().lower() in _HEADERS_OF_THE_TRANSPORT:
        raise InvalidValue(f"{name} must not set {value.strip()}; it belongs to the connection.")
    return value.strip()


def clock(value: object, name: str) -> str:
    """A time of day; ``24:00`` is the end of the day."""
    if not isinstance(value, str) or not (_CLOCK.match(value.strip()) or value.strip() == "24:00"):
        raise InvalidValue(f'{name} must be a time of day in quotes such as "01:30".')
    return value.strip()


def zone(value: object, name: str = "zone") -> str:
    from zoneinfo import ZoneInfo

    text = plain_text(value, name, longest=60)
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise InvalidValue(
            f"{name} {quoted(text)} is no time zone; write one like Europe/Berlin or UTC."
        ) from None
    return text


def cron(value: object, name: str = "cron") -> str:
    """Five cron fields; what they mean is checked where the plan is stored."""
    text = " ".join(plain_text(value, name, longest=120).split())
    fields = text.split(" ")
    if len(fields) != 5 or not all(_CRON_FIELD.match(field) for field in fields):
        raise InvalidValue(
            f'{name} {quoted(text)} must have five fields (minute hour day month weekday), such as "0 3 * * *".'
        )
    return text


def duration(value: object, name: str) -> int:
    """Seconds out of 90, "90s", "15m", "1h" or "1d"."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    match = _DURATION.match(text)
    if not match:
        raise InvalidValue(f"{name} must be a time span such as 30s, 15m, 1h or 1d.")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2] or "s"]


def pin(value: object) -> str:
    """A pin such as ``sglang>=0.5.22``: an engine, then a PEP 440 range. An engine that is not read is
    refused: its pin would decide nothing, and stand in the place of the one that was shipped."""
    from kvaudit.auditor.advisories.pins import parse_pin
    from kvaudit.auditor.engines import NAMES

    text = plain_text(value, "a pin", longest=100)
    try:
        engine = parse_pin(text).engine
    except ValueError as problem:
        raise InvalidValue(str(problem)) from None
    if engine not in NAMES:
        raise InvalidValue(
            f"The pin {quoted(text)} is for no engine that is read; {suggestion(engine, NAMES)}"
        )
    return text


def component(value: object) -> str:
    """The name that advisories use for a connector or store, out of that or a package's name."""
    from kvaudit.auditor.advisories import names

    text = plain_text(value, "a component", longest=60)
    return _known(lambda: names.component(text))


def condition(value: object) -> str:
    """The name of a condition that an advisory asks for."""
    from kvaudit.auditor.advisories import names

    text = plain_text(value, "a condition", longest=80)
    return _known(lambda: names.condition(text))


def _known(read: Callable[[], str]) -> str:
    try:
        return read()
    except ValueError as problem:
        raise InvalidValue(str(problem)) from None


def kind_of(value: object) -> str:
    """ "a list", "nothing", "the text 'abc'", for sentences."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "a group of fields"
    return quoted(value)
