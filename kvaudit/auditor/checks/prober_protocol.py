"""What an active check can ask of a target, and what comes back.

The protocol is implemented by `kvaudit.auditor.prober` (real sockets, budget, consent, health) and by the
lab's virtual clock; a check sees only this. Every request is counted before it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from kvaudit.auditor.checks.serving import Serving
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.text.markers import Draw, Marker
from kvaudit.auditor.text.prompts import Needle, Tail
from kvaudit.auditor.text.spelling import Prompt
from kvaudit.auditor.text.wordings import Wording
from kvaudit.auditor.verdict import Evidence


class Outcome(StrEnum):
    """How one request ended. Only the first five say something about the target."""

    ANSWERED = "answered"  # 2xx, read to its end, with text
    EMPTY = "empty"  # 2xx, read to its end, no text and no abort
    CUT = "cut"  # 2xx whose finish is abort, or length with at most one token where there was room
    REFUSED = "refused"  # an error that names the length, as status or inside a 200 stream
    HIDDEN = "hidden refusal"  # 2xx whose text is the sentence of such an error
    UNANSWERED = "unanswered"  # an error for another reason (max_tokens, a parameter): void
    TOO_LARGE = "too large"  # 413: a proxy, or an engine that does not name the length: void
    GUARDED = "guardrail"  # something before the model answered, whatever the status: void
    FAILED = "failed"  # 5xx
    BUSY = "busy"  # 429, 503 or 529: void
    TIMED_OUT = "timed out"
    BROKEN = "broken"  # dropped, truncated stream without [DONE], garbage: void
    DENIED = "denied"  # 401, 403: an error of the configuration
    STRANGER = "stranger"  # another model or version answered: void
    CANCELLED = "cancelled"  # by us, on purpose

    @property
    def valid(self) -> bool:
        """Whether a trial with this outcome counts; a void one is counted and shown, never as clean."""
        return self in (Outcome.ANSWERED, Outcome.EMPTY, Outcome.CUT, Outcome.REFUSED, Outcome.HIDDEN)


MARKER, NONCE, FACT = "marker", "nonce", "fact"
"""Kinds of a trace."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Something of another request that came back in an answer: ``words`` are ours, so they may be shown.

    ``where``: "text", or what else of an answer held it. ``verified``: a run of marker words that chance does not
    bring; a single foreign nonce or fact is none. ``tokens`` is the length of the prompt that was answered.
    """

    kind: str  # "marker", "nonce" or "fact"
    where: str
    planted_by: str
    read_by: str
    words: tuple[str, ...]
    run: int
    tokens: int
    decoy: bool = False
    verified: bool = False
    earlier_run: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. ``text`` is content, reasoning and tool arguments of the joined stream: it is
    sealed text, for matching only; never put it into a summary, measure, log or evidence."""

    outcome: Outcome
    status: int = 0
    text: str = field(default="", repr=False)
    finish: str = ""
    error: str = ""  # the engine's message, redacted, at most 500 characters
    limit_named: int | None = None  # tokens, out of the error
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None  # None = not reported = unknown, never zero
    first_token: float | None = None  # seconds from the last byte sent, streamed requests only
    seconds: float = 0.0
    retry_after: float | None = None  # seconds that a busy target asks to wait
    answer_id: str = ""  # the target's own name of this answer
    created: float | None = None  # when it says that it was made, in seconds since 1970
    cache_headers: tuple[str, ...] = ()  # "name: value" of headers about caches
    model: str = ""
    tokens_sent: int = 0
    mode: str = ""  # the route by which it was asked, and whether its answer was streamed
    stream: bool = True
    evidence: tuple[Evidence, ...] = ()  # request and response, generated text replaced by its hash
    aside: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # where -> other text of the answer, sealed too
    traces: tuple[Trace, ...] = ()  # of other requests of this run, and of earlier ones
    foreign: bool | None = (
        None  # words that neither the prompt nor the model's short answers hold; None = unjudged
    )

    @property
    def valid(self) -> bool:
        return self.outcome.valid


class Stop(Exception):
    """The run must end now: a verified hit, a sign of harm, the budget, the window, a pause or a
    cancel. ``reason`` is a sentence; the runner turns the checks that did not finish into results."""

    def __init__(self, reason: str, *, harm: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.harm = harm


@dataclass(frozen=True, slots=True)
class Plan:
    """What a check would send: the dry run prints it, the budget cuts ``rounds`` by it."""

    requests: int
    prompt_tokens: int
    seconds: float  # rough expectation
    rounds: int = 0  # planned n of rounds, where the check has such
    note: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths in tokens, out of the passive readings (None = unknown).

    ``first_rejected`` is N of checks.md; ``context`` is C; ``page`` the page size (64 when unknown);
    ``pool`` the smallest usable pool of any node, ``dangerous`` whether lengths >= N-8 need consent
    (pool < context, or N unknown).
    """

    first_rejected: int | None
    context: int | None
    pool: int | None
    page: int = 64
    page_read: bool = False
    decode_limit: int | None = None
    unified: bool = True
    largest_pool: int | None = None  # the largest pool of any node: what fillers must exceed to evict
    sizes: tuple[
        int, ...
    ] = ()  # of chunks, batches and windows, as read: engines treat lengths beside them apart

    @property
    def dangerous(self) -> bool:
        if self.first_rejected is None or self.pool is None or self.context is None:
            return True
        return self.pool < self.context

    @property
    def longest_safe(self) -> int | None:
        """N - 128 - 2 pages: the longest accepted length that leaves room for an answer."""
        return None if self.first_rejected is None else self.first_rejected - 128 - 2 * self.page


class Prober(Protocol):
    """The hands of an active check: tenants, exact prompts, requests within the budget."""

    @property
    def tenants(self) -> tuple[str, ...]:
        """Names, in order; the first is A."""
        ...

    @property
    def limits(self) -> Limits: ...

    def limit_found(self, tokens: int) -> None:
        """Checks that follow use the limit that was found by asking, where no node tells it."""
        ...

    @property
    def draw(self) -> Draw:
        """Seeded where the run has a seed."""
        ...

    @property
    def consent(self) -> bool: ...

    @property
    def rounds_ceiling(self) -> int | None:
        """Prompt tokens that the budget allows this check, None = no ceiling."""
        ...

    @property
    def salts(self) -> Mapping[str, str]:
        """Tenant -> the cache salt it always sends; empty where nobody does."""
        ...

    @property
    def templates(self) -> Mapping[tuple[Mode, str], int]:
        """Route and tenant -> tokens that the target adds to every prompt sent so, as calibrated."""
        ...

    @property
    def most_added(self) -> int:
        """Tokens that the target adds to a prompt, the most of all ways and tenants."""
        ...

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Every way to send a prompt that every tenant may use, the most exact first: the usual one."""
        ...

    @property
    def untested(self) -> tuple[str, ...]:
        """Routes and options that the target offers, as far as its nodes say, and that no check asks."""
        ...

    @property
    def wording(self) -> Wording:
        """What this run calls its frames; `phrase_tail` needs it."""
        ...

    @property
    def idle_allowance(self) -> float:
        """Seconds that a check may leave the target alone, in all."""
        ...

    @property
    def seconds_left(self) -> float | None:
        """Until the run has to end; None = nobody said."""
        ...

    @property
    def earlier(self) -> Sequence[Marker]:
        """Markers and decoys of runs of the last 30 days on this deployment: still live."""
        ...

    @property
    def scope(self) -> str:
        """Whose answers these are: one node, or "one unknown replica behind the entry"."""
        ...

    @property
    def serving(self) -> Serving:
        """What serves the requests together: build, pools by role, which counters are whose."""
        ...

    @property
    def entry_sets_salts(self) -> bool:
        """Whether the entry is declared to overwrite the salts that clients send."""
        ...

    async def framed(
        self,
        marker: Marker,
        tokens: int,
        tail: Tail,
        needles: Sequence[Needle] = (),
        *,
        tenant: str = "",
        lead: str = "",
        mode: Mode | None = None,
    ) -> Prompt:
        """A prompt that the target counts as exactly ``tokens`` tokens: ``lead``, frames of the
        marker with the needles between them, ``tail``. `ask` sends it in ``mode``, None = the usual way.
        ValueError when impossible."""
        ...

    async def ask(
        self,
        tenant: str,
        prompt: Prompt,
        *,
        max_tokens: int,
        temperature: float = 0.0,
        salt: str | None = None,
        stream: bool = True,
        cancel_after: float | None = None,
        seconds: float | None = None,
    ) -> Reply:
        """Send one request as ``tenant`` and read the answer to its end. Transport problems become
        an outcome, not an exception. Raises `Stop` when nothing more may be sent."""
        ...

    def room(self, prompt_tokens: int, wanted: int) -> int:
        """max_tokens that this engine can give after such a prompt: min(wanted, room), >= 1."""
        ...

    async def healthy(self) -> str:
        """ "" when the target is healthy and answers a short ordinary request, else a sentence."""
        ...

    async def counters(self) -> Mapping[str, float]:
        """Engine counters of every node as ``name/node number``: served_tokens, cached_tokens,
        pool_used, pool_share (of the pool, 0 to 1), running, waiting. What is absent is unknown."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the target's clock (virtual in the lab)."""
        ...

    def now(self) -> float:
        """Seconds on the target's clock."""
        ...
