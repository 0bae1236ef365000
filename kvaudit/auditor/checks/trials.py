"""Reduces replies to trials, and holds what the active checks share: the void rule and the result where nobody
could ask."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Prober, Reply, Trace
from kvaudit.auditor.text.prompts import Contents
from kvaudit.auditor.verdict import Evidence, Result, Verdict

VOID_SHARE = 0.10
"""More void trials than this make a check inconclusive, unless it failed."""

NONCE_ROOM = 16
"""Output tokens in which any model that read its prompt has said its nonce (a word is 1 to 8)."""

PHRASE_ROOM = 48
"""Output tokens in which it has said four words of its phrase (of one token a letter, and a space before each)."""

_TIMED_OUT = re.compile(r"timed[ -]?out|time[ -]?out|deadline", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Trial:
    """One request as a judge sees it: no generated text, only what was found in it.

    ``nonce``: whether the answer gives what its prompt asked for, the nonce or the own phrase: True given, False
    missing (an empty answer is one), None where it could not be judged (no room, no answer). ``foreign``: whether it
    holds words that neither its prompt nor the model's short answers do; None = unjudged.
    """

    name: str  # "N-1", "longest", "control", ...
    tokens: int
    tenant: str
    outcome: Outcome
    repeat: int = 0
    nonce: bool | None = None
    status: int = 0
    finish: str = ""
    error: str = ""
    limit_named: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    first_token: float | None = None
    seconds: float = 0.0
    cramped: bool = False  # there was less room than the answer needs
    foreign: bool | None = None
    traces: tuple[Trace, ...] = ()
    mode: str = ""  # the route by which it was asked
    stream: bool = True

    @property
    def way(self) -> str:
        """Route and form, "" where the route is not known."""
        return f"{self.mode}, {'streamed' if self.stream else 'whole'}" if self.mode else ""

    @property
    def usage_right(self) -> bool | None:
        """Whether the target counted what was sent (within 2 tokens); None when it does not say."""
        return None if self.prompt_tokens is None else abs(self.prompt_tokens - self.tokens) <= 2

    @property
    def wrong(self) -> bool:
        """A 200 whose text does not hold the nonce although there was room for it."""
        return self.outcome is Outcome.ANSWERED and self.nonce is False

    @property
    def missed(self) -> bool:
        """A 200, empty or not, that does not give what was asked although there was room for it."""
        return self.nonce is False

    @property
    def read(self) -> bool:
        """Answered with its own nonce. Where there was no room for one (vLLM at N - 1 has a single token,
        often only the space before the word), the status and a right count must do (checks.md 3)."""
        if self.outcome is not Outcome.ANSWERED:
            return False
        return self.nonce is True or (self.nonce is None and self.cramped and self.usage_right is True)

    @property
    def late(self) -> bool:
        """Never answered, or only with an error that says something was waited for in vain: SGLang
        0.5.20's decode waits 300 s for a transfer that prefill gave up, then answers 500."""
        if self.outcome is Outcome.TIMED_OUT:
            return True
        return self.outcome is Outcome.FAILED and (self.status == 504 or bool(_TIMED_OUT.search(self.error)))


def trial(
    name: str,
    reply: Reply,
    *,
    tenant: str,
    asked: Contents | None,
    room: int,
    repeat: int = 0,
    needed: int = NONCE_ROOM,
) -> Trial:
    """Reduce a reply to what may leave the check. ``asked``: what the answer is judged against, None = judged by
    the check itself. ``needed``: output tokens that this model's short answers took (a thinking one's hundreds)."""
    if asked is not None and asked.tail.phrase:
        needed = max(needed, PHRASE_ROOM)
    return Trial(
        name=name,
        tokens=reply.tokens_sent,
        tenant=tenant,
        outcome=reply.outcome,
        repeat=repeat,
        nonce=given_in(reply, asked, room, needed) if asked is not None else None,
        status=reply.status,
        finish=reply.finish,
        error=reply.error,
        limit_named=reply.limit_named,
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        completion_tokens=reply.completion_tokens,
        first_token=reply.first_token,
        seconds=reply.seconds,
        cramped=room < needed,
        foreign=reply.foreign,
        traces=reply.traces,
        mode=reply.mode,
        stream=reply.stream,
    )


def given_in(reply: Reply, asked: Contents, room: int, needed: int = NONCE_ROOM) -> bool | None:
    """Whether the answer gives what was asked. With less room than the ``needed`` only the beginning of a nonce can
    be asked for: the word must start with what was said; nothing said at all, a phrase without room, or a model that
    thinks first and had no room for it, judges nothing."""
    if reply.outcome not in (Outcome.ANSWERED, Outcome.EMPTY):
        return None
    if asked.answered(reply.text):
        return True
    nonce = asked.tail.nonce
    if nonce is None:
        needed = max(needed, PHRASE_ROOM)
    if room >= needed:
        return False
    if nonce is None or needed > NONCE_ROOM:
        return None
    said = reply.text.lower().lstrip()
    return (nonce.word.startswith(said) or said.startswith(nonce.word)) if said else None


def void_share(trials: Iterable[Trial]) -> float:
    """Void trials over all; 0 for none (a judge asks for the number of valid ones besides).
    Trials that we cancelled on purpose are neither."""
    counted = [one for one in trials if one.outcome is not Outcome.CANCELLED]
    return sum(not one.outcome.valid for one in counted) / len(counted) if counted else 0.0


def voids(trials: Iterable[Trial]) -> str:
    """ "3 void (2 busy, 1 timed out)", or "no void trial"."""
    kinds = Counter(one.outcome.value for one in trials if not one.outcome.valid)
    kinds.pop(Outcome.CANCELLED.value, None)
    if not kinds:
        return "no void trial"
    return (
        f"{sum(kinds.values())} void ({', '.join(f'{count} {kind}' for kind, count in kinds.most_common())})"
    )


FAILED = (Outcome.FAILED, Outcome.BROKEN, Outcome.TIMED_OUT)


def how_it_failed(one: Trial) -> str:
    """ "failed (500: out of memory)"."""
    return f"{one.outcome.value} ({one.status}{f': {one.error}' if one.error else ''})"


def already_void(trials: Sequence[Trial], planned: int) -> str:
    """Why a run need not go on: more void trials than a pass may have, whatever comes; "" while that is open, or where
    it is not known how many are planned."""
    void = sum(not one.outcome.valid and one.outcome is not Outcome.CANCELLED for one in trials)
    if not planned or void <= VOID_SHARE * planned:
        return ""
    return f"Stopped, since {voids(trials)} of {planned} planned trials already forbid a pass."


MOST_KEPT = 1_500
"""Pieces of one result: request, answer and sealed text of every request of a full canary, which asks about 440."""


def distinct_evidence(evidence: Sequence[Evidence], most: int = MOST_KEPT) -> tuple[Evidence, ...]:
    """Evidence of a result, each body once for every request, the newest ``most`` pieces when there are more."""
    return tuple({(item.sha256, item.source): item for item in evidence[-most:]}.values())


MORE_TIME = "Give it more time (a longer window, budget_seconds) or fewer rounds, then run it again."
MORE_TOKENS = (
    "Give it more prompt tokens (kvaudit probe --budget, a plan's budget_tokens, a deployment's daily ceiling), then "
    "run it again."
)


def needed(stopped: str) -> str:
    """What a check needs that stopped for this reason: `TokenUsage` names the prompt tokens that ran out."""
    return MORE_TOKENS if "prompt tokens" in stopped else MORE_TIME


def unfinished(done: int, planned: int, of: str, reason: str) -> str:
    """How far a check came that had to stop: "18 of 20 rounds were done and 2 are missing: ..."."""
    if planned <= 0:
        return reason
    done = min(done, planned)
    missing = planned - done
    if not missing:
        return f"all {planned} {of} were done, and what followed some of them up was not: {reason}"
    return f"{done} of {planned} {of} were done and {missing} {'is' if missing == 1 else 'are'} missing: {reason}"


class ResultBuilder(Protocol):
    """A check's result, by what differs from one of its verdicts to the next."""

    def __call__(
        self, verdict: Verdict, summary: str, next_step: str, severity: str = "", warn: bool = False
    ) -> Result: ...


def result_builder(
    check: str, measures: dict[str, Any], does_not_prove: str, evidence: Sequence[Evidence]
) -> ResultBuilder:
    """A function that builds a judge's results: check, measures and evidence are the same in each. ``measures``
    may be filled until the result is made."""

    def result(
        verdict: Verdict, summary: str, next_step: str, severity: str = "", warn: bool = False
    ) -> Result:
        return Result(
            check,
            verdict,
            summary,
            measures,
            next_step,
            does_not_prove,
            warn,
            severity,
            distinct_evidence(evidence),
        )

    return result


class Sighting(Protocol):
    """Words of ours in an answer; of a decoy where nobody was ever sent them."""

    @property
    def decoy(self) -> bool: ...


CHECK_THE_KEY = "Check the key and run again; a refused key is not retried."


def key_refused(trials: Iterable[Trial]) -> str:
    """The sentence of the first trial that the target refused for its key; "" where there is none."""
    refused = next((one for one in trials if one.outcome is Outcome.DENIED), None)
    if refused is None:
        return ""
    return f"The entry refused the key of tenant {refused.tenant} ({refused.status}): nothing was learnt."


def nothing_learnt(
    result: ResultBuilder, trials: Iterable[Trial], sightings: Iterable[Sighting] = ()
) -> Result | None:
    """The *error* that comes before whatever else a verdict would say: our own matcher is at fault, or a key was
    refused. None where neither is so."""
    if any(one.decoy for one in sightings):
        return result(
            Verdict.ERROR,
            "A marker that was never sent to anybody was found in an answer: the matcher or its word list is at fault, "
            "and nothing was learnt about the target.",
            "Report this with the evidence; do not trust other results of this version that search for markers.",
        )
    if refused := key_refused(trials):
        return result(Verdict.ERROR, refused, CHECK_THE_KEY)
    return None


RESTART = "Restart it and look at its memory and queues."


def unhealthy_after(what: str, problem: str) -> str:
    """The sentence of a deployment that did not survive what it was asked; "" for no problem."""
    return f"The deployment is no longer healthy after {what}: {problem}" if problem else ""


def no_longer_healthy(result: ResultBuilder, after: str, problem: str) -> Result:
    """The *fail* of a deployment that did not survive what it was asked."""
    return result(Verdict.FAIL, unhealthy_after(after, problem), RESTART, "high")


def pool_use(counters: Mapping[str, float]) -> dict[str, float]:
    """Node -> use of its pool, in the node's own unit (tokens, blocks or a share); cached pages are not
    in use. Nodes that do not show it are absent."""
    return {name.partition("/")[2]: used for name, used in counters.items() if name.startswith("pool_used/")}


def idle(counters: Mapping[str, float]) -> bool:
    """Whether no node says that a request runs or waits."""
    return not any(count > 0 for name, count in counters.items() if name.startswith(("running/", "waiting/")))


async def harmed(prober: Prober, reply: Reply) -> str:
    """ "" unless this answer looks like harm done (none came, or the server failed) and the target is not
    healthy afterwards: then the sentence that says so. Looked at before anything more is sent."""
    if reply.outcome in (Outcome.TIMED_OUT, Outcome.FAILED, Outcome.BROKEN):
        return await prober.healthy()
    return ""


NO_CONSENT = (
    "lengths at the limit were not sent, since they need consent: the pool is smaller than the context or the limit "
    "is unknown, and such a prompt can stop a real server from answering anybody."
)
GIVE_CONSENT = (
    "Record the deployment's consent (kvaudit probe: name the check, or --allow-boundary), in a window and best on a "
    "shadow replica."
)


def withheld(limits: Limits, consent: bool) -> bool:
    """Whether the lengths that matter most could not be sent: what was not asked is not passed."""
    return limits.dangerous and not consent


GIVE_THE_WAY_IN = (
    "Give the entry URL and the tenants' keys (kvaudit probe --entry URL --tenant-a-key-env A ...)."
)


def unaskable(check: str, audit: Audit, needs: str) -> Result:
    """The result of an active check that had nobody to ask as, or no way in. Never a pass."""
    reason = audit.why_no_prober or f"it needs {needs} and an entry URL, and none was given"
    return Result(
        check,
        Verdict.INCONCLUSIVE,
        f"{check} was not asked: {reason[0].lower()}{reason[1:].rstrip('.')}.",
        measures={"asked": False},
        next=audit.prober_needs or GIVE_THE_WAY_IN,
        does_not_prove="Anything: no request was sent.",
    )
