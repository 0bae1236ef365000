"""Lists what each check must find on each faulty engine: the declarative half of the matrix.

A row is an engine: faults, flavour and settings, with the roles read with their own key. An expectation
is one or more verdicts joined by ``|``; ``not pass`` is every verdict but that. A check that a row
does not name must *pass*: silence on a healthy part of a sick engine is an assertion too (a clean
cache audit would not have found the incident).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvaudit.auditor.checks import ACTIVE, MODULES, PASSIVE

NOT_APPLICABLE: Mapping[str, str] = {"session": "the lab serves no session API"}
"""Checks that have nothing to ask here, and why. They are shown and not counted."""

ENLARGED: Mapping[str, Any] = {"prefill_pool": 16_384}


@dataclass(frozen=True, slots=True)
class Expectation:
    """One engine of the matrix with the verdicts that its checks must give. ``roll_up`` is the verdict of all
    checks together that must not be *pass* where it says so."""

    name: str
    faults: tuple[str, ...]
    expected: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=lambda: ENLARGED)
    roll_up: str = ""
    requests_between: int = 0  # ordinary requests between the first reading and the checks

    def expects(self, check: str) -> str:
        return self.expected.get(check, "pass")


SMALL: Mapping[str, Any] = {}
# A node that cannot be read is an error of every reading; the active checks have no limit to go by and do not ask.
UNREADABLE = dict.fromkeys(PASSIVE, "error") | dict.fromkeys(ACTIVE, "inconclusive")
# Nothing can be said to fill, or to have come near, a pool whose size nobody tells.
UNKNOWN_POOL = dict.fromkeys(("pool", "canary", "coherence", "prefill", "concurrency"), "inconclusive")
_AT_THE_LIMIT = ("rejection", "canary", "coherence", "prefill")
_REJECTED_RIGHT = {"pool": "fail"}  # a small pool fails the pool check whatever happens at the boundary

ROWS = (
    Expectation("healthy", ("healthy",)),
    Expectation("none", ("none",), _REJECTED_RIGHT, SMALL),
    Expectation("unified", ("healthy",), {}, {"unified": True, "prefill_pool": 16_384}),
    # vLLM completes on /invocations without asking for the key that /v1 wants (vllm#58144), and whether
    # a NIXL lease can expire must be declared
    Expectation(
        "vllm",
        ("healthy",),
        {"exposure": "fail", "version": "inconclusive"},
        {"flavour": "vllm", "prefill_pool": 16_384},
    ),
    Expectation(
        "stale_pages",
        ("stale_pages",),
        {
            "pool": "fail",
            "version": "fail",
            "rejection": "fail",
            "canary": "fail",
            "coherence": "fail",
            "prefill": "fail",
            # concurrency stays below N - 8, where nothing is rejected: load alone does not show the incident
        },
        SMALL,
    ),
    Expectation(
        "fixed_0_5_20", ("fixed_0_5_20",), {"pool": "fail", "version": "fail", "rejection": "fail"}, SMALL
    ),
    Expectation("fixed_0_5_21", ("fixed_0_5_21",), {"pool": "fail", "version": "fail"}, SMALL),
    Expectation(
        "short_transfer",
        ("short_transfer",),
        {
            # the question's own state survives the handoff, so a copier answers it with the stranger's
            # word and goes on asking: rejection and coherence see that, the canary's frames seldom, but a
            # third of its answers lack their own nonce and so it never passes
            "rejection": "fail|inconclusive",
            "canary": "fail|inconclusive",
            "coherence": "fail|inconclusive",
            "prefill": "fail|inconclusive",
            "concurrency": "fail",
        },
    ),
    Expectation("late_writer", ("late_writer",), {"concurrency": "fail"}),
    Expectation("lease_expiry", ("lease_expiry",), {"concurrency": "fail"}),
    Expectation("crossed", ("crossed",), {"concurrency": "fail"}),
    Expectation("mixed_len", ("mixed_len",), {"concurrency": "fail"}),
    Expectation(
        "snapshot_restore",
        ("snapshot_restore",),
        {
            # a restored stranger answers in one's place, or only one's own facts are gone: the draw decides
            "accounting": "pass|inconclusive|fail",
            "rejection": "fail|inconclusive",
            "canary": "fail",
            "coherence": "inconclusive",
            "prefill": "inconclusive",
            "concurrency": "fail",
        },
    ),
    Expectation(
        "phantom_cache",
        ("phantom_cache",),
        {"accounting": "fail", "prefix": "fail"},
    ),
    Expectation("shared_prefix", ("shared_prefix",), {"prefix": "fail"}),
    Expectation("salt_ignored", ("salt_ignored",), {"prefix": "fail"}),
    # the prefill pool, where the cache is, must be the smaller one: fillers are counted against the smallest
    Expectation("tier_salt_dropped", ("tier_salt_dropped",), {"prefix": "fail"}, {"prefill_pool": 10_496}),
    Expectation(
        "quality_drift",
        ("quality_drift",),
        {
            # fresh, the engine still answers: the ladder may end before values are worn
            "rejection": "pass|fail|inconclusive",
            "coherence": "fail|inconclusive",
            "canary": "inconclusive",
            "prefill": "inconclusive",
            # unequal arms may lose their nonces no more often than the controls, which are worn too
            "concurrency": "fail|inconclusive",
        },
    ),
    Expectation("status_200_length", ("status_200_length",), {"pool": "fail", "rejection": "fail"}, SMALL),
    Expectation("empty_200", ("empty_200",), {"pool": "fail", "rejection": "fail"}, SMALL),
    Expectation(
        "reject_500",
        ("reject_500",),
        {
            # server errors are void trials: no refusal was seen, and no leak either
            "pool": "fail",
            "rejection": "inconclusive",
        },
        SMALL,
    ),
    Expectation("sse_error_in_200", ("sse_error_in_200",), _REJECTED_RIGHT, SMALL),
    Expectation("pool_stranded", ("pool_stranded",), {"pool": "fail", "rejection": "inconclusive"}, SMALL),
    Expectation(
        "wedge_at_limit",
        ("wedge_at_limit",),
        {
            "pool": "fail",
            "rejection": "fail",
            "canary": "fail",
            "coherence": "fail",
            "prefill": "fail",
            # concurrency stays below N - 8 and never meets the limit
        },
        SMALL,
    ),
    # concurrency and accounting stay below the length that wedges
    Expectation("wedge", ("wedge",), {"pool": "fail"} | dict.fromkeys(_AT_THE_LIMIT, "fail"), SMALL),
    Expectation(
        "wedge_decode", ("wedge_decode",), {"pool": "fail"} | dict.fromkeys(_AT_THE_LIMIT, "fail"), SMALL
    ),
    # silent for two minutes and then right: slow, with a warning, and nothing worse
    Expectation("wedge_for_minutes", ("wedge_for_minutes",), _REJECTED_RIGHT, SMALL),
    Expectation(
        "auto_truncate",
        ("auto_truncate",),
        {
            "pool": "fail",
            "rejection": "fail",
            # decode reads pages that never came: whether a stranger's facts stand in them depends on the draw
            "canary": "fail|inconclusive",
            "coherence": "fail|inconclusive",
            "prefill": "fail|inconclusive",
        },
        SMALL,
    ),
    Expectation("gateway_cache", ("gateway_cache",), {"prefix": "fail"}),
    # four of ten answers fail, the draw decides which: any check may end in any way, only never all in pass
    Expectation(
        "flaky", ("flaky",), dict.fromkeys(MODULES, "fail|inconclusive|error|pass"), roll_up="not pass"
    ),
    Expectation("dripping", ("dripping",), UNREADABLE, roll_up="not pass"),
    Expectation("bomb", ("bomb",), UNREADABLE, roll_up="not pass"),
    Expectation("redirect", ("redirect",), UNREADABLE, roll_up="not pass"),
    Expectation(
        "hidden_pool",
        ("hidden_pool",),
        UNKNOWN_POOL,
        roll_up="not pass",
    ),
    Expectation(
        "zero_gauges",
        ("zero_gauges",),
        UNKNOWN_POOL,
        roll_up="not pass",
    ),
    Expectation("nightly_version", ("nightly_version",), {"version": "inconclusive"}, roll_up="not pass"),
    Expectation("unauthenticated", ("unauthenticated",), {"exposure": "fail"}),
    Expectation("keys_in_server_info", ("keys_in_server_info",), {"exposure": "fail"}),
    Expectation(
        "capacity_change",
        ("capacity_change",),
        # every 50 requests the node comes back another: a check that is at work then cannot conclude
        {"drift": "fail"} | dict.fromkeys(ACTIVE, "pass|inconclusive"),
        requests_between=60,
    ),
)
