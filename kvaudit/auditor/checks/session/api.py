"""A session API as templated steps, and what the `session` check may do with it.

The fleet file declares the steps; nothing else is ever sent. A template holds ``{{marker}}`` (a fresh
marker at every place), ``{{nonce}}``, ``{{size}}``, and names that an earlier answer was captured
under, such as ``{{id}}``. Captured values come from the audited server: in a path they are
percent-encoded whole, so that no answer can choose another path; in a body they stay inside their
JSON string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import orjson

from kvaudit.auditor.text.markers import Draw
from kvaudit.auditor.verdict import Evidence

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
OWN_NAMES = ("marker", "nonce", "size")
NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
LONGEST_VALUE = 512
"""Characters of a captured value; session ids are shorter."""

_HOLE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_PATH = re.compile(r"/[!-~]*")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
MARKER = re.compile(r"kv[a-z2-7]{16}")
"""80 bits: data comes back verbatim here, so an exact match of a random token is right."""


class UnusablePlan(ValueError):
    """A template, or a value for one, that cannot be used; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request. ``body`` is the JSON text of a template, "" for none; ``capture`` pairs a name with
    a JSON pointer into the answer."""

    method: str
    path: str
    body: str = ""
    capture: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What the fleet file says of a session API.

    ``steps``: claim, seed, read, write, end (needed), reject, save, echo. ``without`` names what the
    service does not have: drop, timeout, reject, late, cancel. ``wait`` is how many seconds a dropped or
    idle session may live on. ``pool`` pairs capacity, in_use, max_request, shards with JSON pointers
    into the document at ``pool_path``. ``largest`` is the declared largest request.
    """

    url: str
    steps: tuple[tuple[str, tuple[Step, ...]], ...]
    pool_path: str = ""
    pool: tuple[tuple[str, str], ...] = ()
    largest: int | None = None
    wait: int = 0
    without: frozenset[str] = frozenset()

    def of(self, name: str) -> tuple[Step, ...]:
        """The requests of a step, () when it is not declared."""
        return dict(self.steps).get(name, ())


NEEDED = ("claim", "seed", "read", "write", "end")
OPTIONAL = ("reject", "save", "echo")
WITHOUT = ("drop", "timeout", "reject", "late", "cancel")
POOL = ("capacity", "in_use", "max_request", "shards")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``status`` 0 = nothing (``problem`` says why); ``text`` may hold customers' words:
    it is for matching only. ``cut``: left on purpose before the answer was read."""

    status: int = 0
    text: str = field(default="", repr=False)
    captured: Mapping[str, str] = field(default_factory=dict, repr=False)
    problem: str = ""
    cut: bool = False
    at: float = 0.0  # seconds on the wire's clock when the answer had come
    evidence: tuple[Evidence, ...] = ()

    @property
    def taken(self) -> bool:
        return 200 <= self.status < 300

    @property
    def void(self) -> bool:
        """No answer, overload or a server's own failure: it says nothing about isolation."""
        return not self.cut and (self.status == 0 or self.status in (408, 425, 429) or self.status >= 500)


Fill = Callable[[str], str]
"""The value for a name in a template; `UnusablePlan` when there is none."""


class SessionWire(Protocol):
    """The hands of the check. ``accounts`` are A and B; every request is counted before it is sent."""

    @property
    def accounts(self) -> tuple[str, ...]: ...

    @property
    def plan(self) -> SessionPlan: ...

    @property
    def draw(self) -> Draw: ...

    @property
    def patience(self) -> float:
        """Seconds that ``in_use`` is given to come back to its baseline."""
        ...

    async def call(
        self, account: int, step: Step, fill: Fill, *, shared: bool = False, cut: float | None = None
    ) -> Answer:
        """Send one declared step as an account. ``shared``: over one connection for both accounts.
        ``cut``: leave after so many seconds, 0 = as soon as the answer's head is there. Raises
        `prober_protocol.Stop` when nothing more may be sent, `UnusablePlan` for a captured value that
        no path may hold."""
        ...

    async def pool(self) -> Answer:
        """The pool's document."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def now(self) -> float: ...


def names_in(template: str) -> list[str]:
    """Names of the holes of a template, in order."""
    return [found[1] for found in _HOLE.finditer(template)]


def path_problem(path: str) -> str:
    """A sentence when this cannot be the path of a step, "" when it can."""
    if not _PATH.fullmatch(_HOLE.sub("x", path)):
        return f"the path {path!r:.80} must begin with / and be plain ASCII without blanks"
    bare = _HOLE.sub("x", path).partition("?")[0]
    if "#" in path or "//" in bare or any(part in (".", "..") for part in bare.split("/")):
        return f"the path {path!r:.80} must hold no #, no // and no . or .. between slashes"
    for name in names_in(path):
        if not NAME.fullmatch(name):
            return f"the path {path!r:.80} holds {{{{{name:.30}}}}}, which is no name"
    return ""


def render_path(template: str, fill: Fill) -> str:
    """The path with every value percent-encoded whole; `UnusablePlan` for one that would change the path."""

    def one(hole: re.Match[str]) -> str:
        value = fill(hole[1])
        if not value or value in (".", "..") or len(value) > LONGEST_VALUE:
            raise UnusablePlan(
                f"The server gave a value for {{{{{hole[1]}}}}} that cannot stand in a path (empty, . or .., or longer "
                f"than {LONGEST_VALUE} characters); nothing was sent."
            )
        return quote(value, safe="")

    return _HOLE.sub(one, template)


def fits(template: str, path: str) -> bool:
    """Whether a rendered path belongs to a template: every hole one encoded value, the rest letter by letter."""
    pattern = "".join(
        re.escape(part) if at % 2 == 0 else r"[A-Za-z0-9_.~%-]+"
        for at, part in enumerate(_HOLE.split(template))
    )
    return re.fullmatch(pattern, path) is not None


def render_body(template: str, fill: Fill) -> bytes | None:
    """The JSON body; a string that is nothing but ``{{size}}`` becomes a number. None for no body."""
    return orjson.dumps(_filled(orjson.loads(template), fill)) if template else None


def _filled(value: Any, fill: Fill) -> Any:
    if isinstance(value, str):
        if _HOLE.fullmatch(value) and names_in(value) == ["size"]:
            return int(fill("size"))
        return _HOLE.sub(lambda hole: fill(hole[1]), value)
    if isinstance(value, list):
        return [_filled(item, fill) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, fill) for key, item in value.items()}
    return value


def draw_token(draw: Draw, prefix: str = "kv") -> str:
    """A random token of 80 bits that survives JSON, forms and lower-casing."""
    return prefix + "".join(_ALPHABET[draw(32)] for _ in range(16))
