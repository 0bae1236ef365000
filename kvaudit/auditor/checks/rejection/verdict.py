"""Judges how each length around the limit was answered. Pure: no clock, no network. `RULES` says what decides
before what (checks.md 3)."""

from __future__ import annotations

from typing import Any

from kvaudit.auditor.checks.misses import LOOK_AT_MISSES
from kvaudit.auditor.checks.rejection import sentences as said
from kvaudit.auditor.checks.rejection.seen import Ladder, LadderSeen, stranded
from kvaudit.auditor.checks.rules import Rule, first_that_holds
from kvaudit.auditor.checks.trials import (
    CHECK_THE_KEY,
    GIVE_CONSENT,
    key_refused,
    needed,
    result_builder,
)
from kvaudit.auditor.checks.ways import ways_asked
from kvaudit.auditor.verdict import Result, Verdict

DOES_NOT_PROVE = (
    "It covers these lengths, this build and an otherwise quiet engine: nothing about other lengths, races under "
    "load, other replicas behind the same entry, or what the engine does inside before it refuses."
)


def judge_ladder(seen: LadderSeen) -> Result:
    """The verdict of checks.md 3 over everything that was asked."""
    ladder = Ladder(seen)
    result = result_builder("rejection", _measures(ladder), DOES_NOT_PROVE, seen.evidence)
    return first_that_holds(RULES, ladder, result)


ERROR, FAIL, OPEN, PASS = Verdict.ERROR, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS
_HONEST = "Have the engine or gateway return an error with its reason."

RULES: tuple[Rule[Ladder], ...] = (
    # What was seen stands, however the climb went on.
    Rule("read something else", FAIL, said.read_something_else, said.first_aid, "critical"),
    Rule("unhealthy", FAIL, said.unhealthy, "Restart the deployment; do not send prompts of this length again until "
         "the engine is upgraded or the pool enlarged.", "high"),
    Rule("no honest error", FAIL, said.no_honest_error, _HONEST, "medium"),
    Rule("empty", FAIL, said.empty, "Have whatever drops the answer return an error (transfer, gateway, filter); see "
         "the server's log at these times.", "medium"),
    Rule("never answered", FAIL, said.never_answered, _HONEST, "medium"),
    Rule("shortened", FAIL, said.shortened, _HONEST, "medium"),
    Rule("pool shrinks", FAIL, said.pool_shrinks, "Restart in a window and report the leak upstream with these "
         "numbers; the pool check will fail next.", "high"),
    Rule("key refused", ERROR, lambda ladder: key_refused(ladder.trials), CHECK_THE_KEY),
    # From here on nothing was seen against the target. Was enough seen for it?
    Rule("withheld", OPEN, said.withheld, GIVE_CONSENT),
    Rule("all fail", OPEN, said.all_fail, "Bring the server back to answering a short completion, then run again.",
         warn=True),
    Rule("server fails", OPEN, said.server_fails, "A prompt that costs a worker is a denial of service: report it "
         "upstream, then run again.", warn=True),
    Rule("guardrail", OPEN, said.guarded, "Let the audit's tenants past the guardrail (an allow-list of keys), or ask "
         "an entry behind it, then run again."),
    Rule("no control", OPEN, said.no_control, "Ask a model, or a route, that answers what a short prompt asks for "
         "(kvaudit probe --model, --entry)."),
    Rule("unshown above", OPEN, said.unshown_above, LOOK_AT_MISSES, warn=True),
    Rule("misses that more of the climb would not explain", OPEN, said.known_misses, LOOK_AT_MISSES, warn=True),
    Rule("stopped", OPEN, said.stopped, lambda ladder: needed(ladder.seen.stopped)),
    Rule("no limit", OPEN, said.no_limit, "Give the nodes' URLs so that their limits can be read, or declare the "
         "context."),
    Rule("misses", OPEN, lambda ladder: ladder.seen.misses.why_no_pass, LOOK_AT_MISSES, warn=True),
    Rule("nothing accepted", OPEN, said.nothing_accepted, "See whether this model can copy its nonce at that length "
         "(coherence), or what stands before it."),
    Rule("none near", OPEN, said.none_near, "Ask a model, or a route, that answers with less thought (kvaudit probe "
         "--model, --entry), or raise the context."),
    Rule("shortened once", OPEN, said.shortened_once, "See what rewrites prompts or counts between kvaudit and the "
         "engine, then run again.", warn=True),
    Rule("some empty", OPEN, said.some_empty, "See what drops answers between engine and client, then run again.",
         warn=True),
    Rule("nothing refused", OPEN, said.nothing_refused, "See what stands between kvaudit and the engine; a proxy may "
         "refuse or truncate first."),
    Rule("refused before the engine", OPEN, said.refused_before_the_engine, "Raise the body limit of the proxy (a "
         "token takes up to 8 bytes), or declare its limit as the edge limit."),
    Rule("void", OPEN, said.void, "Mend what made trials void, then run again."),
    Rule("two limits", OPEN, said.two_limits, "Address one replica, then run again.", warn=True),
    Rule("pages left", OPEN, said.pages_left, "Watch the pool's use; a refusal that keeps its pages shrinks the pool "
         "until nothing fits.", warn=True),
    Rule("some failed", PASS, said.some_failed, "A rejection that costs a worker is a denial of service: report it "
         "upstream.", warn=True),
    Rule("climbed", PASS, lambda ladder: ladder.climbed, "Run again after every capacity change."),
)  # fmt: skip


def _measures(ladder: Ladder) -> dict[str, Any]:
    seen = ladder.seen
    edge = seen.edge_limit + 1 if seen.edge_limit is not None else None
    beyond = [rung.name for rung in ladder.rungs if rung.tokens == edge]
    return {
        "first_rejected_tokens": seen.first_rejected,
        "context_tokens": seen.context,
        "located_by_search": seen.located,
        "rungs": [rung.as_measure(ladder.refused[rung.name]) for rung in ladder.rungs],
        "ways": ways_asked(seen.trials),
        "valid": sum(one.outcome.valid for one in seen.trials),
        "void": sum(not one.outcome.valid for one in seen.trials),
        "misses": seen.misses.as_measure(),
        "edge_limit": seen.edge_limit,
        "edge_limit_refused": any(ladder.refused[name] for name in beyond) if edge is not None else None,
        "pool_use_before": sum(seen.pool_before.values()) if seen.pool_before else None,
        "pool_use_after": sum(seen.pool_after.values()) if seen.pool_after else None,
        "pool_left_behind": stranded(seen),
    }
